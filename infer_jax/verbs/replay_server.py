"""The server of a replay: the rules of its engine, what its passes cost, and its host memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from infer_jax import footprint
from infer_jax.compiling import once
from infer_jax.engines import ENGINES, ServingEngine
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Deployment, Serving, memory, shape
from infer_jax.estimators.serving.price import (
    PassBatch,
    PassLaw,
    RankedLaw,
    experts_time,
    own_time,
    pass_time,
    price,
    ranked_law,
)
from infer_jax.physics import energy
from infer_jax.physics.memory import tiers
from infer_jax.replays import Log, Requests, Rules, SharedStep, has_prefix_cache, serve
from infer_jax.results.numbers import size
from infer_jax.specs import UNBOUNDED, Architecture, Hardware
from infer_jax.verbs.inputs import Given
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.replay_requests import ReplayDrafts
from infer_jax.verbs.replay_runs import Series

OPTIONS = {"slots": "--max-num-seqs", "budget": "--max-num-batched-tokens"}


@contextmanager
def named_by_option() -> Iterator[None]:
    """Errors of a replay by the option that sets what they are about.

    Raises:
        InputError: as what runs within.
    """
    try:
        yield
    except InputError as error:
        option = OPTIONS.get(error.field, error.field)
        raise refuse(option, error.value, error.allowed) from None


class Sizes(NamedTuple):
    """What an engine is started with: None is its own default.

    ``chunked``: prompts may be fed in parts; ``overlap``: a pass is put together while the one
    before it runs; ``host``: GiB of host memory for blocks that leave the cache;
    ``caching``: prompts stay in the cache.
    """

    slots: float | None
    budget: float | None
    block: float | None
    utilization: float | None
    chunked: bool | None = None
    overlap: bool | None = None
    host: float | None = None
    caching: bool = False


class ReplayedInstance(NamedTuple):
    """One instance: its rules, its pass by a table, seconds before a request reaches it."""

    engine: str
    rules: Rules
    pass_: PassLaw | RankedLaw
    front: float
    tokens: float  # of the cache
    drafts: ReplayDrafts | None = None

    @property
    def step(self) -> Partial:
        """The seconds of a pass."""
        return Partial(pass_time, self.pass_)

    @property
    def shared_step(self) -> SharedStep:
        """The seconds of a pass of all attention ranks."""
        return SharedStep(Partial(own_time, self.pass_), Partial(experts_time, self.pass_))

    @property
    def words(self) -> str:
        """What limits a pass, in words."""
        rules = self.rules
        blocks, block = self.tokens / float(rules.block), float(rules.block)
        each = "a token each" if block == 1 else f"{block:g} tokens each"
        drafts = "" if self.drafts is None else f"; {self.drafts.words}"
        host = float(rules.host)
        away = f", {host:,.0f} more in host memory" if host else ""
        return (
            f"at most {float(rules.slots):,.0f} sequences and {float(rules.budget):,.0f} tokens in "
            f"a pass, a cache of {blocks:,.0f} blocks of {each}{away}{drafts}"
        )

    def serve(self, requests: Requests, concurrency: int | None) -> Log:
        """What happens to every request.

        Raises:
            InputError: a request that the server never holds.
        """
        with named_by_option():
            return serve(self.step, self.rules, requests, concurrency)

    def power(self, log: Log) -> np.ndarray:
        """Watts of a chip in each entry of the path; nothing where its power is not known."""
        if not float(self.pass_.context.hardware.power) > 0.0:
            return np.zeros(0)
        path = log.path
        kind = path.time.dtype
        grows = path.decoding if path.grows is None else path.grows
        given = (path.decoding, path.context, path.fed, path.pairs, path.count, grows)
        points = path.time.shape[0]
        if isinstance(self.pass_, RankedLaw) or float(self.rules.host):
            # passes wait for other ranks, or for blocks of the host
            spent = np.diff(np.asarray(path.time), prepend=0.0)
            given = *given, spent / np.maximum(np.asarray(path.count), 1)
        watts = once(_watts, self.pass_, *(jnp.asarray(x, kind) for x in given), points=points)
        return np.asarray(watts)


def series_of(server: ReplayedInstance, log: Log) -> Series:
    """One instance over time."""
    turns = int(log.turns)
    watts = server.power(log)
    return Series(
        time=np.asarray(log.path.time)[:turns],
        queue=np.asarray(log.queue)[:turns],
        running=np.asarray(log.path.running)[:turns],
        cache=np.asarray(log.path.blocks)[:turns] / float(server.rules.blocks),
        power=watts[:turns],
        kept=_idle_blocks(log, turns) / float(server.rules.blocks),
    )


def _idle_blocks(log: Log, turns: int) -> np.ndarray:
    """Blocks that no request uses and prompts are found in; nothing where none are kept."""
    return np.zeros(0) if log.path.kept is None else np.asarray(log.path.kept)[:turns]


def _watts(law: PassLaw | RankedLaw, *path: Array) -> Array:
    """Watts of a chip by the shares of each pass that it reads and computes; at rest in a wait."""
    own = law.own if isinstance(law, RankedLaw) else law
    exact = PassLaw.of_context(own.context, drafting=own.drafting, table=False)

    def entry_watts(
        decoding: Array,
        context: Array,
        fed: Array,
        pairs: Array,
        count: Array,
        grows: Array,
        seconds: Array | None = None,
    ) -> Array:
        middle = context + grows * (count - 1.0) / 2.0
        spent = price(exact, PassBatch(decoding, middle, fed, pairs))
        rate = jnp.where(count > 0, 1.0 / (spent.time if seconds is None else seconds), 0.0)
        c = exact.context
        return energy.power_at(c.hardware.power, spent, rate, c.model.draw)

    return jax.vmap(entry_watts)(*path)


def server_of(
    engine: str,
    model: Serving,
    arch: Architecture,
    hardware: Hardware,
    degrees: Mapping[str, float],
    sizes: Sizes,
    mean_tokens: float,
    drafts: ReplayDrafts | None = None,
) -> ReplayedInstance:
    """One instance that serves requests of ``mean_tokens`` tokens on average.

    ``degrees``: how it is cut over chips in one stage: tp, ep, and attention_dp, ranks of which
    each is a server of its own but for the experts.

    Raises:
        InputError: more sequences than tokens in a pass, or no room for a cache.
    """
    count = 0 if drafts is None else drafts.count
    own = ENGINES[engine]
    rules = own.rules(1.0, 1.0, caching=False, drafts=count)
    slots = float(rules.slots) if sizes.slots is None else sizes.slots
    budget = float(rules.budget) if sizes.budget is None else sizes.budget
    block = own.block if sizes.block is None else sizes.block
    slots = _slots(slots, budget, count, asked=sizes.slots is not None, beside=rules.mixed)
    if drafts is not None:
        model = model.with_(acceptance=drafts.acceptance)
    if sizes.utilization is not None:
        model = model.with_(usable_memory=sizes.utilization)
    # memory is vLLM's account: other engines' many slots take none of it by themselves
    counted = UNBOUNDED if sizes.slots is None else slots
    plan = Deployment.of(**degrees, chunk=budget, max_sequences=counted, block=block, drafts=count)
    length = jnp.asarray(block * np.ceil(mean_tokens / block))
    small = None if drafts is None else drafts.model
    fixed = (drafts is not None, float(plan.attention_dp) > 1)
    given = (model, arch, small, hardware, plan, length)
    pass_, free, each, front = once(_priced, *given, fixed=fixed)
    tokens = float(np.floor(free / each * float(length) / block) * block)
    if tokens < block:
        short = f"{size(-free)} short of weights and activations" if free < 0 else "no cache left"
        raise refuse("--tp", degrees["tp"], f"more GPUs, or smaller weights: {short}")
    names = {"slots": slots, "budget": budget, "drafts": count, **_settings(own, sizes)}
    rules = own.rules(tokens, block, caching=sizes.caching, **names)
    return ReplayedInstance(engine, rules, pass_, float(front), tokens, drafts)


def _slots(slots: float, budget: float, drafts: int, *, asked: bool, beside: bool) -> float:
    """Sequences of a pass, no more than decode in it with their drafts.

    Raises:
        InputError: more of them were asked for.
    """
    room = float(budget // (1 + drafts))
    if slots <= room or not beside:
        return slots
    if asked:
        allowed = f"at most --max-num-batched-tokens, {budget:g}: each decodes a token"
        if drafts:
            allowed = f"at most {room:g}: each decodes {1 + drafts} of {budget:g} tokens"
        raise refuse("--max-num-seqs", slots, allowed)
    return room


def _settings(engine: ServingEngine, sizes: Sizes) -> dict[str, bool]:
    """Whether prompts are cut and passes overlap, where that is given.

    Raises:
        InputError: what the rules of this engine do not have.
    """
    asked = (("--enable-chunked-prefill", "chunked"), ("--async-scheduling", "overlap"))
    given = {}
    for option, name in asked:
        value = getattr(sizes, name)
        if value is not None and name not in engine.settings:
            others = [one.name for one in ENGINES.values() if name in one.settings]
            word = "yes" if value else "no"
            raise refuse(option, word, f"with the rules of {' or '.join(others)}")
        if value is not None:
            given[name] = value
    return given


def _priced(
    drafting: bool,
    ranks: bool,
    model: Serving,
    arch: Architecture,
    draft: Architecture | None,
    hardware: Hardware,
    plan: Deployment,
    length: Array,
) -> tuple[PassLaw | RankedLaw, Array, Array, Array]:
    """What passes cost; bytes of a chip left for the cache and of a request; seconds in front.

    ``ranks``: whether attention ranks share experts.
    """
    c = model.context(shape(arch), hardware, plan, None if draft is None else shape(draft))
    chip = footprint.account(*memory.account_inputs(c, memory.server(c, memory.arriving(c))))
    law = (ranked_law if ranks else PassLaw.of_context)(c, drafting=drafting)
    return law, chip.available, chip.at_its_end(length), model.front_time(plan)


def with_host(
    server: ReplayedInstance, gib: float | None, asked: Given, tp: float, mean_tokens: float
) -> ReplayedInstance:
    """The server with ``gib`` GiB of host memory for blocks that leave its cache.

    Each of ``tp`` GPUs has a link of its own and its part of a block, where KV heads and latent
    caches may be copies. Blocks are those of a request of ``mean_tokens`` tokens.

    Raises:
        InputError: rules that keep no prompts, or a system without a link to its host.
    """
    if gib is None:
        return server
    if not has_prefix_cache(server.rules) or not ENGINES[server.engine].host_memory:
        allowed = "with vllm's or trtllm's rules: host memory of sglang's tree is not replayed"
        raise refuse("--kv-offloading-size", gib, allowed)
    link = float(asked.hardware.host.link_bandwidth)
    if not link > 0.0:
        how = "--set hardware.host.link_bandwidth=55e9 gives it one, in bytes/s"
        name = asked.system.name
        raise refuse(
            "--kv-offloading-size", gib, f"a system with a link to its host, not {name}: {how}"
        )
    block = float(server.rules.block)
    tokens = jnp.asarray(max(mean_tokens, block))
    layers = server.pass_.context.shape.layers
    row, ranks = layers.attention, jnp.asarray(tp)
    each = jnp.sum(
        layers.count * (row.cache_bytes(tokens, ranks) + row.state_bytes(ranks)), axis=-1
    )
    held = each / tokens * block
    rules = server.rules.replace(
        host=jnp.floor(gib / tp * 2.0**30 / held), fetch=tiers.seconds(held, link)
    )
    return server._replace(rules=rules)
