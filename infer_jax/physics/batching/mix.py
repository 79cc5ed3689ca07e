"""Delays that prompts cause one another and decoding requests."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.physics.batching.kinds import Kinds
from infer_jax.physics.batching.steps import Step, Steps, added
from infer_jax.physics.queueing import bursts, clustered, pole, single_server_wait


class Mix(NamedTuple):
    """Delays that prompts cause one another and decoding requests, in seconds."""

    own: Array  # time of the steps of one's own prompt, by kind
    wait: Array  # mean wait for the running step and the prompts before one's own
    variance: Array
    decode_time: Array  # mean time from the first token to the last
    tpot: Array  # mean over requests of that time per token


class Prompts(NamedTuple):
    """Prompts that arrive at a rate: the time each adds to steps, and how full steps are.

    ``cost``: seconds by kind that a prompt adds; ``load``: of the server if all steps are full;
    ``own``: seconds by kind of the steps of one's own prompt; ``share``: of the time that goes
    into prompts; ``length``: mean seconds of a step; ``coming``: prompts that come while a step
    runs; ``excess``: arrivals about an arrival beyond the average.
    """

    cost: Array
    load: Array
    own: Array
    share: Array
    length: Array
    coming: Array
    rate: Array
    variability: Array
    excess: Array


def mix(
    step: Step, kinds: Kinds, s: Steps, decoding: Array, rate: Array, variability: Array
) -> Mix:
    """The delays when ``rate`` prompts per second arrive at random moments of steps.

    Where arrivals come in bursts, ``excess`` of them are about an arrival beyond the average,
    half of them before it and half after; ``clustered`` says how soon.
    """
    prompts = _prompts(step, kinds, s, decoding, rate, variability)
    gate, queue, variance = _waits(kinds, s, decoding, prompts)
    decode_time, tokens = _decode_times(kinds, s, prompts, queue)
    return Mix(
        own=prompts.own,
        wait=gate + queue,
        variance=variance,
        decode_time=kinds.mean(decode_time),
        tpot=kinds.mean(decode_time / tokens),
    )


def _prompts(
    step: Step, kinds: Kinds, s: Steps, decoding: Array, rate: Array, variability: Array
) -> Prompts:
    """Time that a prompt adds to the steps it shares with others."""
    excess = variability - 1.0
    empty_full = jnp.stack([jnp.zeros_like(s.room), s.room])
    alone, crowded = jax.vmap(lambda beside: added(step, kinds, decoding, s, beside))(empty_full)
    share = rate * kinds.mean(alone)
    seen = s.base * pole(share) + rate * kinds.mean(alone**2) * pole(share**2)
    beside = (rate * seen + excess * clustered(rate * seen, variability)) * kinds.mean(kinds.fresh)
    cost = added(step, kinds, decoding, s, jnp.maximum(beside, 0.0))
    share = rate * kinds.mean(cost)
    length = s.base * pole(share)
    return Prompts(
        cost=cost,
        load=rate * kinds.mean(crowded + kinds.fresh / s.room * s.base),
        own=cost + s.chunks * s.base,
        share=share,
        length=length,
        coming=rate * length,
        rate=rate,
        variability=variability,
        excess=excess,
    )


def _waits(kinds: Kinds, s: Steps, decoding: Array, p: Prompts) -> tuple[Array, Array, Array]:
    """Mean waits for the running step and for prompts before one's own, and their variance."""
    # the running step, and prompts that come while it runs and share the next one
    more = p.excess * clustered(0.5 * p.coming, p.variability)
    gate = 0.5 * p.length + jnp.maximum(p.coming + more, 0.0) * kinds.mean(p.cost)
    idle = jnp.clip((1.0 - p.load) * pole(p.share), 0.0, 1.0)
    gate = gate * (1.0 - kinds.mean(1.0 - 1.0 / s.chunks) * (1.0 - idle))
    # a prompt that finds the server idle waits for no step
    gate = gate * -jnp.expm1(-decoding - p.rate * kinds.mean(p.own))
    # prompts ahead that take several steps: between a gated queue (all arrivals of one step are
    # served in the next) and one served in order of arrival
    blocking = p.cost + (s.chunks - 1.0) * s.base
    gated = (1.0 + 2.0 * p.share / s.chunks) / (1.0 + p.share / s.chunks)
    mean = kinds.mean(blocking)
    burst, second = bursts(p.load, p.variability), kinds.mean(gated * blocking**2)
    queue = single_server_wait(p.rate, mean, second, p.load, p.variability, burst)
    near = (p.coming + jnp.maximum(more, 0.0)) * kinds.mean(p.cost**2)
    near = near + p.length**2 / 12.0 + (more * kinds.mean(p.cost)) ** 2
    # exact for Poisson arrivals, and for others before an exponential server
    third = p.rate * kinds.mean(blocking**3) * pole(p.load) / 3.0
    return gate, queue, near + queue**2 + burst * third


def _decode_times(kinds: Kinds, s: Steps, p: Prompts, queue: Array) -> tuple[Array, Array]:
    """Seconds from the first token to the last, and tokens in them, by kind.

    After its first token a request is delayed by the prompts that arrived while it waited, then by
    the rest of its burst, and from then on by the average load.
    """
    several = jnp.minimum(p.coming * kinds.mean(s.chunks - 1.0), 1.0)
    full = jnp.minimum(p.coming * kinds.mean(kinds.fresh) / s.room, 1.0)
    # share of steps with prompts, seconds by which they are longer, their share of the time
    often = jnp.maximum(1.0 - (1.0 - several) * jnp.exp(-p.coming), full)
    often = jnp.maximum(often, 1e-12)
    longer = jnp.minimum(p.share, 1.0) * p.length / often
    busy = jnp.minimum(p.share + often * jnp.maximum(1.0 - p.share, 0.0), 1.0)
    own = kinds.mean(p.own)
    stay = own + queue + (s.base + often * longer) * kinds.mean(kinds.output - 1.0)
    later = 0.5 * p.excess * clustered(p.rate * stay, p.variability)
    behind = (p.rate * (own + queue) + later) * kinds.mean(p.cost)
    least = jnp.maximum(busy - often, 0.0)
    met = jnp.maximum(behind, 0.0) * least / busy * pole(p.share)
    tokens = jnp.maximum(kinds.output - 1.0, 1e-3)
    met = met * -jnp.expm1(-tokens * least * longer / jnp.maximum(met, 1e-12))
    return (s.base + often * longer) * tokens + met, tokens
