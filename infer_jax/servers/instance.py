"""The server of a replay: the rules of its engine, what its passes cost, and its host memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from infer_jax import footprint
from infer_jax.compiling import once
from infer_jax.engines import ENGINES, ServingEngine
from infer_jax.estimators.serving import Deployment, Serving, memory, shape
from infer_jax.estimators.serving.price import (
    PassBatch,
    PassLaw,
    RankedLaw,
    pass_time,
    price,
    ranked_law,
)
from infer_jax.estimators.speculative import Drafting
from infer_jax.physics.cost import power_at
from infer_jax.physics.memory import tiers
from infer_jax.replays import Log, Rules, has_prefix_cache
from infer_jax.replays.runs import Series
from infer_jax.results import option
from infer_jax.results.numbers import size
from infer_jax.results.problems import refuse
from infer_jax.specs import UNBOUNDED, Architecture, Hardware


@dataclass(frozen=True)
class Sizes:
    """What an engine is started with: None is its own default.

    ``chunked``: prompts may be fed in parts; ``overlap``: a pass is put together while the one
    before it runs; ``host``: GiB of host memory for blocks that leave the cache;
    ``caching``: prompts stay in the cache.
    """

    slots: float | None = None
    budget: float | None = None
    block: float | None = None
    utilization: float | None = None
    chunked: bool | None = None
    overlap: bool | None = None
    host: float | None = None
    caching: bool = False


@dataclass(frozen=True)
class ReplayedInstance:
    """One instance of a plan: what ``replays`` needs to serve it.

    ``rules`` and ``step`` make a ``replays.server.Server`` of it; ``pass_`` has a table of pass
    times; ``front``: seconds before a request reaches the scheduler.
    """

    engine: ServingEngine
    rules: Rules
    pass_: PassLaw | RankedLaw
    front: float
    tokens: float  # of the cache
    drafts: Drafting | None = None

    @property
    def step(self) -> Partial:
        """The seconds of a pass."""
        return Partial(pass_time, self.pass_)

    @property
    def words(self) -> str:
        """What limits a pass, in words."""
        slots, budget, block, host = (
            float(getattr(self.rules, name)) for name in ("slots", "budget", "block", "host")
        )
        each = "a token each" if block == 1 else f"{block:g} tokens each"
        away = f", {host:,.0f} more in host memory" if host else ""
        drafts = "" if self.drafts is None else f"; {self.drafts.words}"
        return (
            f"at most {slots:,.0f} sequences and {budget:,.0f} tokens in a pass, a cache of "
            f"{self.tokens / block:,.0f} blocks of {each}{away}{drafts}"
        )

    def power(self, log: Log) -> np.ndarray:
        """Watts of a chip in each entry of the path; nothing where its power is not known."""
        if not float(self.pass_.context.hardware.power) > 0.0:
            return np.zeros(0)
        path = log.path
        kind = path.time.dtype
        grows = path.decoding if path.grows is None else path.grows
        columns = (path.decoding, path.context, path.fed, path.pairs, path.count, grows)
        if isinstance(self.pass_, RankedLaw) or float(self.rules.host):
            # passes wait for other ranks, or for blocks of the host
            seconds = np.diff(np.asarray(path.time), prepend=0.0)
            columns = *columns, seconds / np.maximum(np.asarray(path.count), 1)
        numbers = (jnp.asarray(x, kind) for x in columns)
        return np.asarray(once(pass_watts, self.pass_, *numbers, points=path.time.shape[0]))

    def series(self, log: Log) -> Series:
        """The instance over time."""
        path, entries = log.path, slice(int(log.entries))
        queue, running, blocks, power = (
            np.asarray(x)[entries] for x in (log.queue, path.running, path.blocks, self.power(log))
        )
        kept = np.zeros(0) if path.kept is None else np.asarray(path.kept)[entries]
        cache = float(self.rules.blocks)
        time = np.asarray(path.time)[entries]
        return Series(time, queue, running, blocks / cache, power, kept / cache)


def pass_watts(law: PassLaw | RankedLaw, *path: Array) -> Array:
    """Watts of a chip by the shares of each pass that it reads and computes; at rest in a wait."""
    own = law.own if isinstance(law, RankedLaw) else law
    exact = PassLaw.of_context(own.context, drafting=own.drafting, table=False)

    def entry_watts(*entry: Array) -> Array:
        decoding, context, fed, pairs, count, grows, *seconds = entry
        middle = context + grows * (count - 1.0) / 2.0
        cost = price(exact, PassBatch(decoding, middle, fed, pairs))
        rate = jnp.where(count > 0, 1.0 / (seconds[0] if seconds else cost.time), 0.0)
        ctx = exact.context
        return power_at(ctx.hardware.power, cost, rate, ctx.coefficients.draw)

    return jax.vmap(entry_watts)(*path)


def replayed_instance(
    model: Serving,
    arch: Architecture,
    hardware: Hardware,
    degrees: Mapping[str, float],
    sizes: Sizes,
    mean_tokens: float,
    drafts: Drafting | None = None,
) -> ReplayedInstance:
    """One instance of the model's engine, for requests of ``mean_tokens`` tokens on average.

    ``degrees``: how it is cut over chips in one stage: tp, ep, and attention_dp, ranks of which
    each is a server of its own but for the experts.

    Raises:
        InputError: more sequences than tokens in a pass, or no room for a cache.
    """
    count = 0 if drafts is None else drafts.count
    engine = ENGINES[model.engine_name]
    rules = engine.rules(1.0, 1.0, caching=False, drafts=count)
    budget = float(rules.budget) if sizes.budget is None else sizes.budget
    block = engine.block if sizes.block is None else sizes.block
    slots = float(rules.slots) if sizes.slots is None else sizes.slots
    if rules.mixed:
        most = float(budget // (1 + count))  # which decode with their drafts
        if slots > most and sizes.slots is not None:
            allowed = (
                f"at most {option('max_num_batched_tokens')}, {budget:g}: each decodes a token"
            )
            if count:
                allowed = f"at most {most:g}: each decodes {1 + count} of {budget:g} tokens"
            raise refuse("max_num_seqs", slots, allowed)
        slots = min(slots, most)
    if drafts is not None:
        model = model.with_(acceptance=drafts.acceptance)
    if sizes.utilization is not None:
        model = model.with_(usable_memory=sizes.utilization)
    # memory is vLLM's account: other engines' many slots take none of it by themselves
    counted = UNBOUNDED if sizes.slots is None else slots
    plan = Deployment.of(**degrees, chunk=budget, max_sequences=counted, block=block, drafts=count)
    length = jnp.asarray(block * np.ceil(mean_tokens / block))
    small = None if drafts is None else drafts.draft
    fixed = (drafts is not None, float(plan.attention_dp) > 1)
    inputs = (model, arch, small, hardware, plan, length)
    pass_, free, request, front = once(_priced, *inputs, fixed=fixed)
    tokens = float(np.floor(free / request * float(length) / block) * block)
    if tokens < block:
        short = f"{size(-free)} short of weights and activations" if free < 0 else "no cache left"
        raise refuse("tp", degrees["tp"], f"more GPUs, or smaller weights: {short}")
    names = {"slots": slots, "budget": budget, "drafts": count, **_settings(engine, sizes)}
    rules = engine.rules(tokens, block, caching=sizes.caching, **names)
    return ReplayedInstance(engine, rules, pass_, float(front), tokens, drafts)


def _settings(engine: ServingEngine, sizes: Sizes) -> dict[str, bool]:
    """Whether prompts are cut and passes overlap, where that is given.

    Raises:
        InputError: what the rules of this engine do not have.
    """
    options = (("enable_chunked_prefill", "chunked"), ("async_scheduling", "overlap"))
    settings = {}
    for option_name, name in options:
        value = getattr(sizes, name)
        if value is None:
            continue
        if name not in engine.settings:
            others = " or ".join(x.name for x in ENGINES.values() if name in x.settings)
            raise refuse(option_name, "yes" if value else "no", f"with the rules of {others}")
        settings[name] = value
    return settings


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
    ctx = model.context(shape(arch), hardware, plan, None if draft is None else shape(draft))
    chip = footprint.account(*memory.account_inputs(ctx, memory.server(ctx, memory.arriving(ctx))))
    law = (ranked_law if ranks else PassLaw.of_context)(ctx, drafting=drafting)
    # decoding frees what has left a window: only prompts hold a pass of tokens there, a pass long
    held = chip.cache.at_its_end(length, jnp.ones_like(length))
    return law, chip.available, held, model.front_time(plan)


def with_host(
    server: ReplayedInstance, gib: float | None, system: str, tp: float, mean_tokens: float
) -> ReplayedInstance:
    """The server with ``gib`` GiB of host memory for blocks that leave its cache.

    Each of ``tp`` GPUs has a link of its own and its part of a block, where KV heads and latent
    caches may be copies. Blocks are those of a request of ``mean_tokens`` tokens; ``system``: its
    name.

    Raises:
        InputError: rules that keep no prompts, or a system without a link to its host.
    """
    if gib is None:
        return server
    context = server.pass_.context
    link = float(context.hardware.host.link_bandwidth)
    allowed = ""
    if not has_prefix_cache(server.rules) or not server.engine.host_memory:
        allowed = "with vllm's or trtllm's rules: host memory of sglang's tree is not replayed"
    elif not link > 0.0:
        change = f"{option('set')} hardware.host.link_bandwidth=55e9 gives it one, in bytes/s"
        allowed = f"a system with a link to its host, not {system}: {change}"
    if allowed:
        raise refuse("kv_offloading_size", gib, allowed)
    block = float(server.rules.block)
    tokens, ranks = jnp.asarray(max(mean_tokens, block)), jnp.asarray(tp)
    layers = context.shape.layers
    row = layers.attention
    layer = layers.count * (row.cache_bytes(tokens, ranks) + row.state_bytes(ranks))
    held = jnp.sum(layer, axis=-1) / tokens * block
    host, fetch = jnp.floor(gib / tp * 2.0**30 / held), tiers.seconds(held, link)
    return replace(server, rules=server.rules.replace(host=host, fetch=fetch))
