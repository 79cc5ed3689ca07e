"""Searches over silicon against their whole lattice, and a sweep of ten million chips.

    python experiments/chip_search.py          # twenty seeds beside the lattice
    python experiments/chip_search.py sweep    # ten million chips, how many a second

A chip for Llama 3.1 70B at 20 ms a token: cores that are on, stacks, power and buffer of H100's
silicon, with batch and tensor parallel degree, at least cost. The lattice has 4 million designs,
each evaluated by ``sweep``; the ascent starts from random places, by seed. Beside it: as many
random designs as it evaluated, the best kept, and one coordinate at a time from random starts.
"""

import sys
import time

import jax
import numpy as np

import infer_jax as ij
from infer_jax.design.design import Search
from infer_jax.design.rounding import Lattice
from infer_jax.estimators import Estimator
from infer_jax.sweeps.reducers import Best
from infer_jax.sweeps.toml import read_space

TPOT = 0.02
TABLE = {
    "estimator": "economics.planned",
    "arch": {"model": "llama-3.1-70b", "quant": "fp8"},
    "chip": {
        "silicon": "h100_sxm",
        "active": {"integers": [45, 144, 1]},
        "stacks": {"integers": [2, 6, 1]},
        "limit": {"linear": [300, 900, 20]},
        "die": {"buffer": {"linear": [2e7, 1e8, 10]}},
    },
    "workload": {"isl": 4096, "osl": 512, "batch": {"log2": [1, 512, 10]}},
    "plan": {"tp": {"log2": [1, 8, 4]}},
}
SEEDS = 20


def coordinate_search(
    lattice: Lattice, sizes: np.ndarray, rng: np.random.Generator, budget: int
) -> float:
    """Least cost by one coordinate at a time, from random starts, for a budget of designs."""
    best, spent = np.inf, 0
    while spent < budget:
        at, cost = rng.integers(sizes), np.inf
        while spent < budget:
            before = cost
            for axis in rng.permutation(len(sizes)):
                line = np.repeat(at[None], sizes[axis], 0)
                line[:, axis] = np.arange(int(sizes[axis]))
                objective, excess = lattice(line)
                spent += len(line)
                order = np.lexsort((objective, excess))
                at = line[order[0]]
                cost = objective[order[0]] if excess[order[0]] <= 0 else np.inf
            if cost >= before:
                break
        best = min(best, cost)
    return float(np.exp(best))


def compare() -> None:
    """Print the least cost that each way finds, by seed."""
    started = time.perf_counter()
    keep = {"best": "cost", "under": {"tpot": TPOT}}
    swept = ij.sweep({**TABLE, "keep": keep})
    optimum, seconds = float(np.asarray(swept.rows()[0]["cost"])), time.perf_counter() - started
    estimator, space, feasible = read_space("chip_search", TABLE)
    points = space.size
    print(f"lattice: {points:,} designs, {seconds:.0f} s, best {optimum:.6g} USD/Mtok")
    assert isinstance(estimator, Estimator)
    search = Search.of(estimator, space, Best("cost", under={"tpot": TPOT}), feasible=feasible)
    found: dict[str, list[float]] = {"ascent": [], "random": [], "coordinates": []}
    spent = 0
    with jax.enable_x64(True):
        for seed in range(SEEDS):
            started = time.perf_counter()
            design = search.run(seed=seed, restarts=48, steps=80)
            effort = design.counts["gradients"] + design.counts["lattice"]
            spent = max(spent, effort)
            found["ascent"].append(design.objective / optimum)
            rng = np.random.default_rng(seed)
            lattice = Lattice(search.problems[0], search.problems[0].limits)
            sizes = np.array(search.problems[0].relaxed.group.sizes)
            objective, excess = lattice(rng.integers(sizes, size=(effort, len(sizes))))
            kept = objective[excess <= 0]
            found["random"].append(float(np.exp(kept.min())) / optimum if len(kept) else np.inf)
            cost = coordinate_search(lattice, sizes, rng, effort)
            found["coordinates"].append(cost / optimum)
            print(
                f"seed {seed:2}: {effort:,} evaluations, {time.perf_counter() - started:.1f} s, "
                + ", ".join(f"{name} {costs[-1]:.4f}" for name, costs in found.items())
            )
    print(f"at most {spent:,} evaluations, {points / spent:.0f} times fewer than the lattice")
    for name, costs in found.items():
        within = sum(x < 1.01 for x in costs)
        print(f"{name}: {within} of {SEEDS} within 1 %, worst {max(costs):.4f}")


def sweep() -> None:
    """Print how long ten million chips take."""
    chip = dict(TABLE["chip"]) | {"die": {"buffer": {"linear": [2e7, 1e8, 25]}}}
    started = time.perf_counter()
    table = {**TABLE, "chip": chip}
    points = read_space("chip_search", table)[1].size
    ij.sweep({**table, "keep": {"pareto": ["cost", "tpot"]}})
    seconds = time.perf_counter() - started
    print(f"{points:,} chips, {seconds:.0f} s: {points / seconds:,.0f} a second")


if __name__ == "__main__":
    sweep() if "sweep" in sys.argv[1:] else compare()
