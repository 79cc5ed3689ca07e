"""How many bytes a second leave a die, over what area and along which length of its edge."""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import square_root
from infer_jax.silicon.nodes import values
from infer_jax.specs import Spec, number, part, spec

RETICLE = 858e-6  # m2: the field of a scanner, 26 by 33 mm


@spec
class Interface(Spec):
    """The end of a stack, channel, lane or link on a die, whose analogue PHY does not shrink."""

    lanes: Array = number("data lanes, one direction", kind="count")
    lane: Array = number("rate of a lane", unit="bytes/s", kind="rate")
    phy: Array = number("area of its PHY", unit="m2", kind="size")
    controller: Array = number("transistors of its controller", kind="count")
    edge: Array = number("length of die edge; 0: not known", unit="m", kind="size", default=0.0)
    energy: Array = number(
        "energy of a byte; 0: not known", unit="J/byte", kind="size", default=0.0
    )


@spec
class Stack(Spec):
    """A stack of memory dies: its interface, what it holds, and what a byte of it costs."""

    interface: Interface = part("its end on the die")
    capacity: Array = number("what it holds", unit="bytes", kind="capacity")
    footprint: Array = number("area on the interposer", unit="m2", kind="size")
    price: Array = number("of a byte, in its year", unit="USD/byte", kind="price")
    year: Array = number("of its price", kind="size")
    growth: Array = number("of its price by year", kind="size", low=-0.99, default=0.0)
    emissions: Array = number("of making a byte", unit="kg/byte", kind="size", default=0.0)


@spec
class Switch(Spec):
    """A switch between chips: its ports, what it draws and what it is sold for."""

    ports: Array = number("ports", kind="count", low=1)
    port: Array = number("rate of a port, one direction", unit="bytes/s", kind="rate")
    power: Array = number("what it draws", unit="W", kind="rate")
    price: Array = number("for which it is sold", unit="USD", kind="price")


def switch_share(one: Switch, rate: Array | float) -> Array:
    """Share of a switch that a chip of a rate of links uses: rate / (ports rate of a port)."""
    return jnp.asarray(rate / (one.ports * one.port))


def interface(name: str) -> Interface:
    """An interface by its name.

    >>> round(float(bandwidth(interface("nvlink4"), 18.0)) / 1e9)
    450

    Raises:
        InputError: no row of that name.
    """
    return Interface.of(**values("interfaces", name))


def stack(name: str) -> Stack:
    """A memory stack by its name.

    Raises:
        InputError: no row of that name.
    """
    return Stack.of(interface=interface(name), **values("stacks", name))


def bandwidth(one: Interface, count: Array | float) -> Array:
    """Bytes/s of ``count`` interfaces, one direction: count lanes rate."""
    return jnp.asarray(count * one.lanes * one.lane)


def perimeter(area: Array) -> Array:
    """Length of the edge of a square die in m: 4 sqrt(A); 0 with slope 0 where there is no die."""
    return 4.0 * square_root(jnp.asarray(area))


def memory_price(one: Stack, count: Array | float, year: Array | float) -> Array:
    """USD of ``count`` stacks: count capacity price (1 + g)^(year - year of the price)."""
    growth = (1.0 + one.growth) ** (year - one.year)
    return jnp.asarray(count * one.capacity * one.price * growth)
