"""How many configurations a second does a sweep look at, beside NumPy in the same run?

    python benchmarks/sweep.py [--json] [--no-tools] [--points 1e9]

The level-4 grid of Llama 3 70B on H100 (400 x 400 points of 132 layouts) in the engine (all
devices), in NumPy three ways and in numba, turn by turn; each precision, and float32 against
float64. What a new space costs to compile. Then full estimates (TTFT, TPOT, limits and cost) of
each estimator, and those of other tools where they are installed (extra ``bench``).
``--points``: that many points of three systems to one frontier instead, with peak memory.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import spaces
import tools
from numba_economics import compile_search
from numpy_economics import H100, LLAMA_3_70B, least_times_at_once, looped

from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.estimators import Economics
from infer_jax.estimators.economics import evaluate
from infer_jax.estimators.economics.forward_pass import RankLayout, one_pass
from infer_jax.specs import ForwardPass, Workload
from infer_jax.sweeps import Best, Pareto, prepare, start
from infer_jax.sweeps.engine import Progress

LAYOUTS, ROUNDS, CHUNKS = 132, 3, (1000, 4000, 16000)
ESTIMATES = {  # a grid of so many points, which takes about a second or more
    "planned": partial(spaces.planned, 10_000_000),
    "kernels": partial(spaces.kernels, 2_000_000),
    "tables": partial(spaces.kernels, 100_000, tables=True),
    "offloading": partial(spaces.offloading, 100_000),
}
MILLION = 1_000_000
COMPILED: list[float] = []  # seconds of each program that was compiled


def seconds(work: Callable[[], Any]) -> float:
    """The time of a call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def first_run(swept: spaces.Swept, keep: Any, **how: Any) -> tuple[Any, dict[str, float]]:
    """A sweep prepared and run once, and what that cost: nearly all of it is compilation."""
    programs, spent, begun = len(COMPILED), time.process_time(), time.perf_counter()
    ready = prepare(*swept, keep, **how)
    start(ready)
    return ready, {
        "first_s": time.perf_counter() - begun,
        "first_processor_s": time.process_time() - spent,
        "programs": len(COMPILED) - programs,
    }


def compete(precision: str) -> dict[str, float]:
    """Seconds of the grid in turn, round by round: a noisy machine is as noisy for all.

    Ours, every point's least time and cost; the same to a frontier ("sweep"); NumPy with every
    axis an array axis ("whole"), with a loop over layouts, with that loop in the best of several
    cache-sized chunks; numba, in float64 and where it is installed.
    """
    how = {"precision": precision, "feasible": "decode.feasible"}
    ready, first = first_run(spaces.level4(), Pareto("speed", "cost"), **how)
    chips, batches = (np.asarray(a.steps, precision) for a in spaces.axes())
    n, b = (np.ascontiguousarray(x) for x in np.meshgrid(chips, batches, indexing="ij"))

    def chunked(size: int) -> None:
        for i in range(0, n.size, size):
            looped(n.ravel()[i : i + size], b.ravel()[i : i + size], LLAMA_3_70B, H100)

    rivals: dict[str, Callable[[], Any]] = {
        "numpy_whole": lambda: least_times_at_once(n, b, LLAMA_3_70B, H100),
        "numpy_looped": lambda: looped(n, b, LLAMA_3_70B, H100),
        **{f"numpy_chunked_{size}": partial(chunked, size) for size in CHUNKS},
    }
    search = compile_search(LLAMA_3_70B, H100) if precision == "float64" else None
    if search is not None:
        best = search(n.ravel(), b.ravel())
        expected = looped(n, b, LLAMA_3_70B, H100).ravel()
        np.testing.assert_allclose(best, expected, rtol=1e-9)
        rivals["numba"] = partial(search, n.ravel(), b.ravel())
    held = jax.tree.map(lambda x: np.asarray(x, precision), (*inputs(), Workload.of(isl=0)))
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
    return {f"{name}_s": value for name, value in took.items()} | first


def inputs() -> tuple[Any, Any, Any]:
    """Theory, model and hardware of the level-4 grid."""
    hardware, coefficients = economics_hardware(spaces.CHIP)
    estimator = Economics.level4().fitted(coefficients)
    return estimator, economics_model(spaces.MODEL), hardware


