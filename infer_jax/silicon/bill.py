"""What do the parts of an accelerator cost, and what an hour of it?

What does making a chip emit? In kg of CO2 equivalents, by node, memory and packages.

ACT (Gupta et al., ISCA 2022; facebookresearch/ACT).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.silicon.nodes import Node
from infer_jax.specs import Spec, number, spec

HOURS = 8766.0  # of a year
KILOWATT = 1e3


class Bill(NamedTuple):
    """USD of an accelerator by part (the parts of Epoch AI's bills)."""

    logic: Array
    memory: Array
    package: Array
    loss: Array
    other: Array

    @property
    def total(self) -> Array:
        """All of it."""
        return sum(self, start=jnp.asarray(0.0))


@spec
class Assembly(Spec):
    """A package as a foundry sells it: by area of the interposer, with what fails in it.

    CoWoS by Epoch AI's bills of H100 and B200 (press), or organic.
    """

    price: Array = number("by area of the interposer", unit="USD/m2", kind="price")
    scale: Array = number("area of the interposer over what it carries", kind="size")
    bond: Array = number("chance that a bond holds", kind="fraction", high=1)
    other: Array = number("board, cooling and test", unit="USD", kind="price")


@spec
class Ownership(Spec):
    """For how long a server is owned, on what terms, and what surrounds the accelerator in it."""

    years: Array = number("over which it is paid off", kind="size", low=0.1, default=4.0)
    interest: Array = number("cost of capital by year", kind="size", default=0.0)
    used: Array = number("share of hours that are sold", kind="fraction", high=1, default=1.0)
    pue: Array = number("power of the building over its machines'", kind="size", low=1, default=1)
    electricity: Array = number("price of electricity", unit="USD/kWh", kind="price", default=0.08)
    space: Array = number("rent of space by power", unit="USD/(kW h)", kind="price", default=0.0)
    grid: Array = number(  # the world's mean (ACT)
        "emissions of its electricity", unit="kg/kWh", kind="size", default=0.301
    )
    around: Array = number(
        "price of server, switches and network over the accelerator's", kind="size", default=0.0
    )


def assembly_yield(dies: Array | float, bond: Array | float) -> Array:
    """Share of packages that work: y^n for n dies and stacks, each bonded with chance y.

    0.98 a bond, as Chiplet Actuary has it for fan-out, gives what Epoch AI says is lost of B200,
    ten dies and stacks: 22 % of logic, memory and package.
    """
    return jnp.asarray(bond**dies)


def loss(price: Array | float, holds: Array | float) -> Array:
    """USD thrown away with what does not hold: price (1 / y - 1)."""
    return price * (1.0 / jnp.maximum(holds, 1e-6) - 1.0)


def bill_of_materials(
    logic: Array, memory: Array, package: Array, other: Array, working: Array
) -> Bill:
    """USD of an accelerator: good dies, stacks, package, what fails with them, and the rest.

    A package that fails takes logic, memory and package with it.
    """
    return Bill(logic, memory, package, loss(logic + memory + package, working), other)


def sale_price(bill: Array, margin: Array | float) -> Array:
    """USD for which an accelerator is sold: bill / (1 - gross margin)."""
    return bill / jnp.maximum(1.0 - margin, 1e-6)


def annuity(years: Array | float, interest: Array | float) -> Array:
    """Share of a price that is paid each year: r / (1 - (1 + r)^-n); 1 / n without interest.

    Near r = 0 its first terms, 1 / n + r (n + 1) / (2 n), so that value and slope go on.
    """
    small = jnp.abs(interest) < 1e-3
    rate = jnp.where(small, 0.05, interest)
    exact = rate / -jnp.expm1(-years * jnp.log1p(rate))
    return jnp.where(small, 1.0 / years + interest * (years + 1.0) / (2.0 * years), exact)


def rent(price: Array, watts: Array, own: Ownership) -> Array:
    """USD of an hour that is sold: (capital + electricity + space) / share of hours sold.

    Capital: price (1 + around) annuity / 8766 h; electricity: P PUE price; space: by kW.
    """
    capital = price * (1.0 + own.around) * annuity(own.years, own.interest) / HOURS
    running = watts / KILOWATT * (own.pue * own.electricity + own.space)
    return (capital + running) / jnp.maximum(own.used, 1e-6)


KWH = 3.6e6  # J


@spec
class Fab(Spec):
    """Where and how a chip is made."""

    grid: Array = number("emissions of its electricity", unit="kg/kWh", kind="size", default=0.583)
    abated: Array = number(
        "share of gases that is abated", kind="fraction", low=0.95, high=0.99, default=0.97
    )
    working: Array = number("share of silicon that works", kind="fraction", high=1, default=0.875)
    package: Array = number(  # ACT, eq. 3
        "emissions of a package", unit="kg", kind="size", default=0.150
    )


def emissions_by_area(node: Node, fab: Fab) -> Array:
    """Emissions of finished silicon by area, kg/m2: (CI EPA + GPA + MPA) / Y (ACT, eq. 5).

    Electricity of the fab, gases and raw materials over the share that works. Gases are between
    ACT's at 95 % and 99 % abated, on a line. imec.netzero has 0.63 to 0.79 times as much from 28 to
    3 nm, at 0.583 kg/kWh and Y = 1.
    """
    share = (fab.abated - 0.95) / 0.04
    gases = node.gases_95 + (node.gases_99 - node.gases_95) * share
    whole = fab.grid / KWH * node.fab + gases + node.materials
    return whole / jnp.maximum(fab.working, 1e-6)


def die_emissions(area: Array, node: Node, fab: Fab) -> Array:
    """Emissions of a die in kg: A CPA (ACT, eq. 4)."""
    return area * emissions_by_area(node, fab)
