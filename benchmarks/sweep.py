"""How many configurations a second does a sweep look at, beside NumPy in the same run?

    python benchmarks/sweep.py [--json] [--points 1e9 [--picture FILE]]

The level-4 grid of Llama 3 70B on H100 (400 x 400 points of 132 layouts) to a frontier, in the
sweep engine (all devices), in NumPy three ways and in numba, turn by turn; each precision, and
float32 against float64. Then full estimates (TTFT, TPOT, memory and cost) of a closed-form
theory, and those of other tools where they are installed (extra ``bench``). ``--points``: that
many points to the frontier of each system instead, with peak memory. Compilation is told apart.
"""

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import tools
from numba_economics import compile_search
from numpy_economics import H100, LLAMA_3_70B, looped, whole

from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.estimators import Economics, make
from infer_jax.estimators.economics.layout import Ranks, one_pass
from infer_jax.plots import Curve, plot_frontier
from infer_jax.specs import ForwardPass, Plan, Workload
from infer_jax.sweep import Axis, Best, Pareto, Space, evaluate, prepare, start
from infer_jax.sweep.stream import Progress

LAYOUTS, POINTS, ROUNDS, CHUNKS = 132, 400, 2, (1000, 4000, 16000)
MODEL, CHIP = "Llama_3_70B", "H100"
CAPTION = (
    "Economics (planned): prompts of 128 to 32,768 tokens, 512 tokens out, batches of 1 to 1,024, "
    "tensor parallelism 1, 2, 4 to 64, pipelines of 1 to 8; prices as in the profiles."
)


class Front(NamedTuple):
    """Two columns of a result, to be drawn."""

    speed: np.ndarray
    cost: np.ndarray


def seconds(work: Callable[[], Any]) -> float:
    """The time of a call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


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


def compete(precision: str) -> dict[str, float]:
    """Seconds of the grid in turn, round by round: a noisy machine is as noisy for all.

    Ours, every point's least time and cost; the same to a frontier ("sweep"); NumPy with every
    axis an array axis ("whole"), with a loop over layouts, with that loop in the best of several
    cache-sized chunks; numba, in float64 and where it is installed.
    """
    theory, space = level4_space()
    ready = prepare(
        theory, space, Pareto("speed", "cost"), precision=precision, feasible="decode.feasible"
    )
    begun = time.perf_counter()
    start(ready)
    first = time.perf_counter() - begun
    chips, batches = (np.asarray(a.steps, precision) for a in axes())
    n, b = (np.ascontiguousarray(x) for x in np.meshgrid(chips, batches, indexing="ij"))

    def chunked(size: int) -> None:
        for i in range(0, n.size, size):
            looped(n.ravel()[i : i + size], b.ravel()[i : i + size], LLAMA_3_70B, H100)

    rivals: dict[str, Callable[[], Any]] = {
        "numpy_whole": lambda: whole(n, b, LLAMA_3_70B, H100),
        "numpy_looped": lambda: looped(n, b, LLAMA_3_70B, H100),
        **{f"numpy_chunked_{size}": partial(chunked, size) for size in CHUNKS},
    }
    search = compile_search(LLAMA_3_70B, H100) if precision == "float64" else None
    if search is not None:
        best = search(n.ravel(), b.ravel())
        expected = looped(n, b, LLAMA_3_70B, H100).ravel()
        np.testing.assert_allclose(best, expected, rtol=1e-9)
        rivals["numba"] = partial(search, n.ravel(), b.ravel())
    hardware, coefficients = economics_hardware(CHIP)
    world = (Economics.level4().fitted(coefficients), economics_model(MODEL), hardware)
    held = jax.tree.map(lambda x: np.asarray(x, precision), (*world, Workload.of(isl=0)))
    least_times = partial(evaluate, *held)

    def ours() -> None:
        with jax.enable_x64(precision == "float64"):
            least_times(chips, batches)

    ours()
    times: dict[str, list[float]] = {name: [] for name in ("ours", "sweep", *rivals)}
    for _ in range(ROUNDS):
        for _ in range(5):
            times["ours"].append(seconds(ours))
            times["sweep"].append(start(ready).provenance["seconds"])
        for name, work in rivals.items():
            times[name].append(seconds(work))
    took = {name: statistics.median(t) for name, t in times.items()}
    took["numpy_chunked"] = min(took.pop(f"numpy_chunked_{size}") for size in CHUNKS)
    return {**took, "first": first}


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
    peak = 2 * 2048**3 / min(seconds(lambda: np.matmul(square, square)) for _ in range(5))
    return {
        "flop_per_layout": cost["flops"] / many.size,
        "transcendentals_per_layout": cost.get("transcendentals", 0.0) / many.size,
        "matmul_peak_flops": peak,
    }


def planned_space(points: int) -> tuple[Any, Space]:
    """About ``points`` full estimates over models' plans, prompts, batches and systems."""
    side = max(2, round((points / (3 * 7 * 8)) ** 0.5))
    systems = [load_system(name) for name in ("h100_sxm", "h200_sxm", "b200_sxm")]
    work = Workload.of(osl=512).replace(
        isl=Axis.log(128, 32768, side), batch=Axis.log(1, 1024, side)
    )
    plan = Plan.of().replace(tp=Axis.log2(1, 64, 7), pp=Axis.integers(1, 8))
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


