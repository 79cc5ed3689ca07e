"""The answer of ``sessions``: what every tier of cache more finds, saves and costs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.arrivals import LEVELS, Traffic
from infer_jax.arrivals.traffic import mean_between
from infer_jax.compiling import once
from infer_jax.estimators import Trust
from infer_jax.estimators.serving import Deployment, Serving, memory, shape
from infer_jax.physics import decoder
from infer_jax.physics.scheduling.session_cache import (
    TierHits,
    Turns,
    break_even_bandwidth,
    tier_hits,
)
from infer_jax.results import Column, Notes, Result, Row, Rows, Section, option
from infer_jax.results.numbers import round_row
from infer_jax.results.problems import refuse
from infer_jax.specs import Architecture, Arrivals, ForwardPass, Hardware, Workload
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.texts import number

USUAL = 0.7  # of what a replica serves without a cache
CLOSE = 1e-5  # a share that is none
ROUNDS = 200  # at most, in which what is found settles: ten, except close to where it collapses
COLUMNS = (
    Column("cache", "up to", "tier"),
    Column("kept for", "s", "stays_s"),
    Column("turns that", "find it, %", "found_percent"),
    Column("prompt tokens", "computed, %", "computed_percent"),
    Column("fetched in", "ms", "fetch_ms"),
    Column("TTFT", "ms, mean", "ttft_ms"),
    Column("serves", "requests/s", "capacity_per_s"),
    Column("a session", "USD", "usd_per_session"),
    Column("pays", "", lambda row: {None: None, True: "yes", False: "no"}[row["pays"]]),
)


class Tier(NamedTuple):
    """A place for what leaves the device: bytes, bytes/s of its link, USD an hour."""

    name: str
    size: float
    bandwidth: float
    price: float


def read_tiers(texts: Sequence[str]) -> list[Tier]:
    """Tiers of texts as ``host=1024,55,0.5``.

    Raises:
        InputError: a text that is none.
    """
    tiers = list[Tier]()
    for text in texts:
        name, _, numbers = text.partition("=")
        values = [number(x) for x in numbers.split(",")]
        whole = name.strip() and len(values) in (2, 3) and all(np.isfinite(values))
        if not whole or min(values[:2]) <= 0 or min(values) < 0:
            allowed = "NAME=GB,GB/s or NAME=GB,GB/s,USD/h: host=1024,55,0.5"
            raise refuse("tier", text, allowed)
        size, bandwidth, price = (*values, 0.0)[:3]
        tiers.append(Tier(name.strip(), size * 1e9, bandwidth * 1e9, price))
    return tiers


def turns_of(traffic: Traffic, rate: Array | float) -> tuple[Turns, float]:
    """Conversations whose turns and branches come to one replica ``rate`` times a second.

    And the share of what turns add that later prompts can have, as long as they are in the mean.
    """
    sessions = traffic.sessions
    assert sessions is not None
    mean, output = (float(x.mean()) for x in traffic.requests)
    count, branches, before = float(sessions.turns), float(sessions.branches), sessions.before
    news = mean_between(sessions.news)
    # tokens that turns add before a request; a branch is a turn longer
    grown = (before + branches / (1.0 + branches)) * (news + output)
    kept = min(1.0, (mean - 1.0) / grown) if grown > 0.0 else 1.0
    # the first prompt that makes the mean of all prompts what it is
    first = max(mean - kept * grown, 1.0)
    each = rate / (count * (1.0 + branches)), count, first, kept * news, kept * output, before
    return Turns(*map(jnp.asarray, (*each, LEVELS, sessions.gaps, branches))), kept


@dataclass(frozen=True, repr=False)
class SessionsResult(Result):
    """Tiers of cache, one more in every row; ``facts``: numbers of the conversations, for JSON."""

    rows_key = "tiers"
    setup: Setup
    layout: str
    trust: Trust
    facts: Row
    tiers: tuple[Row, ...]

    def sections(self) -> Iterator[Section]:
        """The conversations, then a row for every tier."""
        facts, link = self.facts, self.facts["break_even_link_gb_per_s"]
        forks = f", each of which forks {facts['branches']:.3g} branches" * bool(facts["branches"])
        yield (
            f"{self.setup.model.name} on {self.layout} {self.setup.system.name}: "
            f"{facts['request_rate_per_s']:.3g} requests/s of sessions of {facts['turns']:.3g} "
            f"turns{forks}; a turn that returns finds {facts['returning_tokens']:,.0f} tokens, if "
            f"they are kept, or computes them in {facts['compute_ms']:.3g} ms."
        )
        yield self.trust.says
        yield facts
        yield Rows("tiers", self.tiers, COLUMNS)
        kept = facts["kept_percent"]
        short = f"Prompts are too short for all that turns add: later ones have {kept:.3g} % of it."
        yield Notes([short] * (kept < 100.0) + [
            f"A link of {link:.3g} GB/s fetches as fast as the replica computes.",
            "Each tier gives up what was not used for longest; what runs has its part of the "
            "device. A session's dollars are those of a full replica and of its tiers.",
            "Fetching is added to TTFT in full: engines overlap a part of it.",
            f"{option('tier')} pays where a session costs less than without it.",
        ])  # fmt: skip


def tier_rows(
    setup: Setup, model: Serving, plan: Deployment, traffic: Traffic, tiers: Sequence[Tier],
    rate: float | None,
) -> tuple[Row, tuple[Row, ...]]:  # fmt: skip
    """The conversations; what a replica serves without a cache, and with each tier more."""
    parts = model, setup.model.architecture, setup.hardware

    def served(prefix: float, rate: float) -> tuple[float, float, float]:
        """Mean TTFT, latency, and the most requests/s."""
        work = Workload.of(**traffic.lengths | {"prefix": prefix}, arrivals=Arrivals.of(rate=rate))
        answer = once(Serving.estimate, *parts, work, plan)
        capacity = answer.decode.limits["arrivals"].capacity
        return float(answer.ttft), float(answer.latency), float(capacity)

    rate = USUAL * served(0.0, 1.0)[2] if rate is None else rate
    turns, kept = turns_of(traffic, rate)
    count, context = float(turns.count), float(turns.context)
    each = 1.0 + float(turns.branches)  # requests of a turn
    held, seconds, room = map(float, once(_replica, *parts, plan, turns.context, turns.news))
    rent = float(setup.hardware.price * plan.chips)
    places = [Tier("device", room * held, np.inf, 0.0), *tiers]
    fetches = [context * held / x.bandwidth for x in places]
    last, rows = np.inf, list[Row]()
    for i, name in enumerate(("none", *(x.name for x in places))):
        rent += places[i - 1].price if i else 0.0
        rooms = [x.size / held if j < i else 0.0 for j, x in enumerate(places)]
        hits, got = _found(served, traffic, turns, rate, rooms)
        got = got if i else 0.0
        ttft, _, capacity = served(got, rate)
        fetched = np.asarray(hits.turns) @ fetches * (1.0 - 1.0 / count) / each
        dollars = rent / 3600.0 / capacity * count * each
        row = {
            "tier": name,
            "stays_s": float(hits.stays[i - 1]) if i else 0.0,
            "found_percent": 100.0 * float(jnp.sum(hits.turns[:i])),
            "computed_percent": 100.0 * (1.0 - got * rate / float(turns.prompts)),
            "fetch_ms": 1e3 * fetches[i - 1] if i > 1 else None,
            "ttft_ms": 1e3 * (ttft + float(fetched)) if capacity > rate else None,
            "capacity_per_s": capacity,
            "usd_per_session": dollars,
            "pays": dollars < (1.0 - CLOSE) * last if i else None,
        }
        rows.append(round_row(row))
        last = dollars
    link = break_even_bandwidth(*map(jnp.asarray, (held, context, seconds)))
    facts = {
        "request_rate_per_s": rate,
        "turns": count,
        "branches": each - 1.0,
        "kept_percent": 100.0 * kept,
        "returning_tokens": context,
        "compute_ms": 1e3 * seconds,
        "break_even_link_gb_per_s": 1e-9 * float(link),
    }
    return facts, tuple(rows)


def _found(
    served: Callable[[float, float], tuple[float, float, float]], traffic: Traffic, turns: Turns,
    rate: float, rooms: Sequence[float],
) -> tuple[TierHits, float]:  # fmt: skip
    """What the device and other tiers of ``rooms`` have, and tokens of a request that are found.

    What runs has its part of the device, for as long as requests take with what is found: from all
    on, less and less, to the state of a replica whose cache is warm.
    """
    isl, osl = (float(x.mean()) for x in traffic.requests)
    got, hits = float(turns.followed + turns.branches * turns.left) / rate, None
    for _ in range(ROUNDS):
        _, latency, most = served(got, rate)
        free = max(rooms[0] - min(rate, most) * latency * (isl + osl / 2.0), 0.0)
        hits = once(tier_hits, turns, jnp.asarray([free, *rooms[1:]]))
        before, got = got, min(float(jnp.sum(hits.tokens)) / rate, got)
        if before - got <= CLOSE * before:
            break
    assert hits is not None
    return hits, got


def _replica(
    model: Serving, arch: Architecture, hardware: Hardware, plan: Deployment,
    context: Array, news: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Bytes of a token in the cache, seconds to compute a context, tokens that the cache has."""
    held = decoder.cache_bytes(arch, context)

    def prompt_time(new: Array, cached: Array) -> Array:
        fed = ForwardPass(sequences=jnp.asarray(1.0), new_tokens=new, cached_tokens=cached)
        return model.step(arch, hardware, fed, plan).time

    saved = prompt_time(context + news, jnp.zeros(())) - prompt_time(news, context)
    ctx = model.context(shape(arch), hardware, plan)
    room = memory.capacity(ctx, context, jnp.ones(()), jnp.zeros(())).held * context
    return held / context, saved, room * ctx.plan.attention_dp
