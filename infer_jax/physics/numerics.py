"""Maximum, ceiling, floor and root with finite values and gradients everywhere.

Smoothing is one number for all of them: ``None`` is exact (it is structure, so the exact
program carries no trace of it), a float is a temperature that goes to the exact value at 0.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

Smoothing = Array | None


def maximum(a: Array, b: Array, smoothing: Smoothing = None) -> Array:
    """The larger of two non-negative numbers, or their p-norm with p = 1/smoothing.

    (a^p + b^p)^(1/p), scaled by the larger first so that microseconds in float32 do not
    underflow. Where exact, or both are 0, a tie shares the gradient equally; where one is 0 the
    gradient is the other's.

    >>> float(maximum(jnp.array(3.0), jnp.array(4.0), jnp.array(0.5)))
    5.0
    """
    if smoothing is None:
        return jnp.maximum(a, b)
    top, low = jnp.maximum(a, b), jnp.minimum(a, b)
    positive = low > 0
    ratio = jnp.log(jnp.where(positive, low, 1.0)) - jnp.log(jnp.where(positive, top, 1.0))
    lift = jnp.exp(smoothing * jnp.log1p(jnp.exp(ratio / smoothing)))
    return jnp.where(positive, top * lift, top)


def at_least(x: Array, least: float) -> Array:
    """The larger of x and its own lower bound; at the bound with the slope of x, which may grow.

    ``jnp.maximum`` halves the slope there, though no smaller x is allowed.

    >>> float(jax.grad(at_least)(1.0, 1.0)), float(jax.grad(jnp.maximum)(1.0, 1.0))
    (1.0, 0.5)
    """
    return jnp.where(x >= least, x, least)


def ceiling(x: Array, smoothing: Smoothing = None) -> Array:
    """The least integer of at least x (gradient 0), or a staircase with ramps of that width.

    Every ramp rises right of an integer over ``smoothing`` (at most 1: then it is x itself),
    so integers keep their value at any temperature.

    >>> float(ceiling(jnp.array(2.5), jnp.array(1.0))), float(ceiling(jnp.array(2.5)))
    (2.5, 3.0)
    """
    if smoothing is None:
        return jnp.ceil(x)
    below = lax.stop_gradient(jnp.floor(x))
    return below + jnp.clip((x - below) / jnp.minimum(smoothing, 1.0), 0.0, 1.0)


def flooring(x: Array, smoothing: Smoothing = None) -> Array:
    """The largest integer of at most x (gradient 0), or its ramped form as in ``ceiling``."""
    return jnp.floor(x) if smoothing is None else -ceiling(-x, smoothing)


def square_root(x: Array) -> Array:
    """The square root, with gradient 0 instead of infinity at x <= 0."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)


def present(rate: Array) -> Array:
    """A rate (bytes/s), or 1 where it is less: a link that is absent is slow, not infinite.

    A time over it is finite and its gradient 0 there, so that 0 bytes over no link take 0 s.

    >>> float(present(jnp.asarray(0.0))), float(present(jnp.asarray(8.0)))
    (1.0, 8.0)
    """
    return jnp.maximum(rate, 1.0)


def tick(index: Array, count: int, top: Array) -> Array:
    """The ``index``-th of ``count`` numbers spaced evenly in logarithm from 1 to ``top``.

    2^(index * log2(top) / (count - 1)); the first and the last are exactly 1 and ``top``,
    because one rounding error there decides feasibility.

    >>> [float(tick(jnp.array(float(j)), 3, jnp.array(16.0))) for j in range(3)]
    [1.0, 4.0, 16.0]
    """
    if count == 1:
        return jnp.ones_like(top)
    middle = jnp.exp2(index * (jnp.log2(top) / (count - 1)))
    return jnp.where(index <= 0, 1.0, jnp.where(index >= count - 1, top, middle))


def soft_weights(times: Array, shortfalls: Array, smoothing: Array) -> Array:
    """Shares of candidates (they sum to 1) that go to the best one as ``smoothing`` goes to 0.

    softmax(-(log t + shortfall) / smoothing) over the last axis.
    """
    score = -(jnp.log(times) + shortfalls) / smoothing
    return jax.nn.softmax(score, axis=-1)
