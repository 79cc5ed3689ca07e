"""What does a package of several dies cost, and what is thrown away on the way?

Chiplet Actuary (Feng and Ma, DAC 2022, arXiv 2203.12268; its program at b85c29f).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.silicon.nodes import values
from infer_jax.silicon.wafers import DieCost, Wafer, dies_per_wafer
from infer_jax.silicon.yields import clustered_yield, expected_defects
from infer_jax.specs import Spec, number, spec


@spec
class Substrate(Spec):
    """An organic substrate: area and price by area of the dies on it, and bonds that hold."""

    scale: Array = number("area over that of what it carries", kind="size", default=4.0)
    price: Array = number("price by area, one die", unit="USD/m2", kind="price", default=5e3)
    bump: Array = number("price of bumps by area", unit="USD/m2", kind="price", default=5e3)
    bond: Array = number("chance that a bond holds", kind="fraction", high=1, default=0.99)


@spec
class Interposer(Spec):
    """What lies between dies and substrate: silicon, or layers of wires (fan-out)."""

    wafer: Array = number("price of its wafer", unit="USD", kind="price")
    defects: Array = number("its defects by area", unit="1/m2", kind="size")
    clusters: Array = number("how its defects cluster", kind="size", low=1e-3)
    scale: Array = number("area over that of its dies", kind="size")
    bump: Array = number(
        "price of micro-bumps by area of dies", unit="USD/m2", kind="price", default=1e4
    )
    bond: Array = number("chance that a die's bond holds", kind="fraction", high=1)


@spec
class Assembly(Spec):
    """A package as a foundry sells it: by area of the interposer, with what fails in it."""

    price: Array = number("by area of the interposer", unit="USD/m2", kind="price")
    scale: Array = number("area of the interposer over what it carries", kind="size")
    bond: Array = number("chance that a bond holds", kind="fraction", high=1)
    other: Array = number("board, cooling and test", unit="USD", kind="price")


def assembly(name: str) -> Assembly:
    """A package by its name: CoWoS by Epoch AI's bills of H100 and B200 (press), or organic.

    Raises:
        InputError: no row of that name.
    """
    return Assembly.of(**values("packages", name))


class Dies(NamedTuple):
    """Equal dies of a package: how many, their area (m2) and their cost."""

    count: Array | float
    area: Array | float
    cost: DieCost


class PackageBill(NamedTuple):
    """USD of a package by part, as Chiplet Actuary tells them apart."""

    raw_dies: Array
    die_defects: Array
    raw_package: Array
    package_defects: Array
    wasted_dies: Array

    @property
    def total(self) -> Array:
        """All of it."""
        return sum(self, start=jnp.asarray(0.0))


def silicon_interposer() -> Interposer:
    """Chiplet Actuary's silicon interposer, of wafers of a 55 nm process."""
    return Interposer.of(wafer=1937, defects=600, clusters=6, scale=1.1, bond=0.95)


def fan_out() -> Interposer:
    """Chiplet Actuary's integrated fan-out: layers of wires."""
    return Interposer.of(wafer=1200, defects=500, clusters=3, scale=1.2, bond=0.98)


def dies_area(dies: Sequence[Dies]) -> Array:
    """Area of all dies of a package in m2."""
    return sum((jnp.asarray(d.count * d.area) for d in dies), start=jnp.asarray(0.0))


def die_count(dies: Sequence[Dies]) -> Array:
    """Dies of a package."""
    return sum((jnp.asarray(d.count) for d in dies), start=jnp.asarray(0.0))


def layer_factor(area: Array, count: Array) -> Array:
    """Price of a substrate over that of one die's, by its layers: 1; for several 1.5, 1.75 or 2.

    By its area: over 17 mm and over 30 mm square. A step, whose slope is 0.
    """
    several = jnp.where(area > 900e-6, 2.0, jnp.where(area > 289e-6, 1.75, 1.5))
    return jnp.where(count > 1.0, several, 1.0)


def raw_dies_price(dies: Sequence[Dies], bump: Array) -> Array:
    """USD of all dies with their bumps, whether they work or not."""
    each = (d.count * (d.cost.raw + d.area * bump) for d in dies)
    return sum(each, start=jnp.asarray(0.0))


def die_defects_price(dies: Sequence[Dies]) -> Array:
    """USD that defective dies add: good less raw."""
    each = (d.count * (d.cost.good - d.cost.raw) for d in dies)
    return sum(each, start=jnp.asarray(0.0))


def loss(price: Array, holds: Array) -> Array:
    """USD thrown away with what does not hold: price (1 / y - 1)."""
    return price * (1.0 / jnp.maximum(holds, 1e-6) - 1.0)


def substrate_bill(dies: Sequence[Dies], substrate: Substrate) -> PackageBill:
    """USD of a package of dies on an organic substrate (MCM; one die: an ordinary package).

    All n bonds have to hold, y^n; those that do not waste the substrate and every die on it.
    """
    raw, defects = raw_dies_price(dies, substrate.bump), die_defects_price(dies)
    area, count = substrate.scale * dies_area(dies), die_count(dies)
    package = area * substrate.price * layer_factor(area, count)
    holds = substrate.bond**count
    return PackageBill(raw, defects, package, loss(package, holds), loss(raw + defects, holds))


def interposer_price(
    area: Array, interposer: Interposer, substrate: Substrate, wafer: Wafer
) -> Array:
    """USD of an interposer of an area before defects: its share of a wafer, and its bumps."""
    return interposer.wafer / dies_per_wafer(area, wafer) + area * substrate.bump


def interposer_bill(
    dies: Sequence[Dies],
    interposer: Interposer,
    substrate: Substrate,
    wafer: Wafer,
    dies_first: Array | float = 0.0,
) -> PackageBill:
    """USD of a package of dies on an interposer on a substrate (2.5D).

    Dies last: an interposer that is defective, y_1, wastes itself, and bonds that fail, y_2^n of
    dies and y_3 of the substrate, waste the dies too. ``dies_first`` 1: dies are moulded before the
    wires are made, so that y_1 y_3 waste everything and no bond of dies fails.
    """
    raw, defects = raw_dies_price(dies, interposer.bump), die_defects_price(dies)
    area = interposer.scale * dies_area(dies)
    base = interposer_price(area, interposer, substrate, wafer)
    carrier = substrate.scale * area * substrate.price
    made = clustered_yield(expected_defects(area, interposer.defects), interposer.clusters)
    bonds = interposer.bond ** die_count(dies)
    first = jnp.asarray(dies_first) > 0.5
    wasted = loss(base, made * substrate.bond * jnp.where(first, 1.0, bonds))
    kept = jnp.where(first, made, bonds) * substrate.bond
    return PackageBill(
        raw,
        defects,
        base + carrier,
        wasted + loss(carrier, substrate.bond),
        loss(raw + defects, kept),
    )
