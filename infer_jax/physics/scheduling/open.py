"""Open loop: TTFT, TPOT and their percentiles when requests arrive at a given rate.

A mean TTFT is a sum of four times, slot_wait + residual + queue_wait + prefill:

1. The requests present are a birth-death chain, whose servers are as fast as a closed loop of so
   many: it has the requests that decode, hence the seconds t of a decode step, and the wait for a
   slot or for cache (``occupancy``, ``closed``).
2. Prompts share the time with decode steps: an arrival waits for the rest of the running step, then
   for the prompts before its own (``prefill_delay``, by laws of one queue in ``queueing``).
3. Its own prompt takes its steps (``kinds.prefill_time``).

The first is valid where slots decide and the second where none are short. Between them TPOT goes
from one to the other, and waits are a mixture, whose exponential tails give percentiles.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.scheduling.admission import memory
from infer_jax.physics.scheduling.closed import saturated_rate
from infer_jax.physics.scheduling.kinds import (
    LEVELS,
    Kinds,
    MeanService,
    Server,
    ServerLimits,
    Step,
    decode_step,
)
from infer_jax.physics.scheduling.occupancy import Occupancy, occupancy
from infer_jax.physics.scheduling.prefill_delay import PrefillDelay, prefill_delay
from infer_jax.physics.scheduling.queueing import Wait, exponential_tail, mixture, percentiles
from infer_jax.specs import Arrivals

# share of arrivals waiting for a slot above which the slots, and no longer the arrivals, decide how
# many prompts delay decoding; not derived: chosen by random servers as in the tests
FEW = 0.02
RAREST = 1e-9  # requests/s, so that a rate of zero has the answers of a small one


def open_loop(
    step: Step, kinds: Kinds, server: ServerLimits, rate: Array, variability: Array | float = 1.0
) -> MeanService:
    """Rates (1/s) and times (s) of requests that arrive ``rate`` times a second.

    ``variability`` is that of the gaps between them, 1 for Poisson. The capacity is the rate of a
    closed loop that always has requests waiting. At higher rates that capacity is finished, and
    every value stays finite.
    """
    batching = Server(step, kinds, server)
    arrivals = Arrivals(rate=jnp.maximum(rate, RAREST), variability=jnp.asarray(variability))
    rate, cache, capacity = arrivals.rate, memory(kinds, server), saturated_rate(batching)
    present = occupancy(batching, cache, arrivals)
    finished = jnp.minimum(rate, capacity)
    decode = decode_step(batching, present.decoding)._replace(time=present.decode_step)
    # prompts that wait without end delay nobody who decodes
    delay = prefill_delay(batching, decode, arrivals.replace(rate=finished))
    speedup = decode_speedup(present, delay, finished)
    step_time = jnp.maximum(delay.step_time * speedup, present.decode_step)
    decode_time = delay.decode_time * speedup

    wait = prompt_wait(present, delay, arrivals.variability)
    residual = wait.mean * delay.residual / jnp.maximum(delay.wait, 1e-12)
    prefill = kinds.mean(delay.prefill)
    ttft = present.slot_wait + wait.mean + prefill
    latency = ttft + decode_time
    decoding, limit = finished * decode_time, jnp.minimum(server.slots, cache.limit)
    begun = decoding + finished * (wait.mean + prefill)
    # beyond capacity every slot is taken
    begun = jnp.where(rate < capacity, begun, jnp.maximum(begun, limit))
    running = jnp.minimum(begun, limit)
    return MeanService(
        rate=finished,
        capacity=capacity,
        running=running,
        decoding=decoding,
        # requests beyond the slots wait for one, whatever their prompts would wait for
        waiting=present.slot_wait * rate + begun - running,
        limit=limit,
        ttft=ttft,
        ttft_at=percentiles(LEVELS, delay.prefill, kinds.weight, wait.tail),
        slot_wait=present.slot_wait,
        step_wait=residual,
        queue_wait=wait.mean - residual,
        own=prefill,
        tpot=step_time / kinds.gain,
        following=delay.next_step * step_time / delay.step_time,
        tpot_with_first=latency / kinds.mean(kinds.output),
        latency=latency,
    )


def decode_speedup(present: Occupancy, delay: PrefillDelay, rate: Array) -> Array:
    """Decode times over those that all arrivals would delay: (d / (r T))^(w / (w + FEW)).

    Where slots are short, only prompts that hold a slot delay those who decode: the d requests that
    decode by the chain stand against r T of them, T seconds each, by the delays of all prompts; w
    is the share of arrivals that wait for a slot.
    """
    ratio = present.decoding / (rate * delay.decode_time)
    return jnp.exp(present.wait_chance / (present.wait_chance + FEW) * jnp.log(ratio))


class PromptWait(NamedTuple):
    """The wait between slot and first step: its mean, and with the wait for a slot its tail."""

    mean: Array  # seconds
    tail: Wait


def prompt_wait(present: Occupancy, delay: PrefillDelay, variability: Array) -> PromptWait:
    """Seconds that prompts wait for steps, and the distribution of all waits of TTFT.

        (1 - w) W + w (W - b min(W, V)),   b = 1 - 1 / max(c_a^2, 1),   V = slot_wait / w

    W seconds where slots are free; a share w waits V seconds for a slot, which in a burst is also
    a wait for the prompts of that burst.
    """
    share = present.wait_chance
    for_slot = present.slot_wait / jnp.maximum(share, 1e-12)
    burst = 1.0 - 1.0 / jnp.maximum(variability, 1.0)
    after_slot = delay.wait - burst * jnp.minimum(delay.wait, for_slot)
    tail = mixture(
        exponential_tail(delay.wait, delay.variance, 1.0 - share),
        exponential_tail(after_slot + for_slot, delay.variance + for_slot**2, share),
    )
    return PromptWait((1.0 - share) * delay.wait + share * after_slot, tail)
