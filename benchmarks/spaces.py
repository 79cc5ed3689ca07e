"""The grids of the benchmark of sweeps: one of layouts, and one for each estimator."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.estimators import Economics, Offload, make
from infer_jax.estimators.kernels import Kernels, KernelsPlan, Tables
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import Axis, Space

POINTS = 400  # per axis of the grid of layouts
MODEL, CHIP = "Llama_3_70B", "H100"
ROWS = 400  # of a table of products: as the published H20 table has
Swept = tuple[Any, Space]  # an estimator and a grid


def axes() -> tuple[Axis, Axis]:
    """(chips, batches) of the economics paper's grid."""
    return Axis.log2(1.764, 2.0**18, POINTS), Axis.log2(1.0, 2.0**18, POINTS)


def level4() -> Swept:
    """The estimator and the grid of the paper's level 4."""
    hardware, coefficients = economics_hardware(CHIP)
    chips, batches = axes()
    work, plan = Workload.of(isl=0).replace(batch=batches), Plan.of().replace(tp=chips)
    estimator = Economics.level4().fitted(coefficients)
    return estimator, Space(economics_model(MODEL), hardware, work, plan)


def planned(points: int) -> Swept:
    """About ``points`` plans, prompts and batches of Llama 3.1 70B on three systems."""
    side = max(2, round((points / (3 * 7 * 8)) ** 0.5))
    systems = [load_system(name) for name in ("h100_sxm", "h200_sxm", "b200_sxm")]
    work = Workload.of(osl=512).replace(
        isl=Axis.log(128, 32768, side), batch=Axis.log(1, 1024, side)
    )
    plan = Plan.of().replace(tp=Axis.log2(1, 64, 7), pp=Axis.integers(1, 8))
    arch = load_model("llama-3.1-70b").architecture
    return make("economics.planned"), Space(arch, systems, work, plan)


def kernels(points: int, *, tables: bool = False) -> Swept:
    """About ``points`` ranks, prompts and batches of Qwen3 30B-A3B on H20: curves or tables."""
    side = max(2, round((points / 5) ** 0.5))
    work = Workload.of(osl=512).replace(
        isl=Axis.log(128, 16384, side), batch=Axis.log(1, 4096, side)
    )
    plan = KernelsPlan.of().replace(ep=Axis.values(1, 2, 4, 8, 16))
    arch, system = load_model("qwen3-30b-a3b").architecture, load_system("h20_sxm")
    if not tables:
        return make("kernels", system.coefficients), Space(arch, system, work, plan)
    return Kernels.corrected(_products()), Space(arch, system.hardware, work, plan)


def offloading(points: int) -> Swept:
    """About ``points`` blocks and prompts of OPT 30B on a T4, each with its linear program."""
    side = max(2, round(points ** (1 / 3)))
    work = Workload.of(osl=32).replace(isl=Axis.log(64, 1024, side))
    plan = Offload.of().replace(gpu_batch=Axis.log(1, 256, side), batches=Axis.log(1, 64, side))
    arch = load_model("opt-30b").architecture
    return make("offloading"), Space(arch, load_system("t4_host"), work, plan)


def _products() -> Tables:
    """A table of products of the published one's size; what it says does not matter to time."""
    draw = np.random.default_rng(1)
    lines = ["m,k,n,latency_us,mfu"]
    for m, (k, n) in zip(
        2 ** draw.integers(4, 13, ROWS),
        draw.choice([512, 768, 2048, 4096, 5120, 6144], (ROWS, 2)),
        strict=True,
    ):
        lines.append(f"{m},{k},{n},1.0,0.5")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "gemm" / "h20"
        place.mkdir(parents=True)
        (place / "data.csv").write_text("\n".join(lines) + "\n")
        return Tables.load(folder, "h20", 0.5, 0.5)
