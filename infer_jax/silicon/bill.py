"""What do the parts of an accelerator cost, and what an hour of it?"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.silicon.nodes import Node
from infer_jax.specs import Spec, number, spec

HOURS = 8766.0  # of a year
KILOWATT = 1e3
DESIGN_AREA = 300e-6  # m2 of the dies whose design the table has the price of
FIXED_DESIGN = 0.2  # share of it that is the same for every area


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


def bill_of_materials(
    logic: Array, memory: Array, package: Array, other: Array, working: Array
) -> Bill:
    """USD of an accelerator: good dies, stacks, package, what fails with them, and the rest.

    Loss: (logic + memory + package) (1 / y - 1), for a package that fails takes all with it.
    """
    lost = (logic + memory + package) * (1.0 / jnp.maximum(working, 1e-6) - 1.0)
    return Bill(logic, memory, package, lost, other)


def design_price(area: Array | float, node: Node) -> Array:
    """USD to design a die of modules that are new: N (0.2 + (0.5 + 0.3) A / 300 mm2).

    Half of a node's N goes with the area of modules, 0.3 with that of the die, the rest is fixed
    (Chiplet Actuary, its parameter.ini). Over all that are sold it is a small share.
    """
    return node.design * (FIXED_DESIGN + (1.0 - FIXED_DESIGN) * area / DESIGN_AREA)


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
