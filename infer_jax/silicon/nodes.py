"""What a square metre of silicon holds, costs, draws and emits, by process node."""

from collections.abc import Mapping, Sequence
from functools import cache
from math import log
from statistics import NormalDist

import jax.numpy as jnp
from jax import Array

from infer_jax.catalog.published.tables import tables
from infer_jax.catalog.sheets import split_unit
from infer_jax.errors import InputError
from infer_jax.physics.numerics import at_least, square_root
from infer_jax.specs import Spec, number, spec

# of the suffixes of keys in the table; a key without one is a plain number
FACTORS = {
    "m_per_mm2": 1e12,
    "um2": 1e-12,
    "mm2": 1e-6,
    "mm": 1e-3,
    "usd": 1.0,
    "m_usd": 1e6,
    "per_cm2": 1e4,
    "kwh_per_cm2": 3.6e10,
    "g_per_cm2": 10.0,
    "gbit_per_s": 1.25e8,
    "m_transistors": 1e6,
    "pj_per_bit": 8e-12,
    "gb": 1e9,
    "mib": 2.0**20,
    "kib": 2.0**10,
    "w": 1.0,
    "ghz": 1e9,
    "gb_per_s": 1e9,
    "usd_per_kwh": 1.0,
    "usd_per_gb": 1e-9,
    "kg_per_gb": 1e-9,
    "usd_per_mm2": 1e6,
}
SOURCE = "silicon"
EXACT = {"lanes", "lane", "year", "capacity", "ports", "port"}
# root mean square log error on what no figure was taken from: areas of GH100 and Aldebaran, and
# H100's die, package and bill (tests/golden/test_chips.py)
UNSEEN = 0.13


@spec
class Node(Spec):
    """A process node: densities, price and defects of its wafers, energy and emissions of its fab.

    Zero where no source has a figure, so that what depends on it is refused at the door.
    """

    transistors: Array = number("transistors of logic by area", unit="1/m2", kind="size")
    wafer: Array = number("price of a wafer", unit="USD", kind="price")
    defects: Array = number("defects by area", unit="1/m2", kind="size")
    design: Array = number(
        "design of 300 mm2 to the first tape-out", unit="USD", kind="price", default=0.0
    )
    fab: Array = number("electricity of the fab by area", unit="J/m2", kind="size")
    gases_95: Array = number("emissions of gases, 95 % abated", unit="kg/m2", kind="size")
    gases_99: Array = number("emissions of gases, 99 % abated", unit="kg/m2", kind="size")
    materials: Array = number(  # ACT has 500 g/cm2 for every node
        "emissions of raw materials", unit="kg/m2", kind="size", default=5000.0
    )
    cache_bit: Array = number("area of a bit of cache", unit="m2", kind="size", default=0.0)
    bitcell: Array = number("area of a bit cell of SRAM", unit="m2", kind="size", default=0.0)
    energy: Array = number("energy of an operation over that at 7 nm", kind="size", default=0.0)


def quantity(key: str) -> tuple[str, float]:
    """The name in a key of the table and the factor of its unit to SI.

    >>> quantity("cache_bit_um2"), quantity("energy")
    (('cache_bit', 1e-12), ('energy', 1.0))
    """
    return split_unit(key, FACTORS) or (key, 1.0)


@cache
def figures(kind: str, name: str) -> Mapping[str, tuple[float, float, float]]:
    """(value, low, high) in SI of a row of the table, by field; all equal without a second source.

    Raises:
        InputError: no row of that name.
    """
    rows = tables(SOURCE)[kind]
    if name not in rows:
        raise InputError(SOURCE, kind, name, ", ".join(rows))
    found: dict[str, tuple[float, float, float]] = {}
    for key, cell in rows[name].items():
        field, factor = quantity(key)
        value = cell["value"]
        ends = (value, cell.get("low", value), cell.get("high", value))
        found[field] = (ends[0] * factor, ends[1] * factor, ends[2] * factor)
    return found


def values(kind: str, name: str) -> dict[str, float]:
    """The numbers of a row, in SI, by field."""
    return {field: ends[0] for field, ends in figures(kind, name).items()}


def deviations(kind: str, name: str) -> dict[str, float]:
    """Standard deviations of the logarithms of a row's numbers, by field.

    Of the range that its sources give, which counts as 80 %; without a second source ``UNSEEN``;
    0 for what a standard, a date or a buyer's choice fixes.
    """
    found: dict[str, float] = {}
    for field, (value, low, high) in figures(kind, name).items():
        fixed = field in EXACT or value <= 0
        widest = 1.0 if fixed else max(high / value, value / low)
        alone = 0.0 if fixed else UNSEEN
        found[field] = log(widest) / NormalDist().inv_cdf(0.9) if widest > 1 else alone
    return found


def node(name: str, needs: Sequence[str] = ()) -> Node:
    """A process node by its name, with figures for all fields that are needed.

    >>> float(node("n7", ["energy"]).transistors)
    96300000000000.0

    Raises:
        InputError: a node that has no row, or no figure that is needed.
    """
    found = values("nodes", name)
    for field in needs:
        if not found.get(field):
            having = (x for x in tables(SOURCE)["nodes"] if values("nodes", x).get(field))
            raise InputError(SOURCE, field, f"no figure for {name}", ", ".join(having))
    return Node.of(**found)


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
