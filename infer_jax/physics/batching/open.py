"""An open loop: what if requests arrive whatever happens to those before?"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.physics.batching.admission import memory
from infer_jax.physics.batching.closed import cycles
from infer_jax.physics.batching.kinds import LEVELS, Kinds, Server, Service
from infer_jax.physics.batching.steps import Step, Steps, added, steps
from infer_jax.physics.numerics import square_root
from infer_jax.physics.queueing import (
    all_taken,
    bursts,
    clustered,
    either,
    exponential_tail,
    percentiles,
    pole,
    single_server_wait,
)
from infer_jax.physics.root import crossing

# growth of a step's time with its batch from which on a wider batch is not counted: a guard, for
# the spread of a batch whose steps grow as fast as it does has no end
STEEPEST = 0.9


def open_loop(
    step: Step, kinds: Kinds, server: Server, rate: Array, variability: Array | float = 1.0
) -> Service:
    """Requests that arrive ``rate`` times a second; ``variability`` 1 is Poisson.

    Those past their first token number d = rate E[life(d)] (Little 1961). The most that can be
    served is what a closed loop of all slots serves. Beyond it every value is finite and
    ``load`` is above 1.
    """
    variability = jnp.asarray(variability)
    held = memory(kinds, server)
    limit = jnp.minimum(server.slots, held.limit)
    capacity = cycles(step, kinds, server, limit).rate
    varied = kinds.mean(kinds.output**2) / kinds.mean(kinds.output) ** 2  # 1 + c_s^2
    peak = peakedness(kinds, rate * limit / capacity, variability)
    zero, one = jnp.asarray(0.0), jnp.asarray(1.0)

    def plain(decoding: Array) -> Array:
        return step(decoding, zero, one, zero)

    def state(decoding: Array) -> tuple[Mix, Array]:
        s = steps(step, kinds, server, decoding)
        growth = decoding * jax.jvp(plain, (decoding,), (one,))[1] / s.base
        spread = peak * pole(jnp.clip(growth, 0.0, STEEPEST))
        # a step's time bends with its batch: the mean of two points a deviation apart
        seen = jnp.minimum(decoding + peak, limit)
        reach = jnp.minimum(square_root(decoding * spread), jnp.minimum(0.9 * seen, limit - seen))
        base = jnp.mean(jax.vmap(plain)(jnp.stack([seen + reach, seen - reach])))
        s = s._replace(base=base)
        return mix(step, kinds, s, decoding, rate, variability), spread

    decoding = crossing(lambda d: d - rate * state(d)[0].life, 1e-7 * limit, limit)
    m, spread = state(decoding)
    own = kinds.mean(m.own)

    # of those whose prompts wait inside, some would wait outside: no one waits twice
    busy = decoding + rate * own
    in_slots = all_taken(busy / server.slots, server.slots / spread)
    in_cache = all_taken(busy / held.limit, held.limit / (spread * (1.0 + held.varied)))
    in_cache = in_cache * (1.0 - in_slots)
    taken = in_slots + in_cache
    # E[wait | all taken] of G/G/m in heavy traffic: Kimura 1994 (Queueing Systems 17). A slot is
    # asked for some time, a cache for a space for some time
    queued = in_slots * (variability + varied - 1.0) + in_cache * (variability + held.work - 1.0)
    queued = 0.5 * queued / capacity * pole(rate / capacity)
    drain = queued / jnp.maximum(taken, 1e-12)
    ttft = queued + m.wait + own
    tail = either(
        exponential_tail(m.wait, m.variance, 1.0 - taken),
        exponential_tail(m.wait + drain, m.variance + drain**2, taken),
    )
    latency = ttft + m.life
    return Service(
        rate=jnp.minimum(rate, capacity),
        capacity=capacity,
        running=decoding + rate * (m.wait + own),
        decoding=decoding,
        waiting=queued * rate,
        limit=limit,
        ttft=ttft,
        ttft_at=percentiles(LEVELS, m.own, kinds.weight, tail),
        slot_wait=queued,
        queue_wait=m.wait,
        own=own,
        tpot=m.tpot,
        tpot_with_first=latency / kinds.mean(kinds.output),
        latency=latency,
    )


def peakedness(kinds: Kinds, offered: Array, variability: Array) -> Array:
    """Variance over mean of the requests present if none waited, ``offered`` on average.

    1 + (z - 1) 2 E[min(O, O')] / E[O], O and O' two outputs. z = 1 / (1 - A*(mu)) - a is exact for
    exponential times of service (Eckberg 1983, 10th International Teletraffic Congress), here with
    gaps of a gamma distribution, A*(mu) = (1 + c^2 / a)^(-1 / c^2), c^2 their ``variability``. How
    it depends on times of service is that of heavy traffic (Whitt 1992, Management Science 38).
    """
    a, varied = jnp.clip(offered, 1e-6, 1e4), jnp.maximum(variability, 1e-3)
    z = -1.0 / jnp.expm1(-jnp.log1p(varied / a) / varied) - a
    lesser = jnp.minimum(kinds.output[:, None], kinds.output)
    shared = 2.0 * kinds.mean(jnp.sum(kinds.weight * lesser, -1)) / kinds.mean(kinds.output)
    return jnp.maximum(1.0 + (z - 1.0) * shared, 0.1)


class Mix(NamedTuple):
    """What prompts do to one another and to decoding requests."""

    own: Array  # time of the steps of one's own prompt, by kind
    wait: Array  # mean wait for the running step and the prompts before one's own
    variance: Array
    life: Array  # mean time from the first token to the last
    tpot: Array  # mean over requests of that time per token


def mix(
    step: Step, kinds: Kinds, s: Steps, decoding: Array, rate: Array, variability: Array
) -> Mix:
    """``rate`` prompts come a second, in the midst of steps."""
    excess = variability - 1.0
    empty_full = jnp.stack([jnp.zeros_like(s.room), s.room])
    alone, crowded = jax.vmap(lambda beside: added(step, kinds, decoding, s, beside))(empty_full)
    share = rate * kinds.mean(alone)
    seen = s.base * pole(share) + rate * kinds.mean(alone**2) * pole(share**2)
    beside = (rate * seen + excess * clustered(rate * seen, variability)) * kinds.mean(kinds.fresh)
    cost = added(step, kinds, decoding, s, jnp.maximum(beside, 0.0))

    share = rate * kinds.mean(cost)  # of the time goes into prompts
    length = s.base * pole(share)  # of a step, on average
    load = rate * kinds.mean(crowded + kinds.fresh / s.room * s.base)  # if all steps are full
    own = cost + s.chunks * s.base

    # the running step, and prompts that come while it runs and share the next one
    coming = rate * length
    more = excess * clustered(coming, variability)
    gate = 0.5 * length + jnp.maximum(coming + more, 0.0) * kinds.mean(cost)
    idle = jnp.clip((1.0 - load) * pole(share), 0.0, 1.0)
    gate = gate * (1.0 - kinds.mean(1.0 - 1.0 / s.chunks) * (1.0 - idle))
    # one who finds nobody waits for no step
    gate = gate * -jnp.expm1(-decoding - rate * kinds.mean(own))
    # prompts before one's own that take several steps: between a gated queue, where all that
    # came during a step are served in the next, and one served in the order of arrival
    blocking = cost + (s.chunks - 1.0) * s.base
    gated = (1.0 + 2.0 * share / s.chunks) / (1.0 + share / s.chunks)
    mean = kinds.mean(blocking)
    burst, second = bursts(load, variability), kinds.mean(gated * blocking**2)
    queue = single_server_wait(rate, mean, second, load, variability, burst)
    near = (coming + jnp.maximum(more, 0.0)) * kinds.mean(cost**2)
    near = near + length**2 / 12.0 + (more * kinds.mean(cost)) ** 2
    # exact for Poisson arrivals, and for others before an exponential server
    third = rate * kinds.mean(blocking**3) * pole(load) / 3.0
    far = queue**2 + burst * third

    # a request that has its first token meets the prompts left behind it, then the average
    several = jnp.minimum(coming * kinds.mean(s.chunks - 1.0), 1.0)
    full = jnp.minimum(coming * kinds.mean(kinds.fresh) / s.room, 1.0)
    often = jnp.maximum(1.0 - (1.0 - several) * jnp.exp(-coming), full)  # of steps have prompts
    often = jnp.maximum(often, 1e-12)
    longer = jnp.minimum(share, 1.0) * length / often  # those are by so much
    busy = jnp.minimum(share + often * jnp.maximum(1.0 - share, 0.0), 1.0)  # of the time
    behind = (rate * (kinds.mean(own) + queue) + 0.5 * more) * kinds.mean(cost)
    least = jnp.maximum(busy - often, 0.0)
    met = jnp.maximum(behind, 0.0) * least / busy * pole(share)
    tokens = jnp.maximum(kinds.output - 1.0, 1e-3)
    met = met * -jnp.expm1(-tokens * least * longer / jnp.maximum(met, 1e-12))
    life = (s.base + often * longer) * tokens + met
    return Mix(
        own=own,
        wait=gate + queue,
        variance=near + far,
        life=kinds.mean(life),
        tpot=kinds.mean(life / tokens),
    )
