"""The answer of ``sessions``: what every tier of cache more finds, saves and costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.arrivals import LEVELS, Traffic
from infer_jax.compiling import once
from infer_jax.estimators import Trust
from infer_jax.estimators.serving import Deployment, Serving, memory, shape
from infer_jax.physics import decoder
from infer_jax.physics.scheduling.session_cache import (
    Turns,
    break_even_bandwidth,
    returning_context,
    tier_hits,
)
from infer_jax.results import Column, Notes, Result, Row, Rows, Section, option
from infer_jax.results.problems import refuse
from infer_jax.specs import Architecture, Arrivals, ForwardPass, Hardware, Workload
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.texts import number

USUAL = 0.7  # of what a replica serves without a cache
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


def turns_of(traffic: Traffic, rate: Array | float) -> Turns:
    """Conversations whose turns come to one replica ``rate`` times a second."""
    sessions = traffic.sessions
    assert sessions is not None
    levels, gaps = jnp.asarray(LEVELS), jnp.asarray(sessions.gaps)
    widths = np.diff(LEVELS)
    news = float(widths @ (np.asarray(sessions.news)[1:] + np.asarray(sessions.news)[:-1]) / 2)
    mean, output = float(traffic.lengths["isl"]), float(traffic.lengths["osl"])  # pyright: ignore
    count = jnp.asarray(sessions.turns)
    # the first prompt that makes the mean of all prompts what it is
    first = jnp.maximum(mean - (count - 1.0) * (news + output), 1.0)
    rate = jnp.asarray(rate) / count
    return Turns(rate, count, first, jnp.asarray(news), jnp.asarray(output), levels, gaps)


@dataclass(frozen=True, repr=False)
class SessionsResult(Result):
    """Tiers of cache, one more in every row."""

    rows_key = "tiers"
    setup: Setup
    layout: str
    traffic: Traffic
    rate: float
    turns: float
    context: float
    compute: float
    link: float
    found: tuple[Row, ...]
    trust: Trust

    @classmethod
    def of(
        cls,
        setup: Setup,
        model: Serving,
        plan: Deployment,
        traffic: Traffic,
        tiers: Sequence[Tier],
        rate: float | None,
        trust: Trust,
        layout: str,
    ) -> "SessionsResult":
        """What a replica finds and serves without a cache, with its own, and with every tier."""
        arch, hardware = setup.model.architecture, setup.hardware
        parts = model, arch, hardware, plan

        def served(prefix: float, rate: float) -> tuple[float, float, float]:
            lengths = traffic.lengths | {"prefix": jnp.asarray(prefix)}
            ttft, latency, capacity = once(_served, *parts, lengths, jnp.asarray(rate))
            return float(ttft), float(latency), float(capacity)

        rate = USUAL * served(0.0, 1.0)[2] if rate is None else rate
        alone = _, latency, most = served(0.0, rate)
        turns = turns_of(traffic, rate)
        context = returning_context(turns)
        token_bytes, seconds, room = once(_replica, *parts, context, turns.news)
        # what runs has its part of the cache
        mean = jnp.asarray(traffic.lengths["isl"]) + turns.output / 2.0  # pyright: ignore
        free = jnp.maximum(room - min(rate, most) * latency * mean, 0.0)
        sizes = [float(free), *(x.size / float(token_bytes) for x in tiers)]
        hits = tier_hits(turns, jnp.asarray(sizes))
        fetches = [float(context * token_bytes) / x.bandwidth for x in tiers]
        names = ["none", "device", *(x.name for x in tiers)]
        rent = float(hardware.price) * float(plan.chips)
        rows, last = list[Row](), np.inf
        for i, name in enumerate(names):
            got = float(jnp.sum(hits.tokens[:i])) / rate
            ttft, _, capacity = served(got, rate) if i else alone
            waits = sum(float(hits.turns[k] * turns.again) * fetches[k - 1] for k in range(1, i))
            rent += tiers[i - 2].price if i > 1 else 0.0
            dollars = rent / 3600.0 / capacity * float(turns.count)
            rows.append(
                {
                    "tier": name,
                    "stays_s": float(hits.stays[i - 1]) if i else 0.0,
                    "found_percent": 100.0 * float(jnp.sum(hits.turns[:i])),
                    "computed_percent": 100.0 * (1.0 - got * rate / float(turns.prompts)),
                    "fetch_ms": 1e3 * fetches[i - 2] if i > 1 else None,
                    "ttft_ms": 1e3 * (ttft + waits) if capacity > rate else None,
                    "capacity_per_s": capacity,
                    "usd_per_session": dollars,
                    "pays": None if not i else dollars < last,
                }
            )
            last = dollars
        link = break_even_bandwidth(token_bytes, context, seconds)
        return cls(
            setup, layout, traffic, rate, float(turns.count), float(context), float(seconds),
            float(link), tuple(rows), trust,
        )  # fmt: skip

    def sections(self) -> Iterator[Section]:
        """The conversations, then a row for every tier."""
        yield (
            f"{self.setup.model.name} on {self.layout} {self.setup.system.name}: {self.rate:.3g} "
            f"requests/s of sessions of {self.turns:.3g} turns; a turn that returns finds "
            f"{self.context:,.0f} tokens, if they are kept, or computes them in "
            f"{1e3 * self.compute:.3g} ms."
        )
        yield self.trust.says
        yield {
            "request_rate_per_s": self.rate,
            "turns": self.turns,
            "returning_tokens": self.context,
            "compute_ms": 1e3 * self.compute,
            "break_even_link_gb_per_s": self.link / 1e9,
        }
        rows = [
            {k: float(f"{x:.4g}") if isinstance(x, float) else x for k, x in row.items()}
            for row in self.found
        ]
        yield Rows("tiers", rows, COLUMNS)
        yield Notes(
            [
                f"A link of {self.link / 1e9:.3g} GB/s fetches as fast as the replica computes.",
                "Each tier gives up what was not used for longest; what runs has its part of the "
                "device. A session's dollars are those of a full replica and of its tiers.",
                "Fetching is added to TTFT in full: engines overlap a part of it.",
                f"{option('tier')} pays where a session costs less than without it.",
            ]
        )


def _served(
    model: Serving, arch: Architecture, hardware: Hardware, plan: Deployment,
    lengths: dict[str, Array], rate: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Mean TTFT, latency, and the most requests/s, of requests of these lengths."""
    work = Workload(arrivals=Arrivals(rate=rate, variability=jnp.asarray(1.0)),
                    batch=jnp.asarray(1.0), **lengths)  # fmt: skip  # pyright: ignore
    answer = model.estimate(arch, hardware, work, plan)
    return answer.ttft, answer.latency, answer.decode.limits["arrivals"].capacity


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
