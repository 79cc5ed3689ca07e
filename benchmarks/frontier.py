"""How fast is one full frontier, beside NumPy on the same machine in the same run?

    python benchmarks/frontier.py [--json]

The level-4 grid of Llama 3 70B on H100: 400 batches x 400 instance sizes x 132 layouts, 21
million evaluations, in JAX (all cores) and in NumPy three ways: whole arrays (layouts are array
axes, too), a loop over layouts around arrays of the grid, and that loop around cache-sized chunks
(the best of five sizes). The same precision on both sides; medians of repeated runs.
"""

import argparse
import json
import os
import time
from collections.abc import Callable

import jax
import numpy as np
from numpy_economics import H100, LLAMA_3_70B, least_times_at_once, looped

from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.estimators import Economics
from infer_jax.estimators.economics import evaluate, paper_axes
from infer_jax.specs import Workload

LAYOUTS, CHUNKS, RUNS = 132, (1000, 2000, 4000, 8000, 16000), 5


def seconds(work: Callable[[], object], runs: int = RUNS) -> float:
    """The median time of a call, after one that warms up."""
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def compare(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> tuple[float, float]:
    """(share of points within tolerance, worst error of those that agree on feasibility)."""
    both = np.isfinite(ours) & np.isfinite(theirs)
    with np.errstate(invalid="ignore"):
        error = np.where(ours == theirs, 0.0, np.abs(ours / theirs - 1.0))
    return float(np.mean(error <= tolerance)), float(np.max(error[both]))


def measure(dtype: type) -> dict[str, float]:
    """Times, ratios and agreement at one precision."""
    hardware, coefficients = economics_hardware("H100")
    arch, estimator = economics_model("Llama_3_70B"), Economics.level4().fitted(coefficients)
    inputs = jax.tree.map(
        lambda x: np.asarray(x, dtype), (estimator, arch, hardware, Workload.of(isl=0))
    )
    chips, batches = (x.astype(dtype) for x in paper_axes(1.764, 1.0))
    n, b = (np.ascontiguousarray(x) for x in np.meshgrid(chips, batches, indexing="ij"))
    model, chip = LLAMA_3_70B, H100

    def chunked(size: int) -> np.ndarray:
        flat = zip(
            np.split(n.ravel(), n.size // size), np.split(b.ravel(), n.size // size), strict=True
        )
        return np.concatenate([looped(x, y, model, chip) for x, y in flat])

    ours = seconds(lambda: evaluate(*inputs, chips, batches))
    arrays = seconds(lambda: least_times_at_once(n, b, model, chip), 1)
    loop = seconds(lambda: looped(n, b, model, chip), 3)
    best = min(seconds(lambda s=s: chunked(s), 3) for s in CHUNKS)
    grid = evaluate(*inputs, chips, batches)
    answer = np.where(grid.feasible, grid.time, np.inf)
    tolerance = 1e-9 if dtype is np.float64 else 1e-4
    agree, worst = compare(answer, looped(n, b, model, chip).ravel(), tolerance)
    rate = n.size * LAYOUTS / ours
    return {
        "layouts_per_s": rate,
        "jax_s": ours,
        "numpy_whole_s": arrays,
        "numpy_looped_s": loop,
        "numpy_chunked_s": best,
        "ratio_to_numpy": arrays / ours,
        "ratio_to_looped_numpy": loop / ours,
        "ratio_to_chunked_numpy": best / ours,
        "share_within_tolerance": agree,
        "tolerance": tolerance,
        "worst_error": worst,
    }


def main() -> int:
    """Run, print, and fail if the answers disagree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", os.cpu_count())
    results = {kind.__name__: measure(kind) for kind in (np.float32, np.float64)}
    print(f"jax {jax.__version__}, {jax.local_devices()}, NumPy {np.__version__}")
    for kind, row in results.items():
        print(f"\n{kind}: {400 * 400 * LAYOUTS / 1e6:.1f} million layouts")
        for key, value in row.items():
            print(f"  {key:26} {value:.4g}")
    if arguments.json:
        print(json.dumps({**results["float32"], **results}))
    return 0 if all(r["share_within_tolerance"] >= 0.999 for r in results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
