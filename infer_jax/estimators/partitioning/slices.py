"""The plan of the partitioning model: axes of a slice, weight layout, attention sharding."""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.errors import InputError
from infer_jax.physics.network.sharding import SlicedLayout, best_rows
from infer_jax.physics.numerics import tick
from infer_jax.specs import Architecture, Dense, Experts, Plan, Spec, number, part, spec, static

LAYOUTS = ("ws_1d", "ws_2d", "wg_x", "wg_xy", "wg_xyz")
ATTENTION = ("heads", "batch")
TRIED = (1.0, 0.0, 4.0, 3.0, 2.0)  # the codes of LAYOUTS in the order of a search
# Which axes x, y and z are: 0, 1, 2, none (3), or two as one (4: 0 and 1, 5: 0 and 2, 6: 1 and 2).
ORDERS = (
    *itertools.permutations(range(3)),
    *((3, 0, 6), (4, 2, 3), (5, 1, 3), (6, 0, 3)),
)
ROWS = 7  # values of x tried where a plan has no axes
Axes = tuple[Array, Array, Array]  # chips on x, y and z


@spec
class Slice(Plan):
    """A plan on x y z chips a stage; tensor and expert degrees are not read."""

    layout: Array = number(
        "how weights are cut: stationary (ws) or gathered (wg) over axes",
        kind="choice",
        high=4,
        default=1.0,
        choices=LAYOUTS,
    )
    x: Array = number("chips on the axis that cuts the model width", kind="count", default=1.0)
    y: Array = number("chips on the second axis", kind="count", default=1.0)
    z: Array = number("chips on the third axis", kind="count", default=1.0)
    attention: Array = number(
        "how attention is cut",
        kind="choice",
        high=1,
        default=0.0,
        choices=ATTENTION,
    )
    micro_batches: Array = number(
        "parts of the batch that follow each other through the stages", kind="count", default=1.0
    )

    @property
    def instance(self) -> Array:
        """Chips of one instance: x * y * z * pp."""
        return self.x * self.y * self.z * self.pp


class Sharding(NamedTuple):
    """One candidate: axes, code of the weight layout, code of the attention sharding."""

    x: Array
    y: Array
    z: Array
    layout: Array
    attention: Array

    @property
    def chips(self) -> Array:
        """Chips of one stage."""
        return self.x * self.y * self.z

    @property
    def cut(self) -> SlicedLayout:
        """How many chips share gathered weights, and the parts of the model width."""
        code, one = self.layout, jnp.ones_like(self.chips)
        gathered = jnp.where(code > 3.5, self.chips, self.x * self.y)
        gathered = jnp.where(code > 2.5, gathered, self.x)
        gathered = jnp.where(code > 1.5, gathered, one)
        two_d = (code > 0.5) & (code < 1.5)
        return SlicedLayout(self.chips, gathered, jnp.where(two_d, self.x, one))

    @property
    def shortest(self) -> Array:
        """Chips of the shortest axis that has more than one, or 1."""
        least = jnp.maximum(self.chips, 1.0)
        for axis in (self.x, self.y, self.z):
            least = jnp.where(axis > 1.0, jnp.minimum(least, axis), least)
        return least


def sharding_of(plan: Plan, arch: Architecture) -> Sharding:
    """The candidate that a plan names; one without axes cuts tp * ep chips.

    1-D, or 2-D with x at its real optimum (``best_rows``), y and z alike, attention by heads.
    """
    chips = plan.tp * plan.ep
    rows = jnp.clip(_best(arch, chips), 1.0, jnp.maximum(chips, 1.0))
    rest = jnp.sqrt(chips / rows)
    own = Slice.widen(plan, x=rows, y=rest, z=rest, attention=jnp.zeros_like(chips))
    return Sharding(own.x, own.y, own.z, own.layout, own.attention)


def axes_tried(plan: Plan) -> tuple[int, Callable[[Sharding, Array], Axes]]:
    """The number of ways to choose x, y and z, and the function that gives the way of an index.

    For a slice, the orders of its axes; for a plan without axes, x in steps even in logarithm from
    1 to all of its chips, y and z equal.
    """
    if isinstance(plan, Slice):
        return len(ORDERS), _ordered
    return ROWS, _on_ticks


def _ordered(own: Sharding, order: Array) -> Axes:
    x, y, z = own.x, own.y, own.z
    axes = jnp.stack([x, y, z, jnp.ones_like(own.chips), x * y, x * z, y * z])
    first, second, third = axes[jnp.asarray(ORDERS)[order]]
    return first, second, third


def _on_ticks(own: Sharding, order: Array) -> Axes:
    rows = tick(order.astype(jnp.result_type(own.chips)), ROWS, jnp.maximum(own.chips, 1.0))
    rest = jnp.sqrt(own.chips / rows)
    return rows, rest, rest


def _best(arch: Architecture, chips: Array) -> Array:
    """X* of the first block that has a feedforward; the root of the chips where none has."""
    for block in arch.blocks:
        if isinstance(block.feedforward, Dense):
            hidden, inward = block.feedforward.width, block.feedforward.inward
            return best_rows(chips, arch.width, hidden, inward)
        if isinstance(block.feedforward, Experts):
            inner = block.feedforward.active * block.feedforward.width
            return best_rows(chips, arch.width, inner, block.feedforward.inward)
    return jnp.sqrt(chips)


