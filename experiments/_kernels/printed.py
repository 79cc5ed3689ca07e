"""What does InferSim's report print: throughputs beside measurements, and balance points?

Table 2 and Section 2.3 of the technical report (Alibaba, September 2025).
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments._columns import printed_rows
from experiments._kernels.columns import KIND
from experiments._kernels.points import columns
from infer_jax.catalog import load_system
from infer_jax.catalog.published import kernels_constants, kernels_hardware, kernels_model
from infer_jax.estimators.kernels import Curves, Kernels, Tables
from infer_jax.estimators.kernels.kernel import Kernel
from infer_jax.specs import Chip

SHARED = {"target_isl": 4096.0, "num_nodes": 1.0, "tp_size": 1.0, "target_osl": 2048.0}
SHARED |= {"enable_deepep": 0.0, "enable_tbo": 0.0, "world_size": 1.0}


class Setting(NamedTuple):
    """One cell of Table 2: its settings, what was measured and what the paper simulates.

    ``tool`` is what the authors' program of May 2026 returns.
    """

    model: str
    config: str
    device: str
    fp8: bool
    stage: str
    given: dict[str, float]
    measured: float
    paper: float
    tool: float


def _setting(row: dict[str, str]) -> Setting:
    pairs = (pair.split("=") for pair in row["given"].split())
    given = {name: float(value) for name, value in pairs}
    names = (row[name] for name in ("model", "config", "device"))
    figures = (int(row[name]) for name in ("measured", "paper", "tool"))
    return Setting._make((*names, row["fp8"] == "1", row["stage"], given, *figures))


# two micro-batches of 8K tokens and of 64 requests make the paper's 16K and 128
TABLE_2 = tuple(map(_setting, printed_rows("kernels_table_2.csv")))


class Cell(NamedTuple):
    """Tokens per second and GPU of one setting, by tables and by curves; its kernels' bounds.

    ``bounds``: by kernel GFLOP, MB, FLOP per byte, the balance of the data sheet, and what bounds.
    """

    setting: Setting
    tables: float
    curves: float
    bounds: dict[str, tuple[float, float, float, float, str]]


def table_2(folder: Path, configs: Path) -> Iterator[Cell]:
    """Every cell, in the authors' assembly.

    Raises:
        InputError: a folder without the tables or configs.
    """
    constants = kernels_constants()
    for one in TABLE_2:
        chip = kernels_hardware(one.device)
        arch = kernels_model(configs / f"{one.config}_config.json", fp8_gemm=one.fp8)
        given = SHARED | {"sm_ratio": constants["sm_share"], "batch": 1.0}
        given |= {"max_prefill_tokens": 4096.0} | one.given
        looked_up = Tables.load(
            folder, one.device.lower(), chip.default_mfu, constants["missing_prefill"]
        )
        inputs = (arch, chip.hardware, given)
        tables, kernels = _run(Kernels.as_published(looked_up), *inputs, one.stage)
        curves, _ = _run(Kernels.as_published(curves_of(one.device)), *inputs, one.stage)
        sheet = load_system(f"{one.device.lower()}_sxm").hardware.chip
        with jax.enable_x64(True):
            bounds = {name: _bound(x, sheet) for name, x in kernels.items() if float(x.flops) > 0}
        yield Cell(one, tables, curves, bounds)


def _bound(kernel: Kernel, chip: Chip) -> tuple[float, float, float, float, str]:
    """By FLOP per byte against the peak over bandwidth of the data sheet."""
    balance = float(kernel.peak / chip.memory_bandwidth)
    bound = "compute" if kernel.compute_bound(chip) else "memory"
    flops, moved = float(kernel.flops) / 1e9, float(kernel.bytes) / 1e6
    return flops, moved, float(kernel.intensity), balance, bound


def curves_of(device: str) -> Curves:
    """The curves of one of the two devices, from its profile."""
    coefficients = load_system(f"{device.lower()}_sxm").coefficients["kernels"]
    fitted = Kernels.corrected().fitted(coefficients).efficiency
    assert isinstance(fitted, Curves)
    return fitted


def _run(
    model: Kernels, arch: Any, hardware: Any, given: Any, stage: str
) -> tuple[float, dict[str, Kernel]]:
    """Tokens per second and GPU, and the kernels, of one phase."""
    result = columns(model, [arch], hardware, [given])
    values, kernels = jax.tree.map(lambda x: x[0], result)
    ordered = {name: kernels[stage][name] for name in KIND if name in kernels[stage]}
    return float(values[stage][f"{stage}_tgs"]), ordered


class Balance(NamedTuple):
    """The sizes at which reading and computing take equally long, at 8 bits."""

    device: str
    whose: str
    ratio: float
    group: float
    heads: float
    batch: float
    spread: float

    @property
    def rounded(self) -> tuple[int, ...]:
        """The sizes as the paper prints them: halves rounded up."""
        return tuple(math.floor(x + 0.5) for x in self[3:])

    @property
    def agrees(self) -> bool:
        """Whether they are the paper's, where its constants are taken."""
        return self.whose != "paper" or self.rounded == PRINTED[self.device]


SPARSITY, LOAD = 8 / 256, {"H800": 128.0, "H20": 64.0}
PRINTED = {"H800": (296, 148, 9456, 74), "H20": (37, 19, 1184, 19)}


def balances() -> Iterator[Balance]:
    """Group size R/2, MLA heads R/4, MoE batch R/(2 S) and EP, by two bandwidths each.

    R is the 8-bit peak over bandwidth; the paper rounds it first.
    """
    for device, load in LOAD.items():
        paper = load_system(f"{device.lower()}_sxm").hardware.chip
        tool = kernels_hardware(device).hardware.chip
        for whose, chip in (("paper", paper), ("tool", tool)):
            ratio = float(chip.flops_8 / chip.memory_bandwidth)
            ratio = round(ratio) if whose == "paper" else ratio
            batch = ratio / (2 * SPARSITY)
            yield Balance(device, whose, ratio, ratio / 2, ratio / 4, batch, batch / load)
