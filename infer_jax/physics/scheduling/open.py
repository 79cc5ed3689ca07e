"""Open loop: TTFT, TPOT and percentiles when requests arrive at a given rate.

Delays that prompts cause one another and decoding requests come first, then the whole answer.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.physics.scheduling.admission import memory
from infer_jax.physics.scheduling.closed import saturated_rate
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
from infer_jax.physics.scheduling.occupancy import occupancy
from infer_jax.physics.scheduling.queueing import (
    SHORTEST,
    burst_share,
    bursts,
    exponential_tail,
    mixture,
    percentiles,
    pole,
    single_server_wait,
)
from infer_jax.typed_jax import trees

SETTLED = 12  # rounds in which the length of a step of prompts settles
# power of the mean wait by which its variance grows where arrivals are not Poisson: not derived,
# but right to a fifth in simulated steps of loads from 0.2 to 0.8, variability from 1/4 to 2
GROWTH = 1.25
MAX_EXPECTED = 30.0  # of the logarithm of steps with prompts in a row, so that float32 holds them
# share of arrivals waiting for a slot above which the slots, and no longer the arrivals, decide how
# many prompts delay decoding; not derived: chosen by random servers as in the tests
FEW = 0.02
RAREST = 1e-9  # requests/s, so that a rate of zero has the answers of a small one


class Mix(NamedTuple):
    """Delays that prompts cause one another and decoding requests, in seconds."""

    own: Array  # time of the steps of one's own prompt, by kind
    wait: Array  # mean wait for the running step and the prompts before one's own
    step: Array  # the part of it that is for the running step
    variance: Array
    decode_time: Array  # mean time from the first token to the last
    step_time: Array  # mean over requests of that time per step
    following: Array  # mean time of the step after the one that an arrival finds running


class Prompts(NamedTuple):
    """Prompts that arrive at random: the time that each adds to steps, and how full steps are."""

    cost: Array  # seconds that a prompt adds to the steps that feed it, by kind
    load: Array  # share of the server's time that prompts take where every step is full
    own: Array  # seconds of the steps that feed one's own prompt, by kind
    share: Array  # share of the server's time that prompts take
    length: Array  # mean seconds of a step
    arrivals_per_step: Array  # prompts that arrive during a step
    rate: Array  # prompts that arrive in a second
    variability: Array  # of the gaps between arrivals; 1 for Poisson
    excess: Array  # arrivals near an arrival, beyond those of Poisson


def mix(
    step: Step,
    kinds: Kinds,
    server: ServerLimits,
    plain: PlainStep,
    decoding: Array,
    rate: Array,
    variability: Array,
) -> Mix:
    """The delays when ``rate`` prompts per second arrive at random moments of steps.

    Where arrivals come in bursts, ``excess`` of them are about an arrival beyond the average,
    half of them before it and half after; ``burst_share`` says how soon.
    """
    first = jnp.asarray(server.prompts_first) > 0.5
    halts = _halts(step, kinds, server, plain, decoding, rate)
    prompts = _prompts(step, kinds, server, plain, decoding, rate, variability)
    alone = prompts._replace(
        own=server.stages * prompts.cost,
        length=halts.running,
        arrivals_per_step=rate * halts.running,
    )
    prompts = trees.where(first, alone, prompts)
    waits = _waits(kinds, server, plain, decoding, prompts)
    decode_time = _decode_times(kinds, plain, prompts, waits.queue)
    halted = halts.rest + kinds.decode_steps * (plain.time + halts.halt)
    # they halt until no slot is left: then as many decode, at their rate times this time
    slots = jnp.minimum(server.slots, memory(kinds, server).limit)
    halted = halted * jnp.minimum(slots / (rate * kinds.mean(halted)), 1.0)
    decode_time = jnp.where(first, halted, decode_time)
    step_time = kinds.mean(decode_time / kinds.decode_steps)
    return Mix(
        own=prompts.own,
        wait=waits.gate + waits.queue,
        step=waits.residual,
        variance=waits.variance,
        decode_time=kinds.mean(decode_time),
        step_time=step_time,
        following=jnp.where(first, halts.following, step_time),
    )


def _prompts(
    step: Step,
    kinds: Kinds,
    server: ServerLimits,
    plain: PlainStep,
    decoding: Array,
    rate: Array,
    variability: Array,
) -> Prompts:
    """Time that a prompt adds to the steps it shares with others."""
    excess = variability - 1.0
    empty_full = jnp.stack([jnp.zeros_like(plain.room), plain.room])
    alone, crowded = jax.vmap(lambda beside: added_time(step, kinds, decoding, plain, beside))(
        empty_full
    )
    share = rate * kinds.mean(alone)
    seen = plain.time * pole(share) + rate * kinds.mean(alone**2) * pole(share**2)
    beside = (rate * seen + excess * burst_share(rate * seen, variability)) * kinds.mean(
        kinds.fresh
    )
    cost = added_time(step, kinds, decoding, plain, jnp.maximum(beside, 0.0))
    share = rate * kinds.mean(cost)
    length = plain.time * pole(share)
    return Prompts(
        cost=cost,
        load=rate * kinds.mean(crowded + kinds.fresh / plain.room * plain.time),
        own=prompt_time(cost, plain, server),
        share=share,
        length=length,
        arrivals_per_step=rate * length,
        rate=rate,
        variability=variability,
        excess=excess,
    )


class Waits(NamedTuple):
    """Mean seconds that a prompt waits before its first step, and their variance.

    ``residual``: for the end of the running step; ``gate``: for that and the prompts that come
    while it runs and share the next one; ``queue``: for prompts ahead that take several steps.
    """

    residual: Array
    gate: Array
    queue: Array
    variance: Array


def _waits(
    kinds: Kinds, server: ServerLimits, plain: PlainStep, decoding: Array, p: Prompts
) -> Waits:
    """Waits for the running step, for what comes while it runs, and for prompts before.

    Prompts ahead that take several steps are between a gated queue (all arrivals of one step are
    served in the next) and one served in order of arrival.
    """
    cost, busy = kinds.mean(p.cost), _step_chance(kinds, plain, decoding, p)
    # of a burst, those that come in what is left of the running step
    burst_mates = p.excess * burst_share(0.5 * p.arrivals_per_step, p.variability)
    residual = server.phase * p.length
    gate = residual + jnp.maximum(p.arrivals_per_step + burst_mates, 0.0) * cost
    residual, gate = residual * busy, gate * busy

    blocking = p.cost + (plain.chunks - 1.0) * plain.time
    gated = (1.0 + 2.0 * p.share / plain.chunks) / (1.0 + p.share / plain.chunks)
    second = kinds.mean(gated * blocking**2)
    mean, burst = jnp.sqrt(kinds.mean(gated)) * kinds.mean(blocking), bursts(p.load, p.variability)
    queue = single_server_wait(p.rate, mean, second, p.load, p.variability, burst)
    poisson = residual + p.arrivals_per_step * cost * busy
    poisson = poisson + single_server_wait(p.rate, mean, second, p.load, jnp.ones_like(burst))

    # in order of arrival: exact for Poisson arrivals, and for others before an exponential server
    near = (p.arrivals_per_step + jnp.maximum(burst_mates, 0.0)) * kinds.mean(p.cost**2)
    near = near + p.length**2 / 12.0 + (burst_mates * cost) ** 2
    third = p.rate * kinds.mean(blocking**3) * pole(p.load) / 3.0
    in_order = near + queue**2 + burst * third
    # of arrivals that are not Poisson the variance grows with the mean, by a power
    longer = (gate + queue + SHORTEST) / (poisson + SHORTEST)
    whole_prompts = _gated_variance(kinds, server, p) * longer**GROWTH
    gate_share = kinds.mean(1.0 / plain.chunks)
    variance = gate_share * whole_prompts + (1.0 - gate_share) * in_order
    return Waits(residual, gate, queue, variance)


def _step_chance(kinds: Kinds, plain: PlainStep, decoding: Array, p: Prompts) -> Array:
    """Chance that a prompt finds a step running that does not belong to a prompt ahead of it."""
    idle = jnp.clip((1.0 - p.load) * pole(p.share), 0.0, 1.0)
    met = 1.0 - kinds.mean(1.0 - 1.0 / plain.chunks) * (1.0 - idle)
    # a prompt that finds the server idle waits for no step
    return met * -jnp.expm1(-decoding - p.rate * kinds.mean(p.own))


def _gated_variance(kinds: Kinds, server: ServerLimits, p: Prompts) -> Array:
    """Variance of the wait where a step feeds whole prompts, all that came during the one before.

    After a step of l seconds the next takes a plain one's time and the cost of its prompts, whose
    k-th cumulant is r E[cost^k] l, r the rate. So variance V and third central moment M of steps:

        V = r c2 L / (1 - u^2),  M = (r c3 L + 3 u r c2 V) / (1 - u^3),  u = r c1.

    An arrival finds steps in proportion to their length, of mean m = L + V / L and mean square
    q = L^2 + 3 V + M / L, and waits for the rest of one and for what comes during it:

        q (1/3 + u + u^2) + r c2 m - (m / 2 + u m)^2

    for Poisson arrivals (gated vacations: Takagi, Queueing Analysis 1, 1991, 2.3).
    """
    u, length, phase = p.share, p.length, jnp.asarray(server.phase)
    second = p.rate * kinds.mean(p.cost**2)
    varied = second * length * pole(u**2)
    skewed = p.rate * kinds.mean(p.cost**3) * length + 3.0 * u * second * varied
    mean = length + varied / length
    square = length**2 + 3.0 * varied + skewed * pole(u**3) / length
    rest = 4.0 * phase**2 / 3.0 + 2.0 * phase * u + u**2
    return square * rest + second * mean - ((phase + u) * mean) ** 2


def _decode_times(kinds: Kinds, plain: PlainStep, p: Prompts, queue: Array) -> Array:
    """Seconds from the first token to the last, by kind.

    After its first token a request is delayed by the prompts that arrived while it waited, then by
    the rest of its burst, and from then on by the average load.
    """
    several = jnp.minimum(p.arrivals_per_step * kinds.mean(plain.chunks - 1.0), 1.0)
    full = jnp.minimum(p.arrivals_per_step * kinds.mean(kinds.fresh) / plain.room, 1.0)
    # share of steps with prompts, seconds by which they are longer, their share of the time
    often = jnp.maximum(1.0 - (1.0 - several) * jnp.exp(-p.arrivals_per_step), full)
    often = jnp.maximum(often, 1e-12)
    longer = jnp.minimum(p.share, 1.0) * p.length / often
    busy = jnp.minimum(p.share + often * jnp.maximum(1.0 - p.share, 0.0), 1.0)
    own = kinds.mean(p.own)
    stay = own + queue + (plain.time + often * longer) * kinds.mean(kinds.decode_steps)
    later = 0.5 * p.excess * burst_share(p.rate * stay, p.variability)
    behind = (p.rate * (own + queue) + later) * kinds.mean(p.cost)
    least = jnp.maximum(busy - often, 0.0)
    met = jnp.maximum(behind, 0.0) * least / busy * pole(p.share)
    met = met * -jnp.expm1(-kinds.decode_steps * least * longer / jnp.maximum(met, 1e-12))
    return (plain.time + often * longer) * kinds.decode_steps + met


class Halts(NamedTuple):
    """Decoding where steps with prompts come first and decode nobody, in seconds.

    ``halt``: of steps of prompts between two decode steps; ``rest``: of those that follow one's own
    prompt; ``running``: of the step that an arrival finds running; ``following``: of the next. Of
    steps with prompts the last two leave out what grows with prompts, whose queue is that of one
    server.
    """

    halt: Array
    rest: Array
    running: Array
    following: Array


def _halts(
    step: Step, kinds: Kinds, server: ServerLimits, plain: PlainStep, decoding: Array, rate: Array
) -> Halts:
    """The steps of prompts that keep a server from decoding.

    A step of prompts takes L = L(x / (1 - e^-x)), of x = rate L prompts that are expected while the
    one before it runs, at least one. Such steps follow each other until nobody comes during one,
    e^x of them in the mean, and at most as many as fill the slots. They begin where anybody came
    during a plain step.
    """
    fresh = kinds.mean(kinds.fresh)

    def length(expected: Array) -> Array:
        few = jnp.maximum(expected, 1e-6)
        prompts = jnp.minimum(few / -jnp.expm1(-few), jnp.maximum(server.slots, 1.0))
        cost = added_time(step, kinds, decoding, plain, (prompts - 1.0) * fresh)
        return prompts * kinds.mean(cost)

    own = lax.fori_loop(0, SETTLED, lambda _, x: length(rate * x), length(jnp.zeros_like(rate)))
    expected = rate * own
    slots = jnp.log(jnp.maximum(server.slots, 1.0) / jnp.maximum(expected, 1e-6))
    steps = jnp.exp(jnp.minimum(jnp.minimum(expected, MAX_EXPECTED), jnp.maximum(slots, 0.0)))
    first = length(rate * plain.time)
    halt = -jnp.expm1(-rate * plain.time) * (first - jnp.expm1(-rate * first) * steps * own)
    crowded = kinds.mean(added_time(step, kinds, decoding, plain, plain.room))
    fixed = jnp.maximum(own - jnp.maximum(expected, 1.0) * crowded, 0.0)
    running = (plain.time**2 + halt * fixed) / (plain.time + halt)
    following = fixed + jnp.exp(-expected) * (plain.time - fixed)
    return Halts(halt, (steps - 1.0) * own, running, following)


def open_loop(
    step: Step, kinds: Kinds, server: ServerLimits, rate: Array, variability: Array | float = 1.0
) -> MeanService:
    """Requests that arrive ``rate`` times a second; ``variability`` 1 is Poisson.

    The capacity is the rate of a closed loop that always has requests waiting. At higher rates
    that capacity is finished, and every value stays finite.
    """
    variability, rate = jnp.asarray(variability), jnp.maximum(rate, RAREST)
    held = memory(kinds, server)
    capacity = saturated_rate(step, kinds, server)
    there = occupancy(step, kinds, server, held, rate, variability)
    plain = plain_step(step, kinds, server, there.decoding)._replace(time=there.base)
    finished = jnp.minimum(rate, capacity)
    # prompts that wait without end delay nobody who decodes
    m = mix(step, kinds, server, plain, there.decoding, finished, variability)
    own = kinds.mean(m.own)

    # where slots are short, only prompts that hold a slot delay the decoding requests
    apart = there.decoding / (finished * m.decode_time)
    fewer = jnp.exp(there.taken / (there.taken + FEW) * jnp.log(apart))
    step_time, decode_time = jnp.maximum(m.step_time * fewer, there.base), m.decode_time * fewer
    # in a burst, the wait for a slot and the wait for the prompts of that burst overlap
    drain = there.queued / jnp.maximum(there.taken, 1e-12)
    burst = 1.0 - 1.0 / jnp.maximum(variability, 1.0)
    both = m.wait - burst * jnp.minimum(m.wait, drain)
    wait = (1.0 - there.taken) * m.wait + there.taken * both
    running_step = wait * m.step / jnp.maximum(m.wait, 1e-12)
    ttft = there.queued + wait + own
    tail = mixture(
        exponential_tail(m.wait, m.variance, 1.0 - there.taken),
        exponential_tail(both + drain, m.variance + drain**2, there.taken),
    )
    latency = ttft + decode_time
    decoding, limit = finished * decode_time, jnp.minimum(server.slots, held.limit)
    begun = decoding + finished * (wait + own)
    # beyond capacity every slot is taken
    begun = jnp.where(rate < capacity, begun, jnp.maximum(begun, limit))
    running = jnp.minimum(begun, limit)
    return MeanService(
        rate=finished,
        capacity=capacity,
        running=running,
        decoding=decoding,
        # requests beyond the slots wait for one, whatever their prompts would wait for
        waiting=there.queued * rate + begun - running,
        limit=limit,
        ttft=ttft,
        ttft_at=percentiles(LEVELS, m.own, kinds.weight, tail),
        slot_wait=there.queued,
        step_wait=running_step,
        queue_wait=wait - running_step,
        own=own,
        tpot=step_time / kinds.gain,
        following=m.following * step_time / m.step_time,
        tpot_with_first=latency / kinds.mean(kinds.output),
        latency=latency,
    )
