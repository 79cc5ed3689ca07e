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


class Flight(NamedTuple):
    """Requests in flight of a closed loop.

    ``running``: those that run in an instance, b of them (``group``) in an attention group;
    ``later``: O - 1, output tokens after the first; ``period``: D, decode passes of a request.
    """

    lengths: RequestTokens
    capacity: memory.Capacity
    running: Array
    group: Array
    later: Array
    period: Array


class Loop(NamedTuple):
    """A closed loop: its requests, and how they share passes.

    ``passes``: its passes; ``together``: mean prompts in a pass that has any; ``step``: seconds of
    a pass that only decodes; ``admission``: seconds from an arrival to the first pass that can feed
    it; ``ends``: seconds that start and end of a benchmark add to it.
    """

    flight: Flight
    prompt: interference.OtherPrompts
    passes: Passes
    together: Array
    step: Array
    admission: Array
    ends: Array


def closed_loop(ctx: Context, work: ServingWorkload) -> ServerEstimate:
    """TTFT, TPOT and throughput with ``work.batch`` requests in flight in an instance.

        TTFT_0 = P + w t + m g + admission,   TPOT = t + (b - 1 - m) g / (O - 1)

    Each of b running requests shares passes with the prompt of every other one once: with m of
    them before its first token, for which it waits w decode passes of t seconds
    (``other_prompts``), with the rest after it (``loop_waits``). P: seconds of its prompt alone; g:
    what another's prompt adds to passes (``passes``); O: its output tokens. Others wait for memory
    (``loop_estimate``).
    """
    equal, flight = work.fixed > 0.5, flight_of(ctx, work)
    isl, osl, prefix, fresh = flight.lengths
    prompt = other_prompts(ctx, flight, equal)
    together = jnp.minimum(1.0 + prompt.prompts_met, prompt.prompt_tokens / fresh)
    # lengths that are equal end together, and so do the waits for each other's prompts
    busy = decoding_chance(flight.running / ctx.plan.attention_dp)
    balance = balance_steps(ctx, flight.group / flight.period, busy)
    balance = jnp.where(equal, 0.0, balance)
    decoding = flight.group * prompt.decoding * flight.period / (flight.period + balance)
    tokens = fresh, prefix, prompt.chunks, together * fresh
    cost = passes(ctx, jnp.maximum(decoding, 1.0), isl + osl / 2.0, *tokens)
    waits = loop_waits(ctx, flight, prompt, cost, together, equal)
    disturbed = cost.decode.time + waits.others
    loop = Loop(
        flight=flight,
        prompt=prompt,
        passes=cost,
        together=together,
        step=cost.decode.time * pass_yield(ctx),
        admission=waits.admission + balance * disturbed * pass_yield(ctx),
        ends=benchmark_ends(ctx, work, flight, prompt) * cost.fixed,
    )
    factor = ctx.coefficients.decode_factor
    decode = {**cost.decode.terms, "other prefills": waits.others}
    decode = {name: x * factor for name, x in decode.items()}
    return loop_estimate(ctx, work, loop, decode, factor * disturbed)


def flight_of(ctx: Context, work: ServingWorkload) -> Flight:
    """Requests that run of ``work.batch`` in flight, as many as memory has places for."""
    lengths = isl, osl, prefix, _ = RequestTokens.of(ctx, work)
    groups, sharpness = ctx.plan.attention_dp, ctx.coefficients.admission_sharpness
    capacity = memory.capacity(ctx, isl, osl, work.common * prefix, work.batch / groups)
    run = running(jnp.maximum(work.batch, 1e-3), capacity.places, sharpness)
    # above 0, so that TPOT is defined for an output of one token
    later = jnp.maximum(osl - 1.0, 1e-3)
    group = jnp.maximum(run / groups, 1.0)
    return Flight(lengths, capacity, run, group, later, later / pass_yield(ctx))


def other_prompts(ctx: Context, flight: Flight, equal: Array) -> interference.OtherPrompts:
    """Prompts of others that a request meets until its first token; ``equal``: all are alike.

    A pass has no more prompts than its token budget allows.
    """
    engine, fresh, fed = ctx.engine, flight.lengths.fresh, 1.0 + ctx.plan.drafts
    usual = jnp.maximum(engine.budget, engine.whole * (fresh + flight.group * fed))
    budget = jnp.where(ctx.plan.chunk < UNBOUNDED, ctx.plan.chunk, usual)
    load = flight.group, fresh, flight.period, budget
    first = interference.before_decodes(*load, equal)
    beside = interference.beside_decodes(*load, fed, equal)
    return trees.where(engine.prefill_first > 0.5, first, beside)


class LoopWaits(NamedTuple):
    """Seconds: ``admission``, of an arrival until the first pass that can feed it; ``others``, what
    the prompts of others add to each token after the first."""

    admission: Array
    others: Array


