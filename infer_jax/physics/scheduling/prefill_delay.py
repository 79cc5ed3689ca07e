"""Delays by prefill under arrivals: of the prompts behind it, and of the requests that decode.

Here every arrival has a slot. Prompts take time from the decode steps that feed them:

1. Each adds S seconds to its steps, so that prompts take a share u = r E[S] of the time, and a mean
   step takes L = t / (1 - u) (``prefill_load``).
2. A prompt waits for the rest of the running step, for the prompts that arrive during it and share
   the next, and for prompts ahead that take several steps (``prefill_wait``).
3. A request that decodes is delayed by the prompts that arrived while it waited, by the rest of its
   burst, then by the average load (``decode_times``).
4. Engines that feed prompts in steps of their own halt decoding meanwhile (``prefill_first``).

Symbols: r requests/s, d requests that decode, t seconds of a decode step, R prompt tokens that it
has budget for; of a prompt I tokens, c chunks, S seconds of service; D decode steps of a request;
c_a^2 the variability of the gaps between arrivals; E[.] means over kinds of requests.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.physics.scheduling.admission import memory
from infer_jax.physics.scheduling.kinds import (
    DecodeStep,
    Kinds,
    Server,
    ServerLimits,
    prefill_time,
    service_time,
)
from infer_jax.physics.scheduling.queueing import (
    SHORTEST,
    bursts,
    excess_arrivals,
    pole,
    single_server_wait,
)
from infer_jax.specs import Arrivals
from infer_jax.typed_jax import trees

ROUNDS = 12  # in which the length of a step of prompts settles
# power of the mean wait by which its variance grows where arrivals are not Poisson: not derived,
# but right to a fifth in simulated steps of loads from 0.2 to 0.8, variability from 1/4 to 2
GROWTH = 1.25
MAX_EXPECTED = 30.0  # of the logarithm of steps with prompts in a row, so that float32 holds them


class PrefillDelay(NamedTuple):
    """Delays that prompts cause one another and decoding requests, in seconds."""

    prefill: Array  # time of the steps of one's own prompt, by kind
    wait: Array  # mean wait for the running step and the prompts before one's own
    residual: Array  # the part of it that is for the running step
    variance: Array  # of the wait, s^2
    decode_time: Array  # mean time from the first token to the last
    step_time: Array  # mean over requests of that time per step
    next_step: Array  # mean time of the step after the one that an arrival finds running


class PrefillLoad(NamedTuple):
    """Prompts as customers of the server: their times of service, and how full steps are."""

    arrivals: Arrivals
    service: Array  # S: seconds that a prompt adds to the steps that feed it, by kind
    prefill: Array  # seconds of the steps that feed one's own prompt, by kind
    share: Array  # u: share of the server's time that prompts take
    utilisation: Array  # share of the server's time that prompts take where every step is full
    step_time: Array  # L: mean seconds of a step

    @property
    def per_step(self) -> Array:
        """A = r L: prompts that arrive during a step, in the mean."""
        return self.arrivals.rate * self.step_time


class PrefillWait(NamedTuple):
    """Mean seconds that a prompt with a slot waits before its first step, and their variance."""

    residual: Array  # for the end of the running step
    batch: Array  # for the prompts that arrive while it runs, and share the next step
    queue: Array  # for prompts ahead that take several steps
    variance: Array  # of the sum, s^2


def prefill_delay(server: Server, decode: DecodeStep, arrivals: Arrivals) -> PrefillDelay:
    """Seconds that prompts delay each other and those who decode, arriving at random moments.

    ``decode`` is a step without them. Where prompts come first, in steps of their own, a step that
    an arrival finds running and the times of decoding are those of ``prefill_first``.
    """
    first = jnp.asarray(server.limits.prompts_first) > 0.5
    halts = prefill_first(server, decode, arrivals.rate)
    load = prefill_load(server, decode, arrivals)
    separate = load._replace(
        prefill=server.limits.stages * load.service, step_time=halts.running_step
    )
    load = trees.where(first, separate, load)
    wait = prefill_wait(server, decode, load)
    halted = halted_decode_times(server, decode, halts, arrivals.rate)
    decode_time = decode_times(server.kinds, decode, load, wait.queue)
    decode_time = jnp.where(first, halted, decode_time)
    step_time = server.kinds.mean(decode_time / server.kinds.decode_steps)
    return PrefillDelay(
        prefill=load.prefill,
        wait=wait.residual + wait.batch + wait.queue,
        residual=wait.residual,
        variance=wait.variance,
        decode_time=server.kinds.mean(decode_time),
        step_time=step_time,
        next_step=jnp.where(first, halts.next_step, step_time),
    )


def prefill_load(server: Server, decode: DecodeStep, arrivals: Arrivals) -> PrefillLoad:
    """Seconds of service of each prompt, and the share of the server's time that prompts take.

        u = r E[S],   L = t / (1 - u),   utilisation = r E[S_full + I t / R]

    A step feeds the prompts that arrived during the one before it. An arrival finds long steps more
    often than short ones, of L + r E[S^2] / (1 - u^2) seconds in the mean: the prompts that arrive
    during one share the next, those of a burst among them, and set S (``service_time``).
    """
    kinds, rate, budget = server.kinds, arrivals.rate, decode.prompt_budget
    beside = jnp.stack([jnp.zeros_like(budget), budget])
    alone, full = jax.vmap(lambda others: service_time(server, decode, others))(beside)
    share = rate * kinds.mean(alone)
    step_found = decode.time * pole(share) + rate * kinds.mean(alone**2) * pole(share**2)
    expected = rate * step_found
    prompts = expected + excess_arrivals(expected, arrivals.variability)
    service = service_time(server, decode, jnp.maximum(prompts * kinds.mean(kinds.fresh), 0.0))
    share = rate * kinds.mean(service)
    return PrefillLoad(
        arrivals=arrivals,
        service=service,
        prefill=prefill_time(server, decode, service),
        share=share,
        utilisation=rate * kinds.mean(full + kinds.fresh / budget * decode.time),
        step_time=decode.time * pole(share),
    )


def prefill_wait(server: Server, decode: DecodeStep, load: PrefillLoad) -> PrefillWait:
    """Mean seconds that a prompt waits before its first step: residual + batch + queue.

        residual = b phase L,   batch = b (A + B) E[S]

    An arrival finds a step running with chance b (``running_step_chance``). A = r L prompts arrive
    during that step, and B more of its own burst in what is left of it; ``queue`` is that of
    ``prompt_queue``.
    """
    kinds = server.kinds
    found, service = running_step_chance(kinds, decode, load), kinds.mean(load.service)
    burst_mates = excess_arrivals(0.5 * load.per_step, load.arrivals.variability)
    residual = server.limits.phase * load.step_time * found
    batch = jnp.maximum(load.per_step + burst_mates, 0.0) * service * found
    queue = prompt_queue(kinds, decode, load)
    poisson = residual + load.per_step * service * found + queue.poisson_wait
    # of arrivals that are not Poisson the variance grows with the mean, by a power
    longer = (residual + batch + queue.wait + SHORTEST) / (poisson + SHORTEST)
    gated = gated_variance(kinds, server.limits, load) * longer**GROWTH
    in_order = in_order_variance(kinds, load, queue, burst_mates)
    one_step = kinds.mean(1.0 / decode.chunks)
    variance = one_step * gated + (1.0 - one_step) * in_order
    return PrefillWait(residual, batch, queue.wait, variance)


def running_step_chance(kinds: Kinds, decode: DecodeStep, load: PrefillLoad) -> Array:
    """Chance that a prompt finds a step running which does not belong to a prompt ahead of it.

        (1 - E[1 - 1 / c] (1 - idle)) (1 - exp(-d - r E[P])),   idle = (1 - utilisation) / (1 - u)

    P are the seconds of a prompt's own steps: a prompt that finds the server empty waits for none.
    """
    idle = jnp.clip((1.0 - load.utilisation) * pole(load.share), 0.0, 1.0)
    not_ahead = 1.0 - kinds.mean(1.0 - 1.0 / decode.chunks) * (1.0 - idle)
    return not_ahead * -jnp.expm1(-decode.decoding - load.arrivals.rate * kinds.mean(load.prefill))


class PromptQueue(NamedTuple):
    """Prompts ahead that take several steps, as a queue before one server."""

    service: Array  # seconds that a prompt keeps those behind it waiting, by kind
    wait: Array  # mean seconds
    poisson_wait: Array  # mean seconds, were arrivals Poisson
    burst: Array  # ratio of the two before an exponential server


def prompt_queue(kinds: Kinds, decode: DecodeStep, load: PrefillLoad) -> PromptQueue:
    """Mean seconds that a prompt waits for those ahead that take several steps, by ``wait``.

        g r E[Q^2] / (2 (1 - utilisation)),   Q = S + (c - 1) t,   g = (1 + 2 u / c) / (1 + u / c)

    for Poisson arrivals, of others as ``single_server_wait`` has it. By g it is between a gated
    queue (all arrivals of one step are served in the next) and one served in order of arrival.
    """
    arrivals, utilisation = load.arrivals, load.utilisation
    service = load.service + (decode.chunks - 1.0) * decode.time
    gated = (1.0 + 2.0 * load.share / decode.chunks) / (1.0 + load.share / decode.chunks)
    mean = jnp.sqrt(kinds.mean(gated)) * kinds.mean(service)
    second = kinds.mean(gated * service**2)
    burst = bursts(utilisation, arrivals.variability)
    queue = (arrivals.rate, mean, second, utilisation)
    return PromptQueue(
        service=service,
        wait=single_server_wait(*queue, arrivals.variability, burst),
        poisson_wait=single_server_wait(*queue, jnp.ones_like(burst)),
        burst=burst,
    )


def in_order_variance(
    kinds: Kinds, load: PrefillLoad, queue: PromptQueue, burst_mates: Array
) -> Array:
    """Variance (s^2) of the wait where prompts take several steps, in order of arrival.

        A E[S^2] + L^2 / 12 + W^2 + r E[Q^3] / (3 (1 - utilisation))

    for the prompts of the running step, the rest of that step, and a queue of mean wait W: exact
    for Poisson arrivals, and for others before an exponential server.
    """
    near = load.per_step + jnp.maximum(burst_mates, 0.0)
    near = near * kinds.mean(load.service**2) + load.step_time**2 / 12.0
    near = near + (burst_mates * kinds.mean(load.service)) ** 2
    third = load.arrivals.rate * kinds.mean(queue.service**3) * pole(load.utilisation) / 3.0
    return near + queue.wait**2 + queue.burst * third


def gated_variance(kinds: Kinds, limits: ServerLimits, load: PrefillLoad) -> Array:
    """Variance (s^2) of the wait where a step feeds all prompts that came during the one before.

    After a step of l seconds the next takes t and the service of its prompts, whose k-th cumulant
    is r E[S^k] l. So variance V and third central moment M of steps:

        V = r E[S^2] L / (1 - u^2),   M = (r E[S^3] L + 3 u r E[S^2] V) / (1 - u^3)

    An arrival finds steps in proportion to their length, of mean m = L + V / L and mean square
    q = L^2 + 3 V + M / L, and waits for the rest of one and for what comes during it:

        q (1/3 + u + u^2) + r E[S^2] m - (m / 2 + u m)^2

    for Poisson arrivals (gated vacations: Takagi, Queueing Analysis 1, 1991, 2.3).
    """
    rate, u, length, phase = load.arrivals.rate, load.share, load.step_time, limits.phase
    second = rate * kinds.mean(load.service**2)
    variance = second * length * pole(u**2)
    skewed = rate * kinds.mean(load.service**3) * length + 3.0 * u * second * variance
    mean = length + variance / length
    square = length**2 + 3.0 * variance + skewed * pole(u**3) / length
    phase = jnp.asarray(phase)
    rest = 4.0 * phase**2 / 3.0 + 2.0 * phase * u + u**2
    return square * rest + second * mean - ((phase + u) * mean) ** 2


def decode_times(kinds: Kinds, decode: DecodeStep, load: PrefillLoad, queue_wait: Array) -> Array:
    """Seconds from the first token to the last, by kind.

        D (t + p x) + M (1 - exp(-D (b - p) x / M)),   M = B E[S] (b - p) / (b (1 - u))

    A share p of steps has prompts and is x seconds longer, which is a share b of the time. After
    its first token a request is delayed by B prompts: those that arrived while it waited, and the
    rest of its burst; from then on by the average load.
    """
    expected, rate = load.per_step, load.arrivals.rate
    several = jnp.minimum(expected * kinds.mean(decode.chunks - 1.0), 1.0)
    full = jnp.minimum(expected * kinds.mean(kinds.fresh) / decode.prompt_budget, 1.0)
    prefilling = jnp.maximum(1.0 - (1.0 - several) * jnp.exp(-expected), full)
    prefilling = jnp.maximum(prefilling, 1e-12)
    longer = jnp.minimum(load.share, 1.0) * load.step_time / prefilling
    time_share = jnp.minimum(load.share + prefilling * jnp.maximum(1.0 - load.share, 0.0), 1.0)

    wait = kinds.mean(load.prefill) + queue_wait
    step_time = decode.time + prefilling * longer
    latency = wait + step_time * kinds.mean(kinds.decode_steps)
    burst = 0.5 * excess_arrivals(rate * latency, load.arrivals.variability)
    behind = jnp.maximum((rate * wait + burst) * kinds.mean(load.service), 0.0)
    excess = jnp.maximum(time_share - prefilling, 0.0)
    most = behind * excess / time_share * pole(load.share)
    delay = kinds.decode_steps * excess * longer
    return step_time * kinds.decode_steps + most * -jnp.expm1(-delay / jnp.maximum(most, 1e-12))


class PrefillFirst(NamedTuple):
    """Steps of prompts that come first and decode nobody, in seconds.

    Of steps with prompts the last two leave out what grows with prompts, whose queue is that of one
    server.
    """

    halt: Array  # steps of prompts between two decode steps
    after_own: Array  # steps of prompts that follow the one of one's own prompt
    running_step: Array  # the step that an arrival finds running
    next_step: Array  # the step after it


def prefill_first(server: Server, decode: DecodeStep, rate: Array) -> PrefillFirst:
    """Seconds of the steps of prompts that keep a server from decoding.

        L = l(x),   x = r L,   halt = (1 - e^(-r t)) (l(r t) + (1 - e^(-r l(r t))) e^x L)

    A step of prompts takes l(x) seconds where x are expected while the one before it runs, for
    x / (1 - e^-x) prompts, at least one. Such steps follow each other until nobody comes during
    one, e^x of them in the mean, and at most as many as fill the slots; they begin where anybody
    came during a decode step of t seconds.
    """
    kinds, slots = server.kinds, jnp.maximum(server.limits.slots, 1.0)
    fresh = kinds.mean(kinds.fresh)

    def prompt_step(expected: Array) -> Array:
        few = jnp.maximum(expected, 1e-6)
        prompts = jnp.minimum(few / -jnp.expm1(-few), slots)
        return prompts * kinds.mean(service_time(server, decode, (prompts - 1.0) * fresh))

    one = prompt_step(jnp.zeros_like(rate))
    length = lax.fori_loop(0, ROUNDS, lambda _, x: prompt_step(rate * x), one)
    expected = rate * length
    most = jnp.log(slots / jnp.maximum(expected, 1e-6))
    steps = jnp.exp(jnp.minimum(jnp.minimum(expected, MAX_EXPECTED), jnp.maximum(most, 0.0)))
    first = prompt_step(rate * decode.time)
    halt = first - jnp.expm1(-rate * first) * steps * length
    halt = -jnp.expm1(-rate * decode.time) * halt
    full = kinds.mean(service_time(server, decode, decode.prompt_budget))
    fixed = jnp.maximum(length - jnp.maximum(expected, 1.0) * full, 0.0)
    return PrefillFirst(
        halt=halt,
        after_own=(steps - 1.0) * length,
        running_step=(decode.time**2 + halt * fixed) / (decode.time + halt),
        next_step=fixed + jnp.exp(-expected) * (decode.time - fixed),
    )


def halted_decode_times(
    server: Server, decode: DecodeStep, halts: PrefillFirst, rate: Array
) -> Array:
    """Seconds from the first token to the last where steps of prompts come first, by kind.

        T min(slots / (r E[T]), 1),   T = after_own + D (t + halt)

    Prompts halt decoding until no slot is left: then as many decode as there are slots, which is
    their rate times this time (Little 1961).
    """
    kinds, limits = server.kinds, server.limits
    halted = halts.after_own + kinds.decode_steps * (decode.time + halts.halt)
    slots = jnp.minimum(limits.slots, memory(kinds, limits).limit)
    return halted * jnp.minimum(slots / (rate * kinds.mean(halted)), 1.0)
