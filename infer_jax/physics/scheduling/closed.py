"""Closed loop: TTFT, TPOT and throughput with a fixed number of requests in flight.

The clock is the step: a cycle of a request is counted in steps (``cycle``), those that it waits
for the prompts before its own come from their queue (``backlog``), and seconds follow
(``cycle_times``). Requests of one length go in lockstep (``lockstep``, ``cohort``, ``convoy``).

Symbols: n requests run, d of them decode; t seconds of a decode step, R prompt tokens that it has
budget for; of a prompt I tokens, c chunks, S seconds of service; D decode steps of a request.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import square_root
from infer_jax.physics.root import crossing
from infer_jax.physics.scheduling.admission import SATURATING, admit, memory
from infer_jax.physics.scheduling.kinds import (
    LEVELS,
    DecodeStep,
    Kinds,
    MeanService,
    Server,
    ServerLimits,
    Step,
    decode_step,
    prefill_time,
    service_time,
)
from infer_jax.physics.scheduling.queueing import exponential_tail, percentiles, pole

# how fast lockstep dissolves as lengths vary; not derived: chosen by random servers as in the tests
DISSOLVING = 4.0
# the search for the prompts that arrive in a step starts e^-SEARCH_SPAN below the most there can be
SEARCH_SPAN = 18.0
# standard deviations that the prompts of a lasting cohort stay below a step's budget; chosen so
COHORT_MARGIN = 3.5


def closed_loop(
    step: Step,
    kinds: Kinds,
    server: ServerLimits,
    concurrency: Array,
    together: Array | None = None,
) -> MeanService:
    """Rates (1/s) and times (s) with ``concurrency`` requests in flight at all times.

    By Little's law X = n / cycle, and who waits for a slot does so for waiting / X seconds.
    ``together``: the share of requests in lockstep, by ``lockstep`` if None.
    """
    batching, cache = Server(step, kinds, server), memory(kinds, server)
    limit = jnp.minimum(server.slots, cache.limit)
    run, waiting, varied = admit(concurrency, server, cache)
    c = cycle(batching, run, lockstep(kinds) if together is None else together)
    times, rate = cycle_times(batching, c), run / c.time
    slot_wait = waiting / rate
    prefill = kinds.mean(times.prefill)
    ttft = slot_wait + times.wait + prefill
    # waits vary with the prompts ahead and with how many requests wait, and for how long
    per_token = times.full_step / c.decode.prompt_budget
    variance = per_token**2 * c.backlog.variance + (varied + waiting) / rate**2
    tail = exponential_tail(slot_wait + times.wait, variance)
    decodes = kinds.mean(kinds.decode_steps)
    latency = ttft + times.step_time * decodes
    return MeanService(
        rate=rate,
        capacity=rate * limit / run,
        running=run,
        decoding=c.per_step * decodes,
        waiting=waiting,
        limit=limit,
        ttft=ttft,
        ttft_at=percentiles(LEVELS, times.prefill, kinds.weight, tail),
        slot_wait=slot_wait,
        step_wait=jnp.zeros_like(times.wait),
        queue_wait=times.wait,
        own=prefill,
        tpot=times.step_time / kinds.gain,
        tpot_with_first=latency / kinds.mean(kinds.output),
        following=times.step_time,
        latency=latency,
    )


def saturated_rate(server: Server) -> Array:
    """Requests/s of a server that always has requests waiting."""
    limits = server.limits
    run = admit(jnp.asarray(SATURATING), limits, memory(server.kinds, limits)).run
    return run / cycle(server, run, lockstep(server.kinds)).time


class Cycle(NamedTuple):
    """Means of a closed loop in which all requests run."""

    decode: DecodeStep
    backlog: "Backlog"
    per_step: Array  # a: prompts that come at the end of every step
    service: Array  # S: seconds that a prompt adds to its steps, by kind
    time: Array  # seconds from a request's start to its end, without the wait for a slot


def cycle(server: Server, run: Array, together: Array) -> Cycle:
    """Seconds of a cycle of ``run`` requests that run at all times: who finishes is replaced.

        cycle = (D + s) t(d) + (n + stages - 1) E[S],   n = a (D + s),   d = a D

    Of d decoding requests a = d / D finish in a step, and as many prompts come, s steps before
    their first token (Little 1961, counted in steps). A cycle of D + s steps feeds every prompt
    once, its own through all stages of a pipeline. ``together`` is the share of requests that go
    through in lockstep, cohort by cohort.
    """
    kinds, decodes = server.kinds, server.kinds.mean(server.kinds.decode_steps)

    def state(per_step: Array) -> tuple[DecodeStep, Backlog, Array]:
        decode = decode_step(server, per_step * decodes)
        ahead = backlog(decode, kinds, per_step, run, together)
        return decode, ahead, decodes + kinds.mean(decode.chunks + ahead.steps)

    def surplus(log: Array) -> Array:
        return log + jnp.log(state(jnp.exp(log))[2] / run)

    most = jnp.log(run / (decodes + 1.0))
    per_step = jnp.exp(crossing(surplus, most - SEARCH_SPAN, most))
    decode, ahead, steps = state(per_step)
    service = service_time(server, decode, ahead.tokens)
    prompts = (run + server.limits.stages - 1.0) * kinds.mean(service)
    return Cycle(decode, ahead, per_step, service, steps * decode.time + prompts)


class CycleTimes(NamedTuple):
    """Where the time of a cycle goes, in seconds."""

    prefill: Array  # the steps of one's own prompt, by kind
    wait: Array  # the steps of prompts before it
    step_time: Array  # a decode step, with what prompts add to it
    full_step: Array  # a step that is full of prompts


def cycle_times(server: Server, c: Cycle) -> CycleTimes:
    """Where the seconds of a cycle go: cycle = E[prefill] + wait + D step_time.

    No step takes less than one without prompts, or more than a full one.
    """
    kinds, decode = server.kinds, c.decode
    per_token = kinds.mean(c.service) / kinds.mean(kinds.fresh)
    prefill = prefill_time(server, decode, c.service)
    full_step = decode.time + decode.prompt_budget * per_token
    wait = kinds.mean(decode.time * c.backlog.steps + per_token * c.backlog.tokens)
    decode_time = c.time - kinds.mean(prefill) - wait
    step = jnp.clip(decode_time / kinds.mean(kinds.decode_steps), decode.time, full_step)
    return CycleTimes(prefill, wait, step, full_step)


class Backlog(NamedTuple):
    """The prompts before an arriving one: means by kind, and one variance."""

    steps: Array  # that they take beyond those of the prompt itself
    tokens: Array  # prompt tokens of others in all steps until its first token
    variance: Array  # of the prompt tokens before it


def backlog(
    decode: DecodeStep, kinds: Kinds, per_step: Array, run: Array, together: Array
) -> Backlog:
    """Prompts that wait when ``per_step`` of them come at the end of every step, in tokens.

        E[U] = R v / (2 (1 - u)) u^(u / v),   u = E[Y] / R,   v = Var[Y] / R^2

    Tokens beyond the budget R of a step are left for the next, U' = max(U + Y - R, 0), Y those that
    come: Kingman's law (1961) for heavy traffic, and the exact one where every prompt fills one
    step. A share ``together`` goes in lockstep instead.
    """
    budget, mean, second = decode.prompt_budget, kinds.mean(kinds.fresh), kinds.mean(kinds.fresh**2)
    rest = jnp.maximum(run - 1.0, 0.0)
    others = per_step * rest / run
    load = others * mean / budget
    varied = others * second / budget**2
    left = jnp.exp(mean * budget / second * jnp.log(jnp.clip(load, 1e-9, 1.0)))
    scale = 0.5 * budget * varied * pole(load)
    half = 0.5 * others * mean  # half of those that arrive with it are fed before it
    before = scale * left + half
    variance = (2.0 - left) * left * scale**2 + 0.5 * others * second
    # no more can wait than are in flight: their number varies as that of those that decode
    decoding = per_step * jnp.maximum(kinds.mean(kinds.output) - 1.0, 0.0) / kinds.gain
    most = decoding * mean**2 + rest * kinds.variance(kinds.fresh)
    variance = variance / (1.0 + variance / jnp.maximum(most, 1.0))

    tail = exponential_tail(before, variance)
    slack = decode.chunks * budget - kinds.fresh
    width = jnp.maximum(tail.scale, 1e-6)
    more = tail.share * jnp.exp(-jnp.maximum(slack - tail.least, 0.0) / width)
    steps = more / -jnp.expm1(-budget / width)
    steps = steps + jnp.maximum(tail.least - slack, 0.0) / budget
    tokens = jnp.minimum(before + half, steps * budget + slack)

    # in lockstep only prompts that fit one step share it, or prompts that are all alike
    fit = jnp.maximum(budget / mean, 1.0)
    unlike = kinds.variation(kinds.fresh)
    locked = together * jnp.where(
        decode.chunks > 1.0, 1.0 / (1.0 + DISSOLVING * unlike / fit**2), 1.0
    )
    beside = (cohort(fit, run, unlike) - 1.0) * mean
    beside = jnp.where(beside > 0.0, beside, jnp.minimum(unlike, 1.0) * others * mean)
    # whatever cohorts there are, a token's step is on average no emptier than the mean step
    beside = jnp.maximum(beside, (per_step - 1.0) * mean)
    bound = jnp.maximum(run * mean / budget - decoding / per_step - decode.chunks, 0.0)
    beside = jnp.where(decode.chunks > 1.0, convoy(decode, kinds, run, bound), beside)
    return Backlog(
        steps=steps + locked * (bound - steps),
        tokens=tokens + locked * (beside + bound * budget - tokens),
        variance=(1.0 - kinds.mean(locked)) * variance,
    )


def lockstep(kinds: Kinds) -> Array:
    """Share of requests in lockstep: exp(-4 Var[O]), 1 where outputs are of one length."""
    return jnp.exp(-DISSOLVING * kinds.variance(kinds.output))


def convoy(decode: DecodeStep, kinds: Kinds, run: Array, bound: Array) -> Array:
    """Tokens of others in the steps of a prompt of several chunks, where all go in lockstep.

        c R - I - (E R - n I) / n,   E = ceil(n I / R)

    Who finishes is replaced, and its prompt is fed behind the one that finished before it: the
    prompts of n = ``run`` requests follow each other without a gap, in E steps that are full but
    for the last. A period has D + c steps (the first prompt has none before it), so that every
    first token takes c steps; the one that ends in the last step misses E R - n I tokens of others.
    With more prompts than a period has steps for (``bound``), no step is left that is not full. The
    slope is that between two whole numbers of steps.
    """
    budget = decode.prompt_budget
    needed = run * kinds.mean(kinds.fresh) / budget
    missing = budget * (jnp.ceil(needed) - needed) * jnp.maximum(1.0 - bound, 0.0)
    return jnp.maximum(decode.chunks * budget - kinds.fresh - missing / jnp.maximum(run, 1.0), 0.0)


def cohort(fit: Array, run: Array, unlike: Array) -> Array:
    """Requests in lockstep that one is among, of ``run``, where ``fit`` prompts fill a step.

        (k s^2 + (n - k s)^2) / n,   k = floor(n / s),   s + COHORT_MARGIN sqrt(unlike s) = fit

    Full cohorts of s requests and a rest. Whoever does not fit the step of a cohort goes through
    one step later from then on: cohorts last whose prompts seldom overflow, s a whole number,
    ``unlike`` the squared variation of prompts. Where s or the rest jumps, the slope is that of one
    side.
    """
    spread = COHORT_MARGIN * square_root(unlike)
    root = 0.5 * (jnp.sqrt(spread**2 + 4.0 * fit) - spread)
    whole = jnp.clip(jnp.floor(root**2 + 1e-6), 1.0, jnp.maximum(run, 1.0))
    count = jnp.floor(run / whole)
    return (count * whole**2 + (run - count * whole) ** 2) / run
