"""TTFT with percentiles, TPOT and throughput of a server at a given arrival rate.

The passes of the serving model, put through the laws of a server that batches continuously.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Limit
from infer_jax.estimators.serving import memory
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.passes import pass_yield, passes, step_law
from infer_jax.estimators.serving.plan import ServingWorkload
from infer_jax.estimators.serving.server_estimate import (
    RequestTokens,
    ServerEstimate,
    ServerLoad,
    server_estimate,
)
from infer_jax.physics import pipelining, scheduling
from infer_jax.physics.decoder import total
from infer_jax.physics.memory import tiers
from infer_jax.physics.scheduling.admission import balance_wait
from infer_jax.specs import UNBOUNDED, Arrivals
from infer_jax.typed_jax import jit


def admission_passes(ctx: Context) -> Array:
    """Passes between the end of the running one and the first that can feed an arrival.

    Those that an engine has queued, and half of those between two looks at its arrivals.
    """
    return ctx.engine.ahead + (ctx.plan.polling - 1.0) / 2.0


def balance_passes(ctx: Context, arrivals: Array, busy: Array) -> Array:
    """Passes that a prompt waits for prompts of other attention groups (``balance_wait``).

    ``arrivals``: of a group, a pass; ``busy``: chance that a group decodes. Where one does not, no
    prompt waits.
    """
    groups = ctx.plan.attention_dp
    return busy**groups * balance_wait(arrivals, groups, ctx.plan.balance_timeout)


def fetch(ctx: Context, work: ServingWorkload, cached: Array, prefill: Array) -> Array:
    """Seconds that fetching ``cached`` bytes from host and disk adds to ``prefill``, by layers."""
    host = ctx.hardware.host
    near = tiers.seconds(cached * work.from_host, host.link_bandwidth)
    far = tiers.seconds(cached * work.from_disk, host.disk_read)
    layers = jnp.sum(ctx.shape.layers.count, axis=-1)
    return pipelining.exposed_time(near + far, prefill, layers)


class AttentionGroup(NamedTuple):
    """One attention group as the laws of batching read it, and its memory."""

    step: scheduling.Step
    kinds: scheduling.Kinds
    server: scheduling.ServerLimits
    context: Array
    capacity: memory.Capacity


def group_of(ctx: Context, work: ServingWorkload, lengths: RequestTokens) -> AttentionGroup:
    """One of the equal attention groups of an instance, as a server that batches."""
    means = {"isl": lengths.isl, "osl": lengths.osl, "prefix": lengths.prefix}
    kinds = scheduling.kinds_of(work.replace(**means))._replace(gain=pass_yield(ctx))
    context = scheduling.mean_context(kinds)
    tokens = lengths.isl + ctx.engine.held_output * lengths.osl
    isl, osl, prefix, _ = lengths
    capacity = memory.capacity(ctx, isl, osl, work.common * prefix)
    budget = jnp.where(ctx.plan.chunk < UNBOUNDED, ctx.plan.chunk, ctx.engine.budget)
    fed = 1.0 + ctx.plan.drafts
    server = scheduling.ServerLimits(
        budget=budget,
        # a pass has room for the tokens of each request that decodes
        slots=jnp.minimum(memory.slots(ctx), budget / fed),
        cache=jnp.maximum(capacity.held, 1.0 / ctx.plan.attention_dp) * tokens,
        reserved=ctx.engine.held_output,
        prompts_first=ctx.engine.prefill_first,
        phase=ctx.engine.phase,
        fed=fed,
        stages=ctx.plan.pp,
    )
    law = step_law(ctx, context)

    @jit()  # traced and lowered once, for many laws ask it
    def step(decoding: Array, prompts: Array, new: Array, cached: Array) -> Array:
        return ctx.coefficients.decode_factor * law(decoding, prompts, new, cached)

    return AttentionGroup(step, kinds, server, context, capacity)


def open_loop(ctx: Context, work: ServingWorkload, arrivals: Arrivals) -> ServerEstimate:
    """TTFT with its percentiles, TPOT and throughput when requests arrive by themselves.

    Beyond capacity the limit on arrivals is broken, throughput is the capacity, and the times,
    which would grow without end, stay finite.
    """
    lengths, groups = RequestTokens.of(ctx, work), ctx.plan.attention_dp
    group = group_of(ctx, work, lengths)
    inputs = (group.step, group.kinds, group.server)
    loaded = scheduling.open_loop(*inputs, arrivals.rate / groups, arrivals.variability)
    decoding = jnp.maximum(loaded.decoding, 1.0)  # a decoding request is one itself
    # a prompt shares its pass with those that came in the one before it
    prompts = lengths.fresh * (1.0 + loaded.rate * loaded.following)
    fed = decoding * group.server.fed
    together = jnp.minimum(prompts, jnp.maximum(group.server.budget - fed, 1.0))
    tokens = lengths.fresh, lengths.prefix, None, together
    cost = passes(ctx, decoding, group.context, *tokens)
    # a busy server has queued passes before it sees an arrival; requests in flight taken as Poisson
    busy = -jnp.expm1(-loaded.decoding)
    waited = busy * admission_passes(ctx)
    waited = waited + balance_passes(ctx, loaded.rate * loaded.following, busy)
    cached = memory.cache_bytes(ctx, lengths.prefix)
    fetched = fetch(ctx, work, cached, cost.alone.time)
    # the laws take steps that decode; a prompt's own has a factor of its own
    own = {
        "prompt": loaded.own / ctx.coefficients.decode_factor,
        "fetch": fetched,
        **ctx.coefficients.arrival_terms(ctx.engine, ctx.plan),
        "admission": waited * loaded.following,
    }
    first = {
        **{name: x * ctx.coefficients.first_factor for name, x in own.items()},
        "other prefills": loaded.queue_wait,
        "queue": loaded.slot_wait,
    }
    first["admission"] = first["admission"] + loaded.step_wait
    ttft = total(first.values())
    later = ttft - loaded.ttft
    names = (f"p{100 * level:g}" for level in scheduling.LEVELS)
    percentiles = {n: t + later for n, t in zip(names, loaded.ttft_at, strict=True)}
    alone = cost.decode.scaled(ctx.coefficients.decode_factor)
    disturbed = jnp.maximum(loaded.tpot - alone.time, 0.0)
    decode = {**alone.terms, "other prefills": disturbed}
    tpot = total(decode.values())
    load = ServerLoad(
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
    answer = server_estimate(ctx, work, lengths, cost, load, first, decode)
    return answer.replace(percentiles=percentiles)