def large(points: int, picture: str | None) -> dict[str, float]:
    """A grid of 10^6 points to the frontier of each system, then a large one; memory after each."""
    keep = Pareto("speed", "cost", per="hardware")
    start(prepare(*planned_space(1_000_000), keep))
    before = memory()
    ready = prepare(*planned_space(points), keep)

    def report(p: Progress) -> None:
        print(f"\r{p.done / p.total:6.1%}  {p.rate:.3g} points/s", end="", flush=True)

    result = start(ready, progress=report)
    print()
    told = {
        "points": ready.size,
        "sweep_s": result.provenance["seconds"],
        "frontier": len(result),
        "decided_in_float64": result.provenance["decided_in_float64"],
        "memory_mb_at_a_million": before,
        "memory_mb": memory(),
    }
    if picture:
        columns = result.columns
        title = f"Llama 3.1 70B in 16 bits: frontiers of {ready.size:,} configurations"
        plot_frontier(_curves(columns), picture, title=title, caption=CAPTION)
    return told


def _curves(columns: dict[str, np.ndarray]) -> dict[str, Curve]:
    """The frontier of each system."""
    curves = {}
    for name in dict.fromkeys(columns["hardware"]):
        mine = columns["hardware"] == name
        curves[str(name)] = Curve(Front(columns["speed"][mine], columns["cost"][mine]))
    return curves


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description="A sweep beside NumPy.")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--points", type=float, help="a grid of that many points instead")
    parser.add_argument("--picture", help="where to draw its frontiers: .png, .svg, .pdf")
    arguments = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", os.cpu_count())
    told: dict[str, Any] = {"jax": jax.__version__, "numpy": np.__version__}
    told["devices"] = [f"{d} {d.device_kind}" for d in jax.devices()]
    if arguments.points:
        told |= large(int(arguments.points), arguments.picture)
    else:
        took = {p: compete(p) for p in ("float32", "float64")}
        for p, row in took.items():
            told |= {f"{name}_s_{p}": value for name, value in row.items()}
            told[f"layouts_per_s_{p}"] = POINTS**2 * LAYOUTS / row["ours"]
            told[f"ratio_sweep_to_numpy_{p}"] = row["numpy_whole"] / row["sweep"]
        for name, a, b in (
            ("", "float32", "float32"),
            ("_float64", "float64", "float64"),
            ("_float32_to_float64", "float32", "float64"),
        ):
            for rival in ("whole", "looped", "chunked"):
                key = "ratio_to_numpy" if rival == "whole" else f"ratio_to_{rival}_numpy"
                told[f"{key}{name}"] = took[b][f"numpy_{rival}"] / took[a]["ours"]
        if "numba" in took["float64"]:
            told["ratio_to_numba_float64"] = took["float64"]["numba"] / took["float64"]["ours"]
        told |= arithmetic()
        rate = told["layouts_per_s_float32"] * told["flop_per_layout"]
        told["fraction_of_matmul_peak"] = rate / told["matmul_peak_flops"]
        told["full_estimates_per_s"] = full_estimates()
        told |= tools.measure()
    for key, value in told.items():
        print(f"{key:34} {value:.5g}" if isinstance(value, float) else f"{key:34} {value}")
    if arguments.json:
        print(json.dumps(told))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
