"""How many configurations a second does a sweep look at, beside NumPy in the same run?

    python benchmarks/sweep.py [--json] [--billion]

The level-4 grid of Llama 3 70B on H100 (400 x 400 points of 132 layouts) to a frontier, in the
sweep engine (all devices) and in NumPy three ways: every axis an array axis ("whole"), a loop
over layouts, and that loop in cache-sized chunks; each precision, and float32 against float64.
Then full estimates (TTFT, TPOT, memory and cost) of a closed-form theory. ``--billion``: 10^9
points to a frontier, with peak memory. Compilation is told apart; no other tool is measured.
"""

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy_economics import H100, LLAMA_3_70B, looped, whole

from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.estimators import Economics, make
from infer_jax.estimators.economics.layout import Ranks, one_pass
from infer_jax.specs import ForwardPass, Plan, Workload
from infer_jax.sweep import Axis, Best, Pareto, Space, prepare, start
from infer_jax.sweep.stream import Progress

LAYOUTS, POINTS, RUNS, CHUNKS = 132, 400, 5, (1000, 2000, 4000, 8000, 16000)
MODEL, CHIP = "Llama_3_70B", "H100"


def seconds(work: Callable[[], Any], runs: int = RUNS) -> float:
    """The median time of a call."""
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def axes() -> tuple[Axis, Axis]:
    """(chips, batches) of the economics paper's grid."""
    return Axis.log2(1.764, 2.0**18, POINTS), Axis.log2(1.0, 2.0**18, POINTS)


def level4_space() -> tuple[Any, Space]:
    """The theory and the grid of the paper's level 4."""
    hardware, coefficients = economics_hardware(CHIP)
    chips, batches = axes()
    work, plan = Workload.of(isl=0).replace(batch=batches), Plan.of().replace(tp=chips)
    theory = Economics.level4().fitted(coefficients)
    return theory, Space(economics_model(MODEL), hardware, work, plan)


def ours(precision: str) -> dict[str, float]:
    """Seconds of the grid, and of its first run with compilation."""
    theory, space = level4_space()
    ready = prepare(
        theory, space, Pareto("speed", "cost"), precision=precision, feasible="decode.feasible"
    )
    begun = time.perf_counter()
    start(ready)
    first = time.perf_counter() - begun
    took = statistics.median(start(ready).provenance["seconds"] for _ in range(RUNS))
    return {"s": took, "first_s": first, "layouts_per_s": POINTS**2 * LAYOUTS / took}


def theirs(kind: type) -> dict[str, float]:
    """Seconds of NumPy: every axis an array axis; a loop over layouts; that in the best chunks."""
    chips, batches = (np.asarray(a.steps, kind) for a in axes())
    n, b = (np.ascontiguousarray(x).ravel() for x in np.meshgrid(chips, batches, indexing="ij"))
    n2, b2 = n.reshape(POINTS, POINTS), b.reshape(POINTS, POINTS)

    def chunked(size: int) -> None:
        for i in range(0, n.size, size):
            looped(n[i : i + size], b[i : i + size], LLAMA_3_70B, H100)

    return {
        "whole_s": seconds(lambda: whole(n2, b2, LLAMA_3_70B, H100), 1),
        "looped_s": seconds(lambda: looped(n2, b2, LLAMA_3_70B, H100), 3),
        "chunked_s": min(seconds(lambda s=s: chunked(s), 1) for s in CHUNKS),
    }


def arithmetic() -> dict[str, float]:
    """FLOP and transcendentals of one layout by the compiler's count; the machine's peak."""
    hardware, coefficients = economics_hardware(CHIP)
    world = (Economics.level4().fitted(coefficients), economics_model(MODEL), hardware)
    theory, arch, chip = jax.tree.map(lambda x: np.asarray(x, np.float32), world)
    many = np.linspace(1, 64, 8192, dtype=np.float32)

    def one(x: Any) -> Any:
        forward = ForwardPass(sequences=x, new_tokens=x / x, cached_tokens=x - x)
        found = one_pass(theory, arch, chip, forward, Ranks(x, x, x, x))
        return found.time, found.shortfall

    with jax.enable_x64(False):
        cost = jax.jit(jax.vmap(one)).lower(many).compile().cost_analysis() or {}
    square = np.random.default_rng(0).random((2048, 2048), np.float32)
    np.matmul(square, square)  # wakes the threads
    peak = 2 * 2048**3 / seconds(lambda: np.matmul(square, square))
    return {
        "flop_per_layout": cost["flops"] / many.size,
        "transcendentals_per_layout": cost.get("transcendentals", 0.0) / many.size,
        "matmul_peak_flops": peak,
    }


