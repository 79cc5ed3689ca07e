"""TTFT, TPOT and throughput of a server with requests in flight, or arriving at a given rate.

A fixed number in flight is a closed loop in the mean: work is conserved, so that a request's time
is its own decode steps, the prefills of those it shares the server with, and waits. Arrivals are
the passes of the serving model, put through the laws of a server that batches continuously.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Limit
from infer_jax.estimators.serving import memory, pass_terms
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.passes import Passes, pass_yield, passes, step_law
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
from infer_jax.physics.scheduling import interference
from infer_jax.physics.scheduling.admission import balance_wait, running
from infer_jax.specs import UNBOUNDED, Arrivals
from infer_jax.typed_jax import jit, trees


def admission_passes(ctx: Context) -> Array:
    """Passes between the end of the running one and the first that can feed an arrival.

    Those that an engine has queued, and half of those between two polls for arrivals.
    """
    return ctx.engine.ahead + (ctx.plan.polling - 1.0) / 2.0


def balance_steps(ctx: Context, arrivals: Array, busy: Array) -> Array:
    """Decode steps that a prompt waits for prompts of other attention groups (``balance_wait``).

    ``arrivals``: of a group, a step, which is a pass of each stage of a pipeline; the wait is
    counted in passes. ``busy``: chance that a group decodes. Where one does not, no prompt waits.
    """
    groups, stages = ctx.plan.attention_dp, ctx.plan.pp
    wait = balance_wait(arrivals / stages, groups, ctx.plan.balance_timeout)
    return busy**groups * wait / stages


def fetch(ctx: Context, work: ServingWorkload, cached: Array, prefill: Array) -> Array:
    """Seconds that fetching ``cached`` bytes from host and disk adds to ``prefill``, by layers."""
    host = ctx.hardware.host
    near = tiers.seconds(cached * work.from_host, host.link_bandwidth)
    far = tiers.seconds(cached * work.from_disk, host.disk_read)
    layers = jnp.sum(ctx.shape.layers.count, axis=-1)
    return pipelining.exposed_time(near + far, prefill, layers)


class Loop(NamedTuple):
    """A closed loop: requests that run, in an instance and a group, and how they share passes.

    ``passes``: its passes; ``together``: mean prompts in a pass that has any; ``step``: seconds of
    a pass that only decodes; ``admission``: seconds from an arrival to the first pass that can feed
    it; ``ends``: seconds that start and end of a benchmark add to it.
    """

    lengths: RequestTokens
    capacity: memory.Capacity
    running: Array
    group: Array
    prompt: interference.OtherPrompts
    passes: Passes
    together: Array
    step: Array
    admission: Array
    ends: Array


def closed_loop(ctx: Context, work: ServingWorkload) -> ServerEstimate:
    """TTFT, TPOT and throughput with ``work.batch`` requests in flight in an instance.

    Each of b running requests shares passes with the prompt of every other one once: with m of
    them before its first token, for which it waits w decode passes of t seconds (``interference``),
    with the rest after it. TTFT_0 = P + w t + m g and the time before its first pass, TPOT = t +
    (b - 1 - m) g / (O - 1). P: seconds of its prompt alone; g: what another's prompt adds to
    passes; O: its output tokens. A pass has no more prompts than its token budget allows.
    """
    lengths = isl, osl, prefix, fresh = RequestTokens.of(ctx, work)
    plan, engine, equal = ctx.plan, ctx.engine, work.fixed > 0.5
    prefill_first, fed, tokens = engine.prefill_first > 0.5, 1.0 + plan.drafts, pass_yield(ctx)
    # above 0, so that TPOT is defined for an output of one token
    later = jnp.maximum(osl - 1.0, 1e-3)
    flight = work.batch / plan.attention_dp
    capacity = memory.capacity(ctx, isl, osl, work.common * prefix, flight)
    run = running(
        jnp.maximum(work.batch, 1e-3), capacity.places, ctx.coefficients.admission_sharpness
    )
    group = jnp.maximum(run / plan.attention_dp, 1.0)

    usual = jnp.maximum(engine.budget, engine.whole * (fresh + group * fed))
    budget = jnp.where(plan.chunk < UNBOUNDED, plan.chunk, usual)
    load = group, fresh, later / tokens, budget
    first = interference.before_decodes(*load, equal)
    prompt = trees.where(prefill_first, first, interference.beside_decodes(*load, fed, equal))
    together = jnp.minimum(1.0 + prompt.prompts_met, prompt.prompt_tokens / fresh)
    # lengths that are equal end together, and so do the waits for each other's prompts
    period, busy = later / tokens, -jnp.expm1(-run / plan.attention_dp)
    balanced = jnp.where(equal, 0.0, balance_steps(ctx, group / period, busy))
    decoding = jnp.maximum(group * prompt.decoding * period / (period + balanced), 1.0)
    cost = passes(ctx, decoding, isl + osl / 2.0, fresh, prefix, prompt.chunks, together * fresh)
    decode_time, joining = cost.decode.time, cost.joining.time
    step = decode_time * tokens

    # equal requests before any decode arrive all at once, so that nobody waits for a decode pass
    waits = jnp.where(equal & prefill_first, 0.0, 1.0)
    # of a pipeline, passes of one stage each
    phase, ahead = (waits * x / plan.pp for x in (engine.phase, admission_passes(ctx)))
    share = jnp.minimum(prompt.decoding * (group - 1.0) * tokens / (later * together), 1.0)
    until, in_prompts = interference.admission_wait(
        group, share, step, together * joining, phase, ahead, equal
    )
    # seconds of others' prompts that a request meets: before its first token, and after it
    prompts = jnp.maximum(group - 1.0 - prompt.prompts_met, 0.0) * joining
    early = jnp.minimum(in_prompts, prompts)
    full = jnp.where(prefill_first, jnp.inf, joining * prompt.prompt_tokens / (fresh * tokens))
    others = jnp.minimum((prompts - early) / later, full)
    decode = {**cost.decode.terms, "other prefills": others}
    decode = {name: x * ctx.coefficients.decode_factor for name, x in decode.items()}
    tpot = ctx.coefficients.decode_factor * (decode_time + others)

    mixes = jnp.where(prefill_first, 0.0, 1.0)
    waves = work.waves * jnp.maximum(work.batch / capacity.places, 1.0)
    feeding = group * fresh / prompt.prompt_tokens * mixes
    cycle = period + prompt.chunks * mixes
    ends = interference.passes_beyond(waves, cycle, feeding, equal) * cost.fixed
    admission = until - (in_prompts - early) + balanced * tpot * tokens
    loop = Loop(lengths, capacity, run, group, prompt, cost, together, step, admission, ends)
    return loop_estimate(ctx, work, loop, decode, tpot)


def loop_estimate(
    ctx: Context, work: ServingWorkload, loop: Loop, decode: pass_terms.Terms, tpot: Array
) -> ServerEstimate:
    """The estimate of a closed loop whose time per token is known.

    TTFT = TTFT_0 + (C / C_e - 1)(TTFT_0 + (O - 1) TPOT) for C requests in flight, of which C_e run:
    by Little's law the others wait. All are means; the median is without the wave at the start of
    a benchmark (``interference.median_of_wave``), for what is left is nearly the same for all.
    """
    first = closed_ttft_terms(ctx, loop, work)
    wave = first["first wave"] * work.batch / loop.running
    unqueued, waits = total(first.values()), work.batch / loop.running - 1.0
    first["queue"] = waits * (unqueued + (loop.lengths.osl - 1.0) * tpot)
    ttft = unqueued + first["queue"]
    requests = ServerLoad(
        batch=work.batch,
        in_memory=work.batch,
        running=loop.running,
        group=loop.group,
        capacity=loop.capacity,
        cached=memory.cache_bytes(ctx, loop.lengths.prefix),
        ttft=ttft,
        ttft_median=ttft - wave + interference.median_of_wave(wave, work.waves),
        tpot=tpot,
        # a benchmark's first requests wait for each other, but its length counts both ends
        ends=jnp.where(work.waves < UNBOUNDED, loop.ends / work.waves - wave, 0.0),
        limits={"requests": Limit(need=work.batch, capacity=loop.capacity.places)},
    )
    return server_estimate(ctx, work, loop.lengths, loop.passes, requests, first, decode)


def closed_ttft_terms(ctx: Context, loop: Loop, work: ServingWorkload) -> pass_terms.Terms:
    """Seconds until the first token by term, without the wait for memory."""
    prompt, joining = loop.prompt, loop.passes.joining.time
    own = loop.passes.alone.time
    cached = memory.cache_bytes(ctx, loop.lengths.prefix)
    first, equal = ctx.engine.prefill_first > 0.5, work.fixed > 0.5
    decoding = jnp.where(first, 0.0, prompt.chunks * loop.step)
    # its own prompt goes through every stage, that of another one delays by its time in one
    longer = jnp.maximum(ctx.plan.pp * joining + decoding - own, 0.0)
    wave = interference.first_wave(loop.group, joining + decoding / loop.together, work.waves)
    terms = {
        **loop.passes.alone.terms,
        "fetch": fetch(ctx, work, cached, own),
        **ctx.coefficients.arrival_terms(ctx.engine, ctx.plan),
        "admission": loop.admission,
        "beside decodes": jnp.where(first, 0.0, jnp.minimum(loop.group - 1.0, 1.0) * longer),
        "other prefills": prompt.prompts_met * joining + prompt.waiting_passes * loop.step,
        "first wave": jnp.where((first & equal) | (work.waves >= UNBOUNDED), 0.0, wave),
    }
    return {name: x * ctx.coefficients.first_factor for name, x in terms.items()}


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
        slots=jnp.minimum(memory.slots(ctx), ctx.plan.pp * budget / fed),
        cache=jnp.maximum(capacity.held, 1.0 / ctx.plan.attention_dp) * tokens,
        reserved=ctx.engine.held_output,
        prompts_first=ctx.engine.prefill_first,
        phase=ctx.engine.phase / ctx.plan.pp,
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
    together = jnp.minimum(prompts, scheduling.prompt_room(group.server, decoding))
    tokens = lengths.fresh, lengths.prefix, None, together
    cost = passes(ctx, decoding, group.context, *tokens)
    cached = memory.cache_bytes(ctx, lengths.prefix)
    first = open_ttft_terms(ctx, work, loaded, cost, cached)
    ttft = total(first.values())
    later = ttft - loaded.ttft
    names = (f"p{100 * level:g}" for level in scheduling.LEVELS)
    percentiles = {n: t + later for n, t in zip(names, loaded.ttft_at, strict=True)}
    undisturbed = cost.decode.scaled(ctx.coefficients.decode_factor)
    disturbed = jnp.maximum(loaded.tpot - undisturbed.time, 0.0)
    decode = {**undisturbed.terms, "other prefills": disturbed}
    tpot = total(decode.values())
    load = ServerLoad(
        batch=loaded.rate * groups * (ttft + (lengths.osl - 1.0) * tpot),
        in_memory=loaded.running * groups,
        running=loaded.running * groups,
        group=loaded.decoding / decoding_chance(loaded),  # of the passes that have any
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


def decoding_chance(loaded: scheduling.MeanService) -> Array:
    """Chance that anybody decodes, requests in flight taken as Poisson."""
    return -jnp.expm1(-loaded.decoding)


def open_ttft_terms(
    ctx: Context,
    work: ServingWorkload,
    loaded: scheduling.MeanService,
    cost: Passes,
    cached: Array,
) -> pass_terms.Terms:
    """Seconds until the first token by term; ``cached``: bytes on a chip of the cached prefix."""
    step, busy = loaded.following, decoding_chance(loaded)
    # a busy server has queued passes before it sees an arrival, of a pipeline of one stage each
    admission = busy * admission_passes(ctx) / ctx.plan.pp
    admission = admission + balance_steps(ctx, loaded.rate * step, busy)
    # the laws take steps that decode; a prompt's own has a factor of its own
    seconds = loaded.own / ctx.coefficients.decode_factor
    alone = cost.alone.scaled(jnp.minimum(seconds / cost.alone.time, 1.0))
    own = {
        **alone.terms,
        "beside decodes": busy * (seconds - alone.time),
        "fetch": fetch(ctx, work, cached, cost.alone.time),
        **ctx.coefficients.arrival_terms(ctx.engine, ctx.plan),
        "admission": admission * step,
    }
    own = {name: x * ctx.coefficients.first_factor for name, x in own.items()}
    own["admission"] = own["admission"] + loaded.step_wait
    return {**own, "other prefills": loaded.queue_wait, "queue": loaded.slot_wait}
