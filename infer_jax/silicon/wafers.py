"""How many dies are on a wafer, and what does one cost?"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import at_least, square_root
from infer_jax.silicon.nodes import Node
from infer_jax.silicon.yields import clustered_yield, expected_defects
from infer_jax.specs import Spec, number, spec


@spec
class Wafer(Spec):
    """A wafer and how dies lie on it, by Chiplet Actuary; LLMCompass has no margins."""

    diameter: Array = number("diameter", unit="m", kind="size", default=0.3)
    margin: Array = number("width at the edge without dies", unit="m", kind="size", default=0.005)
    scribe: Array = number("width of a scribe lane", unit="m", kind="size", default=0.0002)
    clusters: Array = number("how defects cluster, a", kind="size", low=1e-3, default=10.0)


BARE = {"margin": 0.0, "scribe": 0.0}  # as LLMCompass counts dies


class DieCost(NamedTuple):
    """USD of a die, and of one that works."""

    raw: Array
    good: Array


def dies_per_wafer(area: Array, wafer: Wafer) -> Array:
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


def die_yield(area: Array, node: Node, wafer: Wafer) -> Array:
    """Share of dies of an area without a defect at a node."""
    return clustered_yield(expected_defects(area, node.defects), wafer.clusters)


def die_cost(dies: Array, working: Array, node: Node) -> DieCost:
    """USD of a die: price of a wafer / dies, and over the share that works."""
    raw = node.wafer / dies
    return DieCost(raw, raw / jnp.maximum(working, 1e-6))