def arithmetic() -> dict[str, float]:
    """FLOP and transcendentals of one layout evaluated alone, by the compiler's count of its
    program; and the most FLOP a second that a NumPy matmul reaches here.

    The search evaluates what layouts share once, so that it does less than this for each.
    """
    estimator, arch, chip = jax.tree.map(lambda x: np.asarray(x, np.float32), inputs())
    many = np.linspace(1, 64, 8192, dtype=np.float32)

    def layout(x: Any) -> Any:
        forward = ForwardPass(sequences=x, new_tokens=x / x, cached_tokens=x - x)
        answer = one_pass(estimator, arch, chip, forward, RankLayout(x, x, x, x))
        return answer.time, answer.shortfall

    with jax.enable_x64(False):
        cost = jax.jit(jax.vmap(layout)).lower(many).compile().cost_analysis() or {}
    square = np.random.default_rng(0).random((2048, 2048), np.float32)
    np.matmul(square, square)  # wakes the threads
    peak = 2 * 2048**3 / min(seconds(lambda: np.matmul(square, square)) for _ in range(5))
    return {
        "flop_per_layout_alone": cost["flops"] / many.size,
        "transcendentals_per_layout_alone": cost.get("transcendentals", 0.0) / many.size,
        "matmul_peak_flops": peak,
    }


def full_estimates(name: str, swept: Callable[[], spaces.Swept]) -> dict[str, float]:
    """Full estimates per second (TTFT, TPOT, cost and every limit of each point), and the first."""
    ready, first = first_run(swept(), Best("cost", under={"ttft": 1.0, "tpot": 0.05}))
    took = statistics.median(start(ready).provenance["seconds"] for _ in range(3))
    return {f"{name}_{key}": value for key, value in {"per_s": ready.size / took, **first}.items()}


def _machine() -> dict[str, Any]:
    devices = [f"{d} {d.device_kind}" for d in jax.devices()]
    return {"jax": jax.__version__, "numpy": np.__version__, "devices": devices}


def memory() -> float:
    """The most memory this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def large(points: int) -> dict[str, float]:
    """A grid to its frontier; seconds and memory, beside those of 10^6 points in a process of
    their own."""
    small = {} if points <= MILLION else _large_alone(MILLION)
    ready = prepare(*spaces.planned(points), Pareto("speed", "cost"))

    def report(p: Progress) -> None:
        print(f"\r{p.done / p.total:6.1%}  {p.rate:.3g} points/s", end="", flush=True)

    spent = time.process_time()
    result = start(ready, progress=report)
    print()
    figures = {
        "points": ready.size,
        "sweep_s": result.provenance["seconds"],
        "sweep_processor_s": time.process_time() - spent,
        "frontier": len(result),
        "decided_in_float64": result.provenance["decided_in_float64"],
        "memory_mb": memory(),
    } | {f"{name}_at_a_million": small[name] for name in ("sweep_s", "memory_mb") if small}
    return figures


def _large_alone(points: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--points", str(points), "--json"]
    figures = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(figures.splitlines()[-1])


def compared() -> dict[str, float]:
    """Seconds, layouts a second, and how many times faster than each rival."""
    took = {p: compete(p) for p in ("float32", "float64")}
    figures: dict[str, float] = {}
    for p, row in took.items():
        figures |= {f"{name}_{p}": value for name, value in row.items()}
        for name in ("ours", "sweep", "numpy_whole", "numpy_looped", "numpy_chunked", "numba"):
            if f"{name}_s" in row:
                figures[f"{name}_layouts_per_s_{p}"] = spaces.POINTS**2 * LAYOUTS / row[f"{name}_s"]
        figures[f"ratio_sweep_to_numpy_{p}"] = row["numpy_whole_s"] / row["sweep_s"]
    for name, a, b in (
        ("", "float32", "float32"),
        ("_float64", "float64", "float64"),
        ("_float32_to_float64", "float32", "float64"),
    ):
        for rival in ("whole", "looped", "chunked"):
            key = "ratio_to_numpy" if rival == "whole" else f"ratio_to_{rival}_numpy"
            figures[f"{key}{name}"] = took[b][f"numpy_{rival}_s"] / took[a]["ours_s"]
    if "numba_s" in took["float64"]:
        figures["ratio_to_numba_float64"] = took["float64"]["numba_s"] / took["float64"]["ours_s"]
    figures |= arithmetic()
    work = figures["ours_layouts_per_s_float32"] * figures["flop_per_layout_alone"]
    figures["fraction_of_matmul_peak_were_each_alone"] = work / figures["matmul_peak_flops"]
    return figures


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description="A sweep beside NumPy.")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--no-tools", action="store_true", help="without other projects' tools")
    parser.add_argument("--points", type=float, help="a grid of that many points instead")
    arguments = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", os.cpu_count())
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, took, **_: COMPILED.append(took) if "backend_compile" in event else None
    )
    parts: list[Callable[[], dict[str, Any]]] = [_machine]
    if arguments.points:
        parts.append(partial(large, int(arguments.points)))
    else:
        parts += [compared, *(partial(full_estimates, *named) for named in ESTIMATES.items())]
        parts += [] if arguments.no_tools else [tools.measure]
    figures: dict[str, Any] = {}
    for part in parts:
        for key, value in (answer := part()).items():
            print(
                f"{key:40} {value:.5g}" if isinstance(value, float) else f"{key:40} {value}",
                flush=True,
            )
        figures |= answer
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
