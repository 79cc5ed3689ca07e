"""What a package of several dies costs, as Chiplet Actuary accounts for it.

Feng and Ma, DAC 2022, arXiv 2203.12268; its program at b85c29f. Dies, yields and wafers are laws of
the library, checked against the same program (tests/golden/test_chips.py). The library's own
packages cost what foundries ask for them, seven times as much.
"""

from typing import NamedTuple

from infer_jax.silicon.bill import loss
from infer_jax.silicon.nodes import (
    Node,
    Wafer,
    clustered_yield,
    die_cost,
    die_yield,
    dies_per_wafer,
)

SCALE, PRICE, BUMP, BOND = 4.0, 5e3, 5e3, 0.99  # of a substrate: by area of dies, USD/m2, y_3
MICRO_BUMP = 1e4  # USD/m2 of dies on an interposer


class Interposer(NamedTuple):
    """Between dies and substrate: a wafer in USD, defects a m2, their clusters, area, bonds."""

    wafer: float
    defects: float
    clusters: float
    scale: float
    bond: float


SILICON = Interposer(1937.0, 600.0, 6.0, 1.1, 0.95)  # of wafers of a 55 nm process
FAN_OUT = Interposer(1200.0, 500.0, 3.0, 1.2, 0.98)  # layers of wires


class PackageBill(NamedTuple):
    """USD of a package by part, as the authors tell them apart."""

    raw_dies: float
    die_defects: float
    raw_package: float
    package_defects: float
    wasted_dies: float


def _dies(count: float, area: float, node: Node, bump: float) -> tuple[float, float]:
    """USD of equal dies with their bumps, and what defective ones add."""
    dies, works = dies_per_wafer(area, Wafer()), die_yield(area, node, Wafer())
    raw, good = float(die_cost(dies, 1.0, node)), float(die_cost(dies, works, node))
    return count * (raw + area * bump), count * (good - raw)


def substrate_bill(count: float, area: float, node: Node) -> PackageBill:
    """USD of a package of equal dies on an organic substrate (MCM; one die: an ordinary package).

    All n bonds have to hold, y^n; those that do not waste the substrate and every die on it.
    Several dies need more layers, by area: over 17 mm and over 30 mm square.
    """
    raw, defects = _dies(count, area, node, BUMP)
    size, holds = SCALE * count * area, BOND**count
    layers = 1.0 if count <= 1 else 2.0 if size > 900e-6 else 1.75 if size > 289e-6 else 1.5
    package = size * PRICE * layers
    wasted = (float(loss(x, holds)) for x in (package, raw + defects))
    return PackageBill(raw, defects, package, *wasted)


def interposer_bill(
    count: float, area: float, node: Node, interposer: Interposer, dies_first: bool = False
) -> PackageBill:
    """USD of a package of equal dies on an interposer on a substrate (2.5D).

    Dies last: an interposer that is defective, y_1, wastes itself, and bonds that fail, y_2^n of
    dies and y_3 of the substrate, waste the dies too. ``dies_first``: dies are moulded before the
    wires are made, so that y_1 y_3 waste everything and no bond of dies fails.
    """
    raw, defects = _dies(count, area, node, MICRO_BUMP)
    size = interposer.scale * count * area
    base = interposer.wafer / float(dies_per_wafer(size, Wafer())) + size * BUMP
    carrier = SCALE * size * PRICE
    made = float(clustered_yield(size * interposer.defects, interposer.clusters))
    bonds = 1.0 if dies_first else interposer.bond**count
    wasted = float(loss(base, made * BOND * bonds) + loss(carrier, BOND))
    kept = (made if dies_first else bonds) * BOND
    return PackageBill(raw, defects, base + carrier, wasted, float(loss(raw + defects, kept)))


def design_price(area: float, node: Node) -> float:
    """USD to design a die of modules that are new: N (0.2 + (0.5 + 0.3) A / 300 mm2).

    Half of a node's N goes with the area of modules, 0.3 with that of the die, the rest is fixed
    (its parameter.ini).
    """
    return float(node.design) * (0.2 + 0.8 * area / 300e-6)
