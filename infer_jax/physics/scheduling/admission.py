"""How many requests run at once, and how many must wait for a slot, for cache or for each other?

With attention data parallelism a pass is as long as that of its slowest group, so that TensorRT-LLM
can hold prompts back until each group has one to feed (``attention_dp_config.enable_balance``).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.physics.numerics import square_root
from infer_jax.physics.scheduling.kinds import Kinds, ServerLimits

BLUR, WAVES = 0.1, 5  # width, in requests, of a smoothed step of a staircase; terms of its series
SATURATING = 1e9  # requests in flight of which some always wait
TAIL_END = 12.0  # standard deviations beyond which a normal tail is zero
NODES = 10  # of the integrals of a balanced wait, which is right to 0.2 %
LATEST = 8.0  # arrivals of a group, after which it has one but for a chance of exp(-8)
TINY = 1e-12  # arrivals, of which the logarithm is finite


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


def balance_wait(arrivals: ArrayLike, groups: ArrayLike, timeout: ArrayLike) -> Array:
    """Passes that a prompt waits on average until each of ``groups`` groups has one to feed.

    Prompts reach each group at random, ``arrivals`` a pass. All that wait are let through when no
    group is without one, or when ``timeout`` = T passes have gone by since prompts were last let
    through, whether any waited or none. With F_n(t) = (1 - exp(-a t))^n, the chance that n groups
    have one within t passes, and by renewal,

        w = int_0^T t (1 - F_{G-1}(t)) dt / int_0^T (1 - F_G(t)) dt:

    T / 2 where prompts are rare, 0 for a single group.
    Source: TensorRT-LLM, _torch/pyexecutor/py_executor.py, _balance_adp_requests, without its
    ``batching_wait_iters``.

    >>> round(float(balance_wait(0.0, 8, 60.0)), 9), float(balance_wait(0.1, 1, 60.0))
    (30.0, 0.0)
    """
    points, weights = np.polynomial.legendre.leggauss(NODES)
    arrivals, groups, timeout = (
        (1.0 * jnp.asarray(x))[..., None] for x in (arrivals, groups, timeout)
    )
    share, weights = (jnp.asarray(0.5 * x, timeout.dtype) for x in (points + 1.0, weights))
    # where prompts come fast, all groups have one long before the timeout
    end = timeout / jnp.maximum(1.0, arrivals * timeout / (LATEST + jnp.log(groups)))
    one = jnp.log(-jnp.expm1(-(arrivals * end * share + TINY)))  # log F_1
    # not expm1, whose slope is its value and 1: of a chance near 0 few digits would be left
    others = jnp.exp((groups - 1.0) * one)
    waited = jnp.sum(weights * share * (1.0 - others), axis=-1)
    return end[..., 0] * waited / jnp.sum(weights * (1.0 - others * jnp.exp(one)), axis=-1)