def planned_space(points: int) -> tuple[Any, Space]:
    """About ``points`` full estimates over models' plans, prompts, batches and systems."""
    side = max(2, round((points / (3 * 64)) ** 0.5))
    systems = [load_system(name) for name in ("h100_sxm", "h200_sxm", "b200_sxm")]
    work = Workload.of(osl=512).replace(
        isl=Axis.log(128, 32768, side), batch=Axis.log(1, 1024, side)
    )
    plan = Plan.of().replace(tp=Axis.log(1, 64, 8), pp=Axis.log(1, 8, 8))
    arch = load_model("llama-3.1-70b").architecture
    return make("economics.planned"), Space(arch, systems, work, plan)


def full_estimates() -> float:
    """Full estimates per second: TTFT, TPOT, cost and every limit of each point."""
    keep = Best("cost", under={"ttft": 1.0, "tpot": 0.05})
    ready = prepare(*planned_space(10_000_000), keep)
    start(ready)
    return ready.size / statistics.median(start(ready).provenance["seconds"] for _ in range(3))


def memory() -> float:
    """The most memory this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def billion() -> dict[str, float]:
    """A grid of 10^6 points to a frontier, then one of 10^9, and the memory after each."""
    keep = Pareto("speed", "cost")
    start(prepare(*planned_space(1_000_000), keep, precision="float64"))
    before = memory()
    # float64: a float32 sweep so dense keeps thousands of points that lie within its margin
    ready = prepare(*planned_space(1_000_000_000), keep, precision="float64")

    def report(p: Progress) -> None:
        print(f"\r{p.done / p.total:6.1%}  {p.rate:.3g} points/s", end="", flush=True)

    result = start(ready, progress=report)
    print()
    return {
        "billion_points": ready.size,
        "billion_s": result.provenance["seconds"],
        "billion_frontier": len(result),
        "memory_mb_at_a_million": before,
        "memory_mb_at_a_billion": memory(),
    }


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description="A sweep beside NumPy.")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--billion", action="store_true", help="10^9 points instead")
    arguments = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", os.cpu_count())
    told: dict[str, Any] = {"jax": jax.__version__, "numpy": np.__version__}
    told["devices"] = [f"{d} {d.device_kind}" for d in jax.devices()]
    if arguments.billion:
        told |= billion()
    else:
        mine = {p: ours(p) for p in ("float32", "float64")}
        numpy = {p: theirs(getattr(np, p)) for p in mine}
        told |= {f"{k}_{p}": v for p, row in mine.items() for k, v in row.items()}
        told |= {f"numpy_{k}_{p}": v for p, row in numpy.items() for k, v in row.items()}
        for name, a, b in (
            ("ratio_to_numpy", "float32", "float32"),
            ("ratio_to_numpy_float64", "float64", "float64"),
            ("ratio_float32_to_numpy_float64", "float32", "float64"),
        ):
            told[name] = numpy[b]["whole_s"] / mine[a]["s"]
        told["ratio_to_looped_numpy"] = numpy["float32"]["looped_s"] / mine["float32"]["s"]
        told["ratio_to_chunked_numpy"] = numpy["float32"]["chunked_s"] / mine["float32"]["s"]
        told |= arithmetic()
        rate = told["layouts_per_s_float32"] * told["flop_per_layout"]
        told["fraction_of_matmul_peak"] = rate / told["matmul_peak_flops"]
        told["full_estimates_per_s"] = full_estimates()
    for key, value in told.items():
        print(f"{key:34} {value:.5g}" if isinstance(value, float) else f"{key:34} {value}")
    if arguments.json:
        print(json.dumps(told))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
