"""How many requests run at once, and how many must wait for a slot or for cache?"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import square_root
from infer_jax.physics.scheduling.kinds import Kinds, ServerLimits

BLUR, WAVES = 0.1, 5  # width, in requests, of a smoothed step of a staircase; terms of its series
SATURATING = 1e9  # requests in flight of which some always wait
TAIL_END = 12.0  # standard deviations beyond which a normal tail is zero


class CacheLimit(NamedTuple):
    """Requests that a cache holds: mean and variation, as real numbers."""

    limit: Array  # requests that run when others wait for the cache
    varied: Array  # squared coefficient of variation of the tokens that a request holds
    tokens: Array  # tokens that a request of each kind holds


def memory(kinds: Kinds, server: ServerLimits) -> CacheLimit:
    """The requests that the cache holds at once: (cache - gap) / h.

    h is what a request holds, weighted in its mean by how long it runs; half of its last block
    is empty. The first that waits leaves part of what it needs unused, for no later one passes
    it: E[h^2] / (2 E[h]) on average where requests differ, and what is left of a whole number
    of them where they do not.
    """
    tokens = kinds.cached + kinds.fresh + server.reserved * kinds.output + server.block / 2.0
    here = kinds.weight * kinds.output
    mean = jnp.sum(here * tokens) / jnp.sum(here)
    varied = jnp.sum(here * (tokens / mean - 1.0) ** 2) / jnp.sum(here)
    fit = server.cache / mean
    left = fraction(fit, square_root(varied * fit))
    gap = kinds.mean(tokens**2) / kinds.mean(tokens) * left
    return CacheLimit(jnp.maximum(server.cache - gap, server.cache / 2.0) / mean, varied, tokens)


def fraction(x: Array, deviation: Array) -> Array:
    """Mean of y - floor(y), y normal about ``x``; at least a ``BLUR`` wide, for a derivative.

    1/2 - sum_k sin(2 pi k x) exp(-2 (pi k s)^2) / (pi k), the series of a sawtooth, each wave
    damped as a normal distribution damps it.
    """
    k = jnp.pi * (1.0 + jnp.arange(WAVES))
    spread = jnp.minimum(deviation**2 + BLUR**2, 1.0)
    return 0.5 - jnp.sum(jnp.sin(2.0 * k * x) * jnp.exp(-2.0 * k**2 * spread) / k)


class Admitted(NamedTuple):
    """Requests that run and those that wait, on average; ``varied`` the variance of the latter."""

    run: Array
    wait: Array
    varied: Array


def admit(concurrency: Array, server: ServerLimits, held: CacheLimit) -> Admitted:
    """Requests that run and that wait, of ``concurrency`` in flight, within slots and cache.

    E[max(n - N, 0)] wait for the cache, N the number that it holds, normally distributed.
    """
    wanted = jnp.minimum(concurrency, server.slots)
    spread = square_root(held.varied * jnp.minimum(wanted, held.limit)) + 1e-3
    over = wanted - held.limit
    x = jnp.clip(over / spread, -TAIL_END, TAIL_END)
    short, density = jax.scipy.stats.norm.cdf(x), jax.scipy.stats.norm.pdf(x)
    excess = jnp.maximum(over * short + spread * density, 0.0)
    second = (over**2 + spread**2) * short + over * spread * density
    # run and wait are computed apart: a difference of nearly equal numbers would lose its digits
    run = wanted * jax.scipy.stats.norm.cdf(-x) + held.limit * short - spread * density
    wait = jnp.maximum(concurrency - server.slots, 0.0) + excess
    return Admitted(run, wait, jnp.maximum(second - excess**2, 0.0))


def running(requests: Array, places: Array, sharpness: Array) -> Array:
    """Requests that run when ``places`` is all there is room for: the smaller of both, smoothly.

    C (1 + (C / cap)^s)^(-1/s), written with logarithms because the power overflows float32. At
    C = cap it is 2^(-1/s) of either: where lengths vary, the memory is not always used up.

    >>> round(float(running(*map(jnp.asarray, (100.0, 1e6, 16.0)))), 3)
    100.0
    """
    each = jnp.logaddexp(-sharpness * jnp.log(requests), -sharpness * jnp.log(places))
    return jnp.exp(-each / sharpness)
