"""How many dies are on a wafer, which share of them works, and what does one cost?"""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import at_least, square_root
from infer_jax.silicon.nodes import Node
from infer_jax.specs import Spec, number, spec

SPARE = 64  # most cores of a die that may be defective


@spec
class Wafer(Spec):
    """A wafer and how dies lie on it, by Chiplet Actuary; LLMCompass has no margins."""

    diameter: Array = number("diameter", unit="m", kind="size", default=0.3)
    margin: Array = number("width at the edge without dies", unit="m", kind="size", default=0.005)
    scribe: Array = number("width of a scribe lane", unit="m", kind="size", default=0.0002)
    clusters: Array = number("how defects cluster, a", kind="size", low=1e-3, default=10.0)


def dies_per_wafer(area: Array | float, wafer: Wafer) -> Array:
    """Dies of an area on a wafer, on average: pi r^2 / S - pi d / sqrt(2 S), at least 1.

    S = (sqrt A + s)^2 with scribe lanes s; r, d without the margin (Chiplet Actuary).
    A die that the formula does not place is one a wafer, with slope 0, as wafer-scale engines are;
    a die of no area counts as one of a square of scribe lanes.
    """
    usable = wafer.diameter - 2.0 * wafer.margin
    side = square_root(jnp.asarray(area)) + wafer.scribe
    present = side > 0
    safe = jnp.where(present, side, 1.0)
    count = jnp.pi * (0.5 * usable / safe) ** 2 - jnp.pi * usable / (jnp.sqrt(2.0) * safe)
    return jnp.where(present, at_least(count, 1.0), 1.0)


def clustered_yield(expected: Array | float, clusters: Array | float) -> Array:
    """Share of dies without a defect where defects cluster: (1 + A D / a)^-a, A D ``expected``.

    Negative binomial (Stapper 1973; Chiplet Actuary, which has a = 10 for dies, 6 for
    silicon interposers, 3 for layers of wires). exp(-A D), Poisson's, as a grows.
    """
    return jnp.exp(-clusters * jnp.log1p(expected / clusters))


def die_yield(area: Array | float, node: Node, wafer: Wafer) -> Array:
    """Share of dies of an area without a defect at a node."""
    return clustered_yield(area * node.defects, wafer.clusters)


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


def die_cost(dies: Array | float, working: Array | float, node: Node) -> Array:
    """USD of a die that works: price of a wafer / dies of it / share of them that works."""
    return node.wafer / dies / jnp.maximum(working, 1e-6)
