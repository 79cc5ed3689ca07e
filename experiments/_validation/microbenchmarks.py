"""What rows of one make cannot tell about another, from micro-benchmarks of both.

A chip's rate is its data sheet's, times what NVIDIA's rows say of servers, times the share of its
data sheet that the chip reaches in a benchmark over the share that NVIDIA's chips reach in it.
Where no benchmark has the chip, its make's other chips stand in; of launches no benchmark of these
chips is known, so that they are NVIDIA's.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from infer_jax.calibration.pooled.rows import PooledRow, system_named
from infer_jax.catalog.published import measured_rates
from infer_jax.specs import Hierarchy

AMD = {"cdna3": "mi300x", "cdna4": "mi355x"}
CHIPS = {"mi300x": "mi300x", "mi325x": "mi300x", "mi355x": "mi355x"}
QUANTITY = {"gemm_16": "gemm_16", "gemm_8": "gemm_8", "gemm_4": "gemm_8"}  # of a coefficient


@cache
def ratio(quantity: str, chip: str) -> float:
    """The share of its data sheet that an AMD chip reaches over that of NVIDIA's chips."""
    found: dict[str, list[float]] = {}
    for one in measured_rates():
        if one.quantity != quantity:
            continue
        shares = {name: x / _sheet(quantity, name) for name, x in one.measured.items()}
        others = [np.log(x) for name, x in shares.items() if name not in CHIPS]
        for name in shares.keys() & set(CHIPS):
            found.setdefault(name, []).append(float(np.log(shares[name]) - np.mean(others)))
    own = found.get(chip) or [x for logs in found.values() for x in logs]
    return float(np.exp(np.mean(own))) if own else 1.0


def of_coefficient(generation: str, field: str) -> float:
    """The factor of a coefficient of an AMD generation over what NVIDIA's share."""
    return ratio(QUANTITY[field], AMD[generation]) if field in QUANTITY else 1.0


def applied(rows: Sequence[PooledRow]) -> list[PooledRow]:
    """The rows with AMD's memory and links at the rates that micro-benchmarks have."""
    return [
        replace(row, rates=tuple(ratio(x, CHIPS[row.system]) for x in ("memory", "link")))
        if row.system in CHIPS
        else row
        for row in rows
    ]


def _sheet(quantity: str, name: str) -> float:
    """A rate of the data sheet in the units of the benchmarks."""
    hardware = system_named(name).hardware
    assert isinstance(hardware.network, Hierarchy)
    rate, unit = {
        "gemm_16": (hardware.chip.flops_16, 1e12),
        "gemm_8": (hardware.chip.flops_8, 1e12),
        "memory": (hardware.chip.memory_bandwidth, 1e12),
        "link": (hardware.network.domain_bandwidth, 1e9),
    }[quantity]
    return float(rate) / unit
