"""Experts that a batch of tokens visits, and how uneven their load is."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.physics.feedforward import touched
from infer_jax.physics.numerics import square_root

NODES = 8
CROWDED = 0.999  # a visit more certain than this counts as this: its logarithm is finite


def evenly(sparsity: Array, tokens: Array, skew: Array) -> Array:
    """The expected fraction of experts that ``tokens`` tokens visit, all equally popular."""
    return touched(sparsity, tokens)


def unevenly(sparsity: Array, tokens: Array, skew: Array) -> Array:
    """The expected fraction of experts visited where popularity falls as rank^-s.

    integral over x = 0 .. 1 of 1 - (1 - p(x))^N, p(x) = (A/E)(1 - s) x^-s: a continuum of ranks
    (Zipf's law; s = 0 is ``evenly``), p at most ``CROWDED``. By Gauss and Legendre on x = u^3,
    which tames the popular end; for s below 1.

    >>> one = jnp.asarray(1.0)
    >>> bool(unevenly(8 * one, 16 * one, 0.6 * one) < evenly(8 * one, 16 * one, one))
    True
    """
    points, weights = np.polynomial.legendre.leggauss(NODES)
    sparse = sparsity > 1.0 + 1e-9
    even = 1.0 / jnp.where(sparse, sparsity, 2.0)
    visited = jnp.asarray(0.0)
    for point, weight in zip(0.5 * (1.0 + points), 0.5 * weights, strict=True):
        popular = (1.0 - skew) * jnp.exp(-3.0 * skew * float(np.log(point)))
        certain = jnp.minimum(even * popular, CROWDED)
        share = -jnp.expm1(tokens * jnp.log1p(-certain))
        visited = visited + float(3.0 * point**2 * weight) * share
    return jnp.where(sparse, visited, 1.0)


def busiest(mean: Array, places: Array, spread: Array) -> Array:
    """Load of the busiest of several places over the mean load of one: at least 1.

    1 + k sqrt(2 ln m / mean): the largest of m Poisson counts of that mean, for k = 1; k is what
    balancing leaves of it. 1 where there is one place or k is 0. A mean below 1 counts as 1.

    >>> float(busiest(*map(jnp.asarray, (100.0, 1.0, 1.0))))
    1.0
    """
    largest = square_root(2.0 * jnp.log(jnp.maximum(places, 1.0)))
    return 1.0 + spread * largest / jnp.sqrt(jnp.maximum(mean, 1.0))
