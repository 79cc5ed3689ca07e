"""Which share of dies works?"""

import jax.numpy as jnp
from jax import Array

SPARE = 64  # most cores of a die that may be defective


def expected_defects(area: Array | float, defects: Array | float) -> Array:
    """Defects of a die: A D."""
    return jnp.asarray(area * defects)


def poisson_yield(expected: Array) -> Array:
    """Share of dies without a defect where defects fall independently: exp(-A D)."""
    return jnp.exp(-expected)


def clustered_yield(expected: Array, clusters: Array | float) -> Array:
    """Share of dies without a defect where defects cluster: (1 + A D / a)^-a.

    Negative binomial (Stapper 1973; Chiplet Actuary, which has a = 10 for dies, 6 for
    silicon interposers, 3 for layers of wires). Poisson's as a grows.
    """
    return jnp.exp(-clusters * jnp.log1p(expected / clusters))


def harvested_yield(core: Array, cores: Array | float, spare: Array | float) -> Array:
    """Share of dies with at most ``spare`` defective cores of ``cores``, each good with chance y.

    sum_{j <= k} C(n, j) (1 - y)^j y^(n - j): cores fail independently, each with a chance of at
    least 1e-12 and at most 1 - 1e-6, above which the slope is 0. Between whole numbers of spare
    cores, of which 64 count, the chance is joined by a straight line, so that they have a slope.
    """
    good = jnp.clip(core, 1e-6, 1.0)
    fails = 1e-12 + (1.0 - 1e-12) * (1.0 - good)
    j = jnp.arange(SPARE)
    ways = jnp.maximum(cores - j, 0.0) / (j + 1.0)
    some = ways > 0
    # in logarithms: of a hundred cores there are more ways to choose than 32 bits hold
    steps = jnp.where(some, jnp.log(jnp.where(some, ways, 1.0)) + jnp.log(fails / good), -1e4)
    powers = jnp.concatenate([jnp.zeros(1), jnp.cumsum(steps)])
    counted = jnp.clip(spare + 1.0 - jnp.arange(SPARE + 1), 0.0, 1.0)
    return jnp.sum(counted * jnp.exp(cores * jnp.log(good) + powers))
