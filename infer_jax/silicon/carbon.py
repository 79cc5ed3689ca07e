"""What does making a chip emit? In kg of CO2 equivalents, by node, memory and packages.

ACT (Gupta et al., ISCA 2022; facebookresearch/ACT).
"""

import jax.numpy as jnp
from jax import Array

from infer_jax.catalog.published.tables import tables
from infer_jax.errors import InputError
from infer_jax.silicon.nodes import SOURCE, Node
from infer_jax.specs import Spec, number, spec

KWH = 3.6e6  # J
GRIDS = {  # kg/kWh, ACT carbon_intensity/
    "coal": 0.820,
    "gas": 0.490,
    "solar": 0.041,
    "wind": 0.011,
    "taiwan": 0.583,
    "usa": 0.380,
    "europe": 0.295,
    "world": 0.301,
}
# kg/GB of memory and storage before yield, ACT dram/, ssd/, hdd/
STORED = {
    "ddr3_50nm": 0.600,
    "ddr3_30nm": 0.230,
    "ddr4_10nm": 0.065,
    "lpddr4": 0.048,
    "nand_30nm": 0.031,
    "nand_10nm": 0.010,
    "nand_tlc_v3": 0.0063,
    "exos_x16": 0.001334,
}


@spec
class Fab(Spec):
    """Where and how a chip is made."""

    grid: Array = number("emissions of its electricity", unit="kg/kWh", kind="size", default=0.583)
    abated: Array = number(
        "share of gases that is abated", kind="fraction", low=0.95, high=0.99, default=0.97
    )
    working: Array = number("share of silicon that works", kind="fraction", high=1, default=0.875)
    package: Array = number("emissions of a package", unit="kg", kind="size", default=0.150)


def gas_emissions(node: Node, fab: Fab) -> Array:
    """Emissions of gases by area, kg/m2: between ACT's at 95 % and 99 % abated, on a line."""
    share = (fab.abated - 0.95) / 0.04
    return node.gases_95 + (node.gases_99 - node.gases_95) * share


def emissions_by_area(node: Node, fab: Fab) -> Array:
    """Emissions of finished silicon by area, kg/m2: (CI EPA + GPA + MPA) / Y.

    Electricity of the fab, gases and raw materials over the share that works (ACT, eq. 5).
    imec.netzero has 0.63 to 0.79 times as much from 28 to 3 nm, at 0.583 kg/kWh and Y = 1.
    """
    electricity = fab.grid / KWH * node.fab
    whole = electricity + gas_emissions(node, fab) + node.materials
    return whole / jnp.maximum(fab.working, 1e-6)


def die_emissions(area: Array, node: Node, fab: Fab) -> Array:
    """Emissions of a die in kg: A CPA (ACT, eq. 4)."""
    return area * emissions_by_area(node, fab)


def memory_emissions(size: Array | float, by_byte: Array | float, fab: Fab) -> Array:
    """Emissions of memory or storage in kg: capacity CPS / Y (ACT, eq. 6 to 8)."""
    return jnp.asarray(size * by_byte / jnp.maximum(fab.working, 1e-6))


def package_emissions(count: Array | float, fab: Fab) -> Array:
    """Emissions of packages in kg: N K, 150 g each (ACT, eq. 3)."""
    return jnp.asarray(count * fab.package)


def share_of_life(embodied: Array, used: Array, life: Array, energy: Array, grid: Array) -> Array:
    """Emissions in kg of a use: CI E + T / LT embodied (ACT, eq. 1 and 2), E in J."""
    return grid / KWH * energy + used / life * embodied


def emissions_by_byte(kind: str) -> float:
    """Emissions of a byte of a kind of memory or storage in kg, before yield.

    Raises:
        InputError: a kind that has no row.
    """
    if kind not in STORED:
        raise InputError("ACT", "memory or storage", kind, ", ".join(STORED))
    return STORED[kind] * 1e-9


def imec_emissions(name: str) -> float | None:
    """Emissions of silicon by area, kg/m2, as imec.netzero has them; None where it has no row."""
    found = tables(SOURCE)["imec"]["kg_per_cm2"].get(name)
    return None if found is None else found * 1e4
