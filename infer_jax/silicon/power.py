"""What do arrays compute and draw, and how fast may they run within the limit of their package?"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.root import crossing
from infer_jax.silicon.nodes import Node
from infer_jax.specs import Spec, number, spec


@spec
class OperationEnergy(Spec):
    """Energy of operations at 7 nm (Jouppi et al. 2021, Ten lessons, ISCA, Table 2).

    A multiplication takes a + b (m + 1)^2 for m bits of mantissa: through the table's bfloat16,
    0.21 pJ, and 32 bits, 1.31 pJ; 16 bits come out as 0.332 pJ, where it has 0.34. It has no
    narrower float: those multiply as integers do, and add exponents.
    """

    multiply: Array = number("of a multiplication, a", unit="J", kind="size", default=0.0725e-12)
    multiply_bit: Array = number(
        "of a multiplication by its bits squared, b", unit="J", kind="size", default=2.1484375e-15
    )
    add: Array = number("of an addition in 32 bits", unit="J", kind="size", default=0.38e-12)
    add_bit: Array = number(  # through bfloat16, 0.11 pJ; 16 bits come out as 0.16, as they are
        "less for each bit narrower", unit="J", kind="size", default=1.6875e-14
    )
    integer: Array = number(
        "of a multiplication of 8 bits of integers", unit="J", kind="size", default=0.07e-12
    )
    exponent: Array = number(
        "of an addition of 8 bits of integers", unit="J", kind="size", default=0.007e-12
    )
    sram: Array = number(  # 8.5 pJ for 8 bytes of 32 KB
        "of a byte of SRAM", unit="J/byte", kind="size", default=1.0625e-12
    )


class PowerParts(NamedTuple):
    """Watts of a chip by part."""

    static: Array
    compute: Array
    operands: Array
    memory: Array
    links: Array

    @property
    def total(self) -> Array:
        """All of it."""
        return sum(self, start=jnp.asarray(0.0))


def flops(
    cores: Array | float,
    lanes: Array | float,
    rows: Array | float,
    columns: Array | float,
    clock: Array | float,
    wide: Array | float = 1.0,
) -> Array:
    """Dense FLOP/s of all arrays: 2 n_cores n_lanes r c f, times products an element does a cycle.

    ``cores`` that are switched on; ``wide``: 2 where two 8-bit products take the place of a 16-bit
    one.

    >>> round(float(flops(108, 4, 16, 16, 1.41e9)) / 1e12, 1)  # A100
    311.9
    """
    return jnp.asarray(2.0 * cores * lanes * rows * columns * clock * wide)


def product_energy(bits: int, mantissa: Array | float, energy: OperationEnergy) -> Array:
    """Joules of a product of floats of m bits of mantissa at 7 nm: a + b (m + 1)^2.

    Of 8 bits or 4 it is e_8 ((m + 1) / 8)^2 + e_exponent: significands multiply as integers do, and
    exponents add; exact, without rounding.
    """
    if bits < 16:
        return jnp.asarray(energy.integer * ((mantissa + 1.0) / 8.0) ** 2 + energy.exponent)
    return jnp.asarray(energy.multiply + energy.multiply_bit * (mantissa + 1.0) ** 2)


def element_energy(
    each: Array,
    mantissa: Array | float,
    products: Array | float,
    node: Node,
    energy: OperationEnergy,
) -> Array:
    """Joules of a cycle of an array's element, in which p products of m bits are made, at a node.

    p products of ``each`` J, p - 1 additions of 2 (m + 1) bits, exact, among each other, and one in
    32 bits. Between no product and one only that one addition is counted.
    """
    narrow = energy.add - energy.add_bit * (24.0 - 2.0 * (mantissa + 1.0))
    sums = jnp.maximum(products - 1.0, 0.0) * narrow + energy.add
    return node.energy * (products * each + sums)


def operand_energy(
    rows: Array | float,
    columns: Array | float,
    size: Array | float,
    node: Node,
    energy: OperationEnergy,
) -> Array:
    """Joules that reading operands from SRAM adds to a FLOP: s (r + c) / (2 r c) e, at a node.

    Every cycle r + c operands of s bytes enter an array of r x c elements, for 2 r c FLOP: large
    arrays read little.
    """
    read = size * (rows + columns) / (2.0 * rows * columns)
    return jnp.asarray(read * energy.sram * node.energy)


def clocked_power(share: Array, full: Array | float, floor: Array | float) -> Array:
    """Watts of logic at a share x of its clock: P x v^2, with voltage v = v_0 + (1 - v_0) x.

    ``floor`` v_0: voltage at which the clock stands, over that at full clock; 1: the voltage is
    fixed and power linear, 0: it is cubic.
    """
    voltage = floor + (1.0 - floor) * share
    return full * share * voltage**2


def clock_share(
    limit: Array | float,
    fixed: Array | float,
    full: Array | float,
    floor: Array | float,
    least: Array | float,
) -> Array:
    """Share of the clock at which a chip draws no more than its limit: the x with

    fixed + P x v(x)^2 = limit, between ``least`` and 1. ``fixed``: watts that do not follow the
    clock; ``full``: of logic at full clock, of one or several. The slope is the implicit
    function's; where the limit does not bind, or binds below ``least``, it is that of the end.
    """

    def excess(share: Array) -> Array:
        return fixed + clocked_power(share, full, floor) - limit

    ends = jnp.broadcast_to(least, jnp.shape(full))
    return crossing(excess, ends, jnp.ones_like(ends))
