"""TTFT with percentiles, TPOT and throughput of a server at a given arrival rate.

The passes of the serving model, put through the laws of a server that batches continuously.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Limit
from infer_jax.estimators.serving import closed_loop, memory
from infer_jax.estimators.serving.closed_loop import RequestTokens, Served, ServerEstimate
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.passes import pass_yield, passes, stepping
from infer_jax.estimators.serving.workload import ServingWorkload
from infer_jax.physics import scheduling
from infer_jax.physics.decoder import total
from infer_jax.physics.scheduling import MeanService
from infer_jax.specs import UNBOUNDED, Arrivals
from infer_jax.typed_jax import jit


class AttentionGroup(NamedTuple):
    """One attention group as the laws of batching read it, and its memory."""

    step: scheduling.Step
    kinds: scheduling.Kinds
    server: scheduling.ServerLimits
    context: Array
    capacity: memory.Capacity


def group_of(c: Context, work: ServingWorkload, lengths: RequestTokens) -> AttentionGroup:
    """One of the equal attention groups of an instance, as a server that batches."""
    means = {"isl": lengths.isl, "osl": lengths.osl, "prefix": lengths.prefix}
    kinds = scheduling.kinds_of(work.replace(**means))
    context = scheduling.mean_context(kinds)
    tokens = lengths.isl + c.engine.held_output * lengths.osl
    isl, osl, prefix, _ = lengths
    capacity = memory.capacity(c, isl, osl, work.common * prefix)
    budget = jnp.where(c.plan.chunk < UNBOUNDED, c.plan.chunk, c.engine.budget)
    server = scheduling.ServerLimits(
        budget=budget,
        # a pass has room for a token of each request that decodes
        slots=jnp.minimum(memory.slots(c), budget),
        cache=jnp.maximum(capacity.held, 1.0 / c.plan.attention_dp) * tokens,
        reserved=c.engine.held_output,
        prompts_first=c.engine.prefill_first,
        phase=c.engine.phase,
    )
    law = stepping(c, context)

    @jit()  # traced and lowered once, for many laws ask it
    def step(decoding: Array, prompts: Array, new: Array, cached: Array) -> Array:
        return c.model.decode_factor * law(decoding, prompts, new, cached)

    return AttentionGroup(step, kinds, server, context, capacity)


def service(c: Context, work: ServingWorkload) -> MeanService:
    """Means and percentiles of one attention group, in a closed or an open loop.

    Times of passes alone, without the network and tokeniser before the first of them.
    """
    return _service(group_of(c, work, RequestTokens.of(c, work)), c, work)


def _service(group: AttentionGroup, c: Context, work: ServingWorkload) -> MeanService:
    inputs = (group.step, group.kinds, group.server)
    if work.arrivals is None:
        return scheduling.closed_loop(*inputs, work.batch / c.plan.attention_dp)
    rate = work.arrivals.rate / c.plan.attention_dp
    return scheduling.open_loop(*inputs, rate, work.arrivals.variability)


def open_loop(c: Context, work: ServingWorkload, arrivals: Arrivals) -> ServerEstimate:
    """TTFT with its percentiles, TPOT and throughput when requests arrive by themselves.

    Beyond capacity the limit on arrivals is broken, throughput is the capacity, and the times,
    which would grow without end, stay finite.
    """
    lengths, groups = RequestTokens.of(c, work), c.plan.attention_dp
    group = group_of(c, work, lengths)
    loaded = _service(group, c, work)
    decoding = jnp.maximum(loaded.decoding, 1.0)  # a decoding request is one itself
    # a prompt shares its pass with those that came in the one before it
    prompts = lengths.fresh * (1.0 + loaded.rate * loaded.following)
    together = jnp.minimum(prompts, jnp.maximum(group.server.budget - decoding, 1.0))
    tokens = lengths.fresh, lengths.prefix, None, together
    cost = passes(c, decoding, group.context, *tokens)
    # a busy server has queued passes before it sees an arrival; requests in flight taken as Poisson
    busy = -jnp.expm1(-loaded.decoding)
    turn = loaded.following * pass_yield(c)
    turns = busy * (c.engine.ahead + (c.plan.polling - 1.0) / 2.0)
    turns = turns + closed_loop.balance_passes(c, loaded.rate * turn, busy)
    before = {"front": c.engine.front, "admission": turns * turn}
    cached = memory.cache_bytes(c, lengths.prefix)
    fetched = closed_loop.fetch(c, work, cached, cost.alone.time)
    # the laws take steps that decode; a prompt's own has a factor of its own
    own = {"prompt": loaded.own / c.model.decode_factor, "fetch": fetched, **before}
    first = {
        **{name: x * c.model.first_factor for name, x in own.items()},
        "other prefills": loaded.queue_wait,
        "queue": loaded.slot_wait,
    }
    ttft = total(first.values())
    later = ttft - loaded.ttft
    names = (f"p{100 * level:g}" for level in scheduling.LEVELS)
    percentiles = {n: t + later for n, t in zip(names, loaded.ttft_at, strict=True)}
    alone = cost.decode.scaled(c.model.decode_factor)
    disturbed = jnp.maximum(loaded.tpot - alone.time, 0.0)
    decode = {**alone.terms, "other prefills": disturbed}
    tpot = total(decode.values())
    served = Served(
        batch=loaded.rate * groups * (ttft + (lengths.osl - 1.0) * tpot),
        in_memory=loaded.running * groups,
        running=loaded.running * groups,
        group=loaded.decoding / busy,  # of the passes that have any
        capacity=group.capacity,
        cached=cached,
        ttft=ttft,
        ttft_median=percentiles["p50"],
        tpot=tpot,
        ends=jnp.zeros_like(tpot),
        limits={"arrivals": Limit(need=arrivals.rate, capacity=loaded.capacity * groups)},
    )
    answer = closed_loop.server_estimate(c, work, lengths, cost, served, first, decode)
    return answer.replace(percentiles=percentiles)
