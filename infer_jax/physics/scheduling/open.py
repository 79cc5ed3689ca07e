"""Open loop: TTFT, TPOT and percentiles when requests arrive at a given rate."""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.scheduling.admission import memory
from infer_jax.physics.scheduling.closed import saturated_rate
from infer_jax.physics.scheduling.kinds import LEVELS, Kinds, MeanService, ServerLimits
from infer_jax.physics.scheduling.mix import mix
from infer_jax.physics.scheduling.occupancy import occupancy
from infer_jax.physics.scheduling.queueing import exponential_tail, mixture, percentiles
from infer_jax.physics.scheduling.steps import Step, steps

# share of arrivals waiting for a slot above which the slots, and no longer the arrivals, decide how
# many prompts delay decoding; not derived: chosen by random servers as in the tests
FEW = 0.02
RAREST = 1e-9  # requests/s, so that a rate of zero has the answers of a small one


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
    s = steps(step, kinds, server, there.decoding)._replace(base=there.base)
    finished = jnp.minimum(rate, capacity)
    # prompts that wait without end delay nobody who decodes
    m = mix(step, kinds, server, s, there.decoding, finished, variability)
    own = kinds.mean(m.own)

    # where slots are short, only prompts that hold a slot delay the decoding requests
    apart = there.decoding / (finished * m.decode_time)
    fewer = jnp.exp(there.taken / (there.taken + FEW) * jnp.log(apart))
    tpot, decode_time = jnp.maximum(m.tpot * fewer, there.base), m.decode_time * fewer
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
        tpot=tpot,
        following=m.following * tpot / m.tpot,
        tpot_with_first=latency / kinds.mean(kinds.output),
        latency=latency,
    )