def factorisations(chips: int, axes: int = 3) -> tuple[tuple[int, int, int], ...]:
    """Shapes of a slice of ``chips`` chips, short sides first: x <= y <= z.

    Three axes: 2 x 2 x 1, 2 x 2 x 2, 2 x 2 x 4, 2 x 4 x 4, then any multiples of 4, which close
    into a torus. Two axes: powers of 2 up to 16, one side at most twice the other.
    Source: Google Cloud documentation, TPU v4 and v5e topologies; Jouppi et al. 2023 (arXiv
    2304.01433), Section 2.

    Raises:
        InputError: no such slice, such as 7 chips, with the nearest numbers that have one.

    >>> factorisations(16), factorisations(128), factorisations(32, axes=2)
    (((2, 2, 4),), ((4, 4, 8),), ((1, 4, 8),))
    """
    shapes = _shapes(chips, axes)
    if not shapes:
        near = [n for n in range(1, min(2 * chips, 2**14) + 2) if _shapes(n, axes)]
        near = sorted(sorted(near, key=lambda n: abs(n - chips))[:3])
        allowed = f"chips of a slice of a {axes}-D torus, such as {', '.join(map(str, near))}"
        raise InputError("slice", "chips", chips, allowed)
    return shapes


def arrangements(shape: tuple[int, int, int]) -> tuple[tuple[float, float, float], ...]:
    """Every x, y, z made of the axes of a slice, as a search tries them (``ORDERS``).

    >>> arrangements((1, 1, 4))
    ((1.0, 1.0, 4.0), (1.0, 4.0, 1.0), (4.0, 1.0, 1.0))
    """
    a, b, c = (float(side) for side in shape)
    axes = (a, b, c, 1.0, a * b, a * c, b * c)
    return tuple(dict.fromkeys((axes[i], axes[j], axes[k]) for i, j, k in ORDERS))


def _shapes(chips: int, axes: int) -> tuple[tuple[int, int, int], ...]:
    if axes < 3:
        sides = (1, 2, 4, 8, 16)
        return tuple((1, s, t) for s in sides for t in (s, 2 * s) if s * t == chips and t in sides)
    if chips < 64:
        small = ((1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2), (2, 2, 4), (2, 4, 4))
        return tuple(s for s in small if math.prod(s) == chips)
    if chips % 64 or chips > 2**16:
        return ()
    sides = [s for s in range(4, chips // 16 + 1, 4) if chips % s == 0]
    pairs = [(x, y) for x in sides for y in sides if x <= y and chips % (4 * x * y) == 0]
    return tuple((x, y, chips // (x * y)) for x, y in pairs if y <= chips // (x * y))


def slice_of(chips: int, **more: float) -> Slice:
    """The most cubic slice of ``chips`` chips as a plan, with more of its fields by name.

    Raises:
        InputError: no such slice, or a field out of bounds.

    >>> float(slice_of(64).instance), float(slice_of(32).x)
    (64.0, 2.0)
    """
    x, y, z = min(factorisations(chips), key=lambda s: s[2] - s[0])
    return Slice.of(x=x, y=y, z=z, **more)


@spec
class Coefficients(Spec):
    """Coefficients of a chip, which a profile gives, and whether layouts are searched.

    Without a profile's coefficients every rate is the data sheet's and nothing has a latency.
    """

    flop_cap: Array = number(
        "share of the peak rate that a large matmul reaches", kind="fraction", high=1, default=1.0
    )
    memory_cap: Array = number(
        "share of memory bandwidth sustained", kind="fraction", high=1, default=1.0
    )
    network_cap: Array = number(
        "share of network bandwidth sustained", kind="fraction", high=1, default=1.0
    )
    half_width: Array = number(
        "width of a weight shard at which half the matmul rate is reached",
        kind="size",
        default=0.0,
    )
    half_rows: Array = number(
        "tokens at which half the matmul rate is reached", unit="tokens", kind="size", default=0.0
    )
    collective: Array = number(
        "latency of a collective for every doubling of its chips",
        unit="s",
        kind="time",
        default=0.0,
    )
    layer_overhead: Array = number("fixed time of one layer", unit="s", kind="time", default=0.0)
    hidden_memory: Array = number(
        "part of the shorter of compute and memory that hides behind the longer",
        kind="fraction",
        high=1,
        default=1.0,
    )
    hidden_network: Array = number(
        "part of the shorter of those and the network that hides behind the longer",
        kind="fraction",
        high=1,
        default=1.0,
    )
    closing: Array = number(
        "chips from which a slice closes into a torus", kind="count", default=64.0
    )
    open_share: Array = number(
        "share of link bandwidth in a slice that is not closed",
        kind="fraction",
        high=1,
        default=0.5,
    )
    headroom: Array = number(
        "share of the memory kept free", kind="fraction", low=-1, high=1, default=0.0
    )
    smoothing: Array | None = part(
        "None: exact; a number: the temperature of every maximum and of the search",
        default_factory=lambda: None,
    )
    search: bool = static("search axes, weight and attention layouts", default=True)
