"""What do prompts do to one another and to decoding requests?"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.physics.batching.kinds import Kinds
from infer_jax.physics.batching.steps import Step, Steps, added
from infer_jax.physics.queueing import bursts, clustered, pole, single_server_wait


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
    """``rate`` prompts come a second, in the midst of steps.

    Where arrivals come in bursts, ``excess`` of them are about an arrival beyond the average,
    half before it and half after; ``clustered`` says how near.
    """
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
    more = excess * clustered(0.5 * coming, variability)
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

    # a request that has its first token meets the prompts left behind it and the rest of its
    # burst, then the average
    several = jnp.minimum(coming * kinds.mean(s.chunks - 1.0), 1.0)
    full = jnp.minimum(coming * kinds.mean(kinds.fresh) / s.room, 1.0)
    often = jnp.maximum(1.0 - (1.0 - several) * jnp.exp(-coming), full)  # of steps have prompts
    often = jnp.maximum(often, 1e-12)
    longer = jnp.minimum(share, 1.0) * length / often  # those are by so much
    busy = jnp.minimum(share + often * jnp.maximum(1.0 - share, 0.0), 1.0)  # of the time
    stay = kinds.mean(own) + queue + (s.base + often * longer) * kinds.mean(kinds.output - 1.0)
    later = 0.5 * excess * clustered(rate * stay, variability)
    behind = (rate * (kinds.mean(own) + queue) + later) * kinds.mean(cost)
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
