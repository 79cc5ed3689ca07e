"""Experts that a batch of tokens visits, how uneven their load is, and what their products cost."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.physics.numerics import square_root

NODES = 8
CROWDED = 0.999  # a visit more certain than this counts as this: its logarithm is finite


def visited_share(sparsity: Array, tokens: Array, skew: Array) -> Array:
    """The expected fraction of experts that ``tokens`` tokens visit, popularity falling as rank^-s.

    integral over x = 0 .. 1 of 1 - (1 - p(x))^N, p(x) = (A/E)(1 - s) x^-s: a continuum of ranks
    (Zipf's law; s = 0 is ``feedforward.visited_share``), p at most ``CROWDED``. By Gauss and
    Legendre on x = u^3, which tames the popular end; for s below 1.

    >>> one = jnp.asarray(1.0)
    >>> even, uneven = (visited_share(8 * one, 16 * one, s * one) for s in (0, 0.6))
    >>> bool(uneven < even)
    True
    """
    points, weights = np.polynomial.legendre.leggauss(NODES)
    points, weights = 0.5 * (1.0 + points), 0.5 * weights
    sparse = sparsity > 1.0 + 1e-9
    even = 1.0 / jnp.where(sparse, sparsity, 2.0)
    # an axis of its own for the points: a program is as long as what is written out in it
    even, tokens, skew = (jnp.asarray(x)[..., None] for x in (even, tokens, skew))
    popular = (1.0 - skew) * jnp.exp(-3.0 * skew * jnp.asarray(np.log(points), even.dtype))
    certain = jnp.minimum(even * popular, CROWDED)
    share = -jnp.expm1(tokens * jnp.log1p(-certain))
    part = jnp.asarray(3.0 * points**2 * weights, even.dtype)
    return jnp.where(sparse, jnp.sum(part * share, axis=-1), 1.0)


def popularity_spread(experts: Array, skew: Array) -> Array:
    """Relative standard deviation of the popularity of experts, where it falls as rank^-s.

    sqrt(m_2 / m_1^2 - 1), m_k = (1 - a^(1 - k s)) / ((1 - k s)(1 - a)) the mean of x^(-k s) over
    x = a .. 1, a = 1 / (2 E): the most popular of E experts is half a rank from the end.

    >>> float(popularity_spread(jnp.asarray(64.0), jnp.asarray(0.0)))
    0.0
    """
    decades = jnp.log(2.0 * jnp.maximum(experts, 1.0))
    # the mean of x^(-k s) is the mean of exp(-t) over t = 0 .. z = (1 - k s) ln(1 / a), but for a
    # factor: (1 - exp(-z)) / z, by its series where z is near 0
    span = (1.0 - jnp.stack([skew, 2.0 * skew])[..., None]) * decades.reshape(-1)
    near = jnp.abs(span) < 0.01
    away = jnp.where(near, 1.0, span)
    series = 1.0 - span / 2.0 * (1.0 - span / 3.0 * (1.0 - span / 4.0))
    first, second = jnp.where(near, series, -jnp.expm1(-away) / away)
    ratio = (second / first**2).reshape(decades.shape)
    return square_root(ratio * -jnp.expm1(-decades) / decades - 1.0)


def busiest(mean: Array, places: Array, random: Array, uneven: Array) -> Array:
    """Load of the busiest of several places over the mean load of one: at least 1.

    1 + sqrt(2 ln m) (k / sqrt(mean) + c), sqrt(2 ln m) the largest of m normal numbers: of Poisson
    counts of that mean (k, ``random``, is what balancing leaves of it), and of places that differ
    for good by a relative c, ``uneven``; their sum is a bound from above. A mean below 1 counts as
    1. Experts dealt to up to eight ranks: within a tenth of draws; to 32 ranks, where one expert
    can outweigh the others of its rank, a quarter to two fifths less than drawn, as of ranks that
    hold popular experts twice (DeepSeek-V3, arXiv 2412.19437, Section 3.4: redundant experts).

    >>> float(busiest(*map(jnp.asarray, (100.0, 1.0, 1.0, 1.0))))
    1.0
    """
    largest = square_root(2.0 * jnp.log(jnp.maximum(places, 1.0)))
    return 1.0 + largest * (random / jnp.sqrt(jnp.maximum(mean, 1.0)) + uneven)


def replicated_load(experts: Array, redundant: Array, places: Array, skew: Array) -> Array:
    """Load of the busiest of several places over the mean, with copies of popular experts.

    Copies go to the most popular experts until none has more than tau times the mean load of an
    expert: with R copies more than E experts of popularity (1 - s) x^-s,

        x_0 = (R / E)(1 - s) / s,  tau = (1 - s) x_0^-s,

    x_0 the share of experts that have copies. A place of n = (E + R) / m holds the most loaded with
    the least popular ones, 1 - s each: max(1, (tau + (n - 1)(1 - s)) m / E). Loads are those that
    the copies were placed for: what batches add by chance is ``busiest``'s.
    Source: DeepSeek-V3 (arXiv 2412.19437), Section 3.4.1, and deepseek-ai/EPLB: experts are copied
    by load, then packed so that places are balanced.

    >>> float(replicated_load(*map(jnp.asarray, (256.0, 32.0, 32.0, 0.7))))
    1.0
    """
    even, uneven = 1.0 - skew, jnp.maximum(skew, 1e-6)
    copied = jnp.clip(redundant / experts * even / uneven, 1e-6, 1.0)
    most = even * jnp.exp(-skew * jnp.log(copied))
    slots = jnp.maximum((experts + redundant) / places, 1.0)
    return jnp.maximum((most + (slots - 1.0) * even) * places / experts, 1.0)


def multiplied_rows(uses: Array, visited: Array, padding: Array) -> Array:
    """Rows that are multiplied: u + m_0 v, u uses of v experts.

    A kernel multiplies tiles of rows, and the last tile of every expert that is visited is filled
    in part: ``padding`` rows m_0 of an expert are multiplied for nothing. Linear in all three.

    >>> multiplied_rows(100.0, 8.0, 2.0)
    116.0
    """
    return uses + padding * visited


def moved_bytes(uses: Array, outer: Array, inner: Array, element: Array | float) -> Array:
    """Bytes of the inputs and outputs of the products, once: u (2 d + 3 f) a.

    A row of width d goes in and comes out, gate and up products write 2 f numbers and the product
    down reads f, each of ``element`` bytes a. f is the part of an expert's width on a chip.

    >>> moved_bytes(1.0, 4.0, 2.0, 2.0)
    28.0
    """
    return uses * (2.0 * outer + 3.0 * inner) * element
