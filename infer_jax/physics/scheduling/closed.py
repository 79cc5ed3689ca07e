"""Closed loop: TTFT, TPOT and throughput with a fixed number of requests in flight."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import square_root
from infer_jax.physics.root import crossing
from infer_jax.physics.scheduling.admission import SATURATING, admit, memory
from infer_jax.physics.scheduling.kinds import (
    LEVELS,
    Kinds,
    MeanService,
    PlainStep,
    ServerLimits,
    Step,
    added_time,
    plain_step,
    prompt_time,
)
from infer_jax.physics.scheduling.queueing import exponential_tail, percentiles, pole

# how fast lockstep dissolves as lengths vary; not derived: chosen by random servers as in the tests
DISSOLVING = 4.0
# the search for the prompts that arrive in a step starts e^-SEARCH_SPAN below the most there can be
SEARCH_SPAN = 18.0
# standard deviations that the prompts of a lasting cohort stay below the room of a step; chosen so
COHORT_MARGIN = 3.5


class Cycle(NamedTuple):
    """Means of a closed loop in which all requests run."""

    plain: PlainStep
    met: "Backlog"
    coming: Array  # prompts that come at the end of every step
    cost: Array  # time that a prompt adds to its steps, by kind
    cycle: Array  # time of a request, without the wait for a slot


def cycle(step: Step, kinds: Kinds, server: ServerLimits, run: Array, together: Array) -> Cycle:
    """``run`` requests run at all times: one that finishes is replaced.

    Here the clock is the step. Of d decoding requests a = d / D finish in a step, D the decode
    steps of one, and as many prompts come; running = a D + a S(a) with S the steps to a first
    token (Little 1961, counted in steps). A cycle of a request, D + S steps, feeds every prompt
    once, its own through all stages of a pipeline:

        cycle = (D + S) t(d) + (running + stages - 1) g,   rate = running / cycle,

    t a step without prompts, g what a prompt adds to steps. ``together`` is the share of
    requests that go through in lockstep, cohort by cohort.
    """
    decodes = kinds.mean(kinds.decode_steps)

    def state(coming: Array) -> tuple[PlainStep, Backlog, Array]:
        plain = plain_step(step, kinds, server, coming * decodes)
        met = backlog(plain, kinds, coming, run, together)
        return plain, met, decodes + kinds.mean(plain.chunks + met.steps)

    def surplus(log: Array) -> Array:
        return log + jnp.log(state(jnp.exp(log))[2] / run)

    most = jnp.log(run / (decodes + 1.0))
    coming = jnp.exp(crossing(surplus, most - SEARCH_SPAN, most))
    plain, met, passed = state(coming)
    cost = added_time(step, kinds, coming * decodes, plain, met.fed)
    prompts = (run + server.stages - 1.0) * kinds.mean(cost)
    return Cycle(plain, met, coming, cost, passed * plain.time + prompts)


class Paces(NamedTuple):
    """Where the time of a cycle goes, in seconds."""

    own: Array  # in the steps of one's own prompt, by kind
    wait: Array  # in the steps of prompts before it
    step_time: Array  # of a decode step, with what prompts add to it
    slowest: Array  # of a step that is full of prompts


def paces(kinds: Kinds, server: ServerLimits, c: Cycle) -> Paces:
    """Where the time of a cycle goes.

    No step takes less than one without prompts, or more than a full one.
    """
    plain, each = c.plain, kinds.mean(c.cost) / kinds.mean(kinds.fresh)
    own, slowest = prompt_time(c.cost, plain, server), plain.time + plain.room * each
    wait = kinds.mean(plain.time * c.met.steps + each * c.met.fed)
    decode_time = c.cycle - kinds.mean(own) - wait
    step = jnp.clip(decode_time / kinds.mean(kinds.decode_steps), plain.time, slowest)
    return Paces(own, wait, step, slowest)


def lockstep(kinds: Kinds) -> Array:
    """Share of requests in lockstep: 1 where outputs are of one length, less as they vary."""
    return jnp.exp(-DISSOLVING * kinds.variance(kinds.output))


def saturated_rate(step: Step, kinds: Kinds, server: ServerLimits) -> Array:
    """Requests/s of a server that always has requests waiting."""
    run = admit(jnp.asarray(SATURATING), server, memory(kinds, server)).run
    return run / cycle(step, kinds, server, run, lockstep(kinds)).cycle


def closed_loop(
    step: Step,
    kinds: Kinds,
    server: ServerLimits,
    concurrency: Array,
    together: Array | None = None,
) -> MeanService:
    """Latencies of a request in a ``cycle``, with percentiles of mixed waits.

    ``concurrency`` requests are in flight at all times; ``together`` as in ``cycle``, by
    ``lockstep`` if None.
    """
    held = memory(kinds, server)
    limit = jnp.minimum(server.slots, held.limit)
    run, waiting, varied = admit(concurrency, server, held)
    c = cycle(step, kinds, server, run, lockstep(kinds) if together is None else together)
    plain, met, rate = c.plain, c.met, run / c.cycle
    decodes, (own, wait, step_time, slowest) = (
        kinds.mean(kinds.decode_steps),
        paces(kinds, server, c),
    )
    queued = waiting / rate
    ttft = queued + wait + kinds.mean(own)
    # waits vary with the prompts ahead and with how many requests wait, and for how long
    variance = (slowest / plain.room) ** 2 * met.variance + (varied + waiting) / rate**2
    tail = exponential_tail(queued + wait, variance)
    latency = ttft + step_time * decodes
    return MeanService(
        rate=rate,
        capacity=rate * limit / run,
        running=run,
        decoding=c.coming * decodes,
        waiting=waiting,
        limit=limit,
        ttft=ttft,
        ttft_at=percentiles(LEVELS, own, kinds.weight, tail),
        slot_wait=queued,
        step_wait=jnp.zeros_like(wait),
        queue_wait=wait,
        own=kinds.mean(own),
        tpot=step_time / kinds.gain,
        tpot_with_first=latency / kinds.mean(kinds.output),
        following=step_time,
        latency=latency,
    )


class Backlog(NamedTuple):
    """The prompts before an arriving one: means by kind, and one variance."""

    steps: Array  # steps that they take beyond those of the prompt itself
    fed: Array  # prompt tokens of others in all steps until its first token
    variance: Array  # of the prompt tokens before it


def backlog(plain: PlainStep, kinds: Kinds, coming: Array, run: Array, together: Array) -> Backlog:
    """Prompts that wait when ``coming`` of them come at the end of every step.

    Tokens beyond the room of a step are left for the next, U' = max(U + Y - room, 0). With
    u = E[Y] / room and v = Var[Y] / room^2, E[U] = room v / (2 (1 - u)) u^(u / v): Kingman's
    law (1961) for heavy traffic, and the exact one where every prompt fills one step.
    """
    mean, second = kinds.mean(kinds.fresh), kinds.mean(kinds.fresh**2)
    rest = jnp.maximum(run - 1.0, 0.0)
    others = coming * rest / run
    load = others * mean / plain.room
    varied = others * second / plain.room**2
    kept = jnp.exp(mean * plain.room / second * jnp.log(jnp.clip(load, 1e-9, 1.0)))
    scale = 0.5 * plain.room * varied * pole(load)
    half = 0.5 * others * mean  # half of those that arrive with it are fed before it
    before = scale * kept + half
    variance = (2.0 - kept) * kept * scale**2 + 0.5 * others * second
    # no more can wait than are in flight: their number varies as that of those that decode
    decoding = coming * jnp.maximum(kinds.mean(kinds.output) - 1.0, 0.0) / kinds.gain
    most = decoding * mean**2 + rest * kinds.variance(kinds.fresh)
    variance = variance / (1.0 + variance / jnp.maximum(most, 1.0))

    tail = exponential_tail(before, variance)
    slack = plain.chunks * plain.room - kinds.fresh
    width = jnp.maximum(tail.scale, 1e-6)
    more = tail.share * jnp.exp(-jnp.maximum(slack - tail.least, 0.0) / width)
    later_steps = more / -jnp.expm1(-plain.room / width)
    later_steps = later_steps + jnp.maximum(tail.least - slack, 0.0) / plain.room
    fed = jnp.minimum(before + half, later_steps * plain.room + slack)

    # in lockstep only prompts that fit one step share it, or prompts that are all alike
    fit = jnp.maximum(plain.room / mean, 1.0)
    unlike = kinds.variation(kinds.fresh)
    locked = together * jnp.where(
        plain.chunks > 1.0, 1.0 / (1.0 + DISSOLVING * unlike / fit**2), 1.0
    )
    beside = (cohort(fit, run, unlike) - 1.0) * mean
    beside = jnp.where(beside > 0.0, beside, jnp.minimum(unlike, 1.0) * others * mean)
    # whatever cohorts there are, a token's step is on average no emptier than the mean step
    beside = jnp.maximum(beside, (coming - 1.0) * mean)
    bound = jnp.maximum(run * mean / plain.room - decoding / coming - plain.chunks, 0.0)
    beside = jnp.where(plain.chunks > 1.0, convoy(plain, kinds, run, bound), beside)
    return Backlog(
        steps=later_steps + locked * (bound - later_steps),
        fed=fed + locked * (beside + bound * plain.room - fed),
        variance=(1.0 - kinds.mean(locked)) * variance,
    )


def convoy(plain: PlainStep, kinds: Kinds, run: Array, bound: Array) -> Array:
    """Tokens of others in the steps of a prompt of several chunks, where all go in lockstep.

    Who finishes is replaced, and its prompt is fed behind the one that finished before it: the
    prompts of ``run`` requests follow each other without a gap, n I tokens in E = ceil(n I / room)
    steps, full but for the last. A period has D + chunks steps (the first prompt has none
    before it), so that every first token takes chunks steps, chunks room - I of others in them; the
    one that ends in the last step misses E room - n I of those. With more prompts than a
    period has steps for (``bound``), no step is left that is not full. The slope is that between
    two whole numbers of steps.
    """
    mean = kinds.mean(kinds.fresh)
    needed = run * mean / plain.room
    missing = plain.room * (jnp.ceil(needed) - needed) * jnp.maximum(1.0 - bound, 0.0)
    return jnp.maximum(
        plain.chunks * plain.room - kinds.fresh - missing / jnp.maximum(run, 1.0), 0.0
    )


def cohort(fit: Array, run: Array, unlike: Array) -> Array:
    """Requests in lockstep that one is among, of ``run``, where ``fit`` prompts fill a step.

    Full cohorts and a rest. Whoever does not fit the step of a cohort goes through one step later
    from then on: cohorts last whose prompts seldom overflow, the whole number s of them for which
    s + COHORT_MARGIN sqrt(unlike s) = fit, ``unlike`` the squared variation of prompts. Where s or
    the rest jumps, the slope is that of one side.
    """
    spread = COHORT_MARGIN * square_root(unlike)
    root = 0.5 * (jnp.sqrt(spread**2 + 4.0 * fit) - spread)
    whole = jnp.clip(jnp.floor(root**2 + 1e-6), 1.0, jnp.maximum(run, 1.0))
    count = jnp.floor(run / whole)
    return (count * whole**2 + (run - count * whole) ** 2) / run