def loop_waits(
    ctx: Context,
    flight: Flight,
    prompt: interference.OtherPrompts,
    cost: Passes,
    together: Array,
    equal: Array,
) -> LoopWaits:
    """Waits of a request for the pass that runs when it arrives, and for prompts of b - 1 others.

    A pass that runs has prompts with a chance share = s (b - 1) / (D y), s the requests that decode
    in it and y the prompts of a pass (``interference.admission_wait``). Of g (b - 1 - m) seconds of
    others' prompts those of that pass come before the first token, the rest after it, in no more
    than every pass.
    """
    prefill_first, joining = ctx.engine.prefill_first > 0.5, cost.joining.time
    step = cost.decode.time * pass_yield(ctx)
    # equal requests before any decode arrive all at once, so that nobody waits for a decode pass
    waits = jnp.where(equal & prefill_first, 0.0, 1.0)
    # of a pipeline, passes of one stage each
    phase, ahead = (waits * x / ctx.plan.pp for x in (ctx.engine.phase, admission_passes(ctx)))
    share = prompt.decoding * (flight.group - 1.0) / (flight.period * together)
    until, in_prompts = interference.admission_wait(
        flight.group, jnp.minimum(share, 1.0), step, together * joining, phase, ahead, equal
    )
    prompts = jnp.maximum(flight.group - 1.0 - prompt.prompts_met, 0.0) * joining
    early = jnp.minimum(in_prompts, prompts)
    every_pass = joining * prompt.prompt_tokens / (flight.lengths.fresh * pass_yield(ctx))
    most = jnp.where(prefill_first, jnp.inf, every_pass)
    return LoopWaits(
        until - (in_prompts - early), jnp.minimum((prompts - early) / flight.later, most)
    )


def benchmark_ends(
    ctx: Context, work: ServingWorkload, flight: Flight, prompt: interference.OtherPrompts
) -> Array:
    """Passes that start and end of a benchmark add to those of a loop that runs on."""
    mixes = jnp.where(ctx.engine.prefill_first > 0.5, 0.0, 1.0)
    waves = work.waves * jnp.maximum(work.batch / flight.capacity.places, 1.0)
    feeding = flight.group * flight.lengths.fresh / prompt.prompt_tokens * mixes
    cycle = flight.period + prompt.chunks * mixes
    return interference.passes_beyond(waves, cycle, feeding, work.fixed > 0.5)


def loop_estimate(
    ctx: Context, work: ServingWorkload, loop: Loop, decode: pass_terms.Terms, tpot: Array
) -> ServerEstimate:
    """The estimate of a closed loop whose time per token is known.

    TTFT = TTFT_0 + (C / C_e - 1)(TTFT_0 + (O - 1) TPOT) for C requests in flight, of which C_e run:
    by Little's law the others wait. All are means; the median is without the wave at the start of
    a benchmark (``interference.median_of_wave``), for what is left is nearly the same for all.
    """
    first = closed_ttft_terms(ctx, loop, work)
    wave = first["first wave"] * work.batch / loop.flight.running
    unqueued, waits = total(first.values()), work.batch / loop.flight.running - 1.0
    first["queue"] = waits * (unqueued + (loop.flight.lengths.osl - 1.0) * tpot)
    ttft = unqueued + first["queue"]
    requests = ServerLoad(
        batch=work.batch,
        in_memory=work.batch,
        running=loop.flight.running,
        group=loop.flight.group,
        capacity=loop.flight.capacity,
        cached=memory.cache_bytes(ctx, loop.flight.lengths.prefix),
        ttft=ttft,
        ttft_median=ttft - wave + interference.median_of_wave(wave, work.waves),
        tpot=tpot,
        # a benchmark's first requests wait for each other, but its length counts both ends
        ends=jnp.where(work.waves < UNBOUNDED, loop.ends / work.waves - wave, 0.0),
        limits={"requests": Limit(need=work.batch, capacity=loop.flight.capacity.places)},
    )
    return server_estimate(ctx, work, loop.flight.lengths, loop.passes, requests, first, decode)


def closed_ttft_terms(ctx: Context, loop: Loop, work: ServingWorkload) -> pass_terms.Terms:
    """Seconds until the first token by term, without the wait for memory."""
    prompt, joining = loop.prompt, loop.passes.joining.time
    own = loop.passes.alone.time
    cached = memory.cache_bytes(ctx, loop.flight.lengths.prefix)
    first, equal = ctx.engine.prefill_first > 0.5, work.fixed > 0.5
    decoding = jnp.where(first, 0.0, prompt.chunks * loop.step)
    # its own prompt goes through every stage, that of another one delays by its time in one
    longer = jnp.maximum(ctx.plan.pp * joining + decoding - own, 0.0)
    wave = interference.first_wave(
        loop.flight.group, joining + decoding / loop.together, work.waves
    )
    terms = {
        **loop.passes.alone.terms,
        "fetch": fetch(ctx, work, cached, own),
        **ctx.coefficients.arrival_terms(ctx.engine, ctx.plan),
        "admission": loop.admission,
        "beside decodes": jnp.where(first, 0.0, jnp.minimum(loop.flight.group - 1.0, 1.0) * longer),
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
        group=loaded.decoding / decoding_chance(loaded.decoding),  # of the passes that have any
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


def decoding_chance(requests: Array) -> Array:
    """Chance that any of a group's ``requests`` decodes, a Poisson number of that mean."""
    return -jnp.expm1(-requests)


def open_ttft_terms(
    ctx: Context,
    work: ServingWorkload,
    loaded: scheduling.MeanService,
    cost: Passes,
    cached: Array,
) -> pass_terms.Terms:
    """Seconds until the first token by term; ``cached``: bytes on a chip of the cached prefix.

    A request's own passes and those queued before it have ``first_factor``, as all terms of a
    closed loop have; waits that the laws of arrivals add are of steps with ``decode_factor``.
    """
    step, busy = loaded.following, decoding_chance(loaded.decoding)
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
