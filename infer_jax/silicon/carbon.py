"""What does making a chip emit? In kg of CO2 equivalents, by node, memory and packages.

ACT (Gupta et al., ISCA 2022; facebookresearch/ACT).
"""

import jax.numpy as jnp
from jax import Array

from infer_jax.silicon.nodes import Node
from infer_jax.specs import Spec, number, spec

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
