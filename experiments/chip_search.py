"""Searches over silicon against their whole lattice, and a sweep of ten million chips.

    python experiments/chip_search.py          # a chip for a model: twenty seeds
    python experiments/chip_search.py joint    # examples/model_and_chip.toml
    python experiments/chip_search.py sweep    # ten million chips, how many a second

A chip for Llama 3.1 70B at 20 ms a token: cores that are on, stacks, power and buffer of H100's
silicon, with batch and tensor parallel degree, at least cost. The lattice has 4 million designs,
each evaluated by ``sweep``; the ascent starts from random places, by seed. Beside it, each with as
many evaluations: random designs, one coordinate at a time from random starts, CMA-ES with margin
(``cmaes``) and TPE (``optuna``). The last two are the extra ``search``, and are left out where they
are not installed; TPE takes minutes a seed, so that it has the first three.
"""

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import infer_jax as ij
from infer_jax.design.design import Search
from infer_jax.design.rounding import Lattice
from infer_jax.design.toml import load_spec
from infer_jax.estimators import Estimator
from infer_jax.sweeps.reducers import Best
from infer_jax.sweeps.space import Space
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
SEEDS, TPE_SEEDS = 20, 3
BROKEN = 1e3  # above the logarithm of any cost
EXAMPLE = Path(__file__).parents[1] / "examples" / "model_and_chip.toml"


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


def merit(lattice: Lattice, rows: np.ndarray) -> np.ndarray:
    """Log cost, and above all of them the excess over limits: what others minimise."""
    objective, excess = lattice(rows)
    broken = BROKEN + np.log1p(np.minimum(excess, 1e6))
    return np.where(excess <= 0, objective, broken)


def cma_search(lattice: Lattice, sizes: np.ndarray, seed: int, budget: int) -> float:
    """Least cost by CMA-ES with margin (Hamano et al. 2022), restarted with populations doubled."""
    from cmaes import CMAwM  # pyright: ignore[reportMissingImports]

    best, spent, population = np.inf, 0, 16
    while spent < budget:
        ends, mean = np.tile([0.0, 1.0], (len(sizes), 1)), np.full(len(sizes), 0.5)
        steps = 1.0 / np.maximum(sizes - 1.0, 1.0)
        own: dict[str, Any] = {"bounds": ends, "steps": steps, "population_size": population}
        optimiser = CMAwM(mean=mean, sigma=0.3, seed=seed + spent, **own)
        while spent < budget and not optimiser.should_stop():
            asked = [optimiser.ask() for _ in range(population)]
            rows = np.rint(np.array([x for x, _ in asked]) * (sizes - 1)).astype(int)
            values = merit(lattice, rows)
            optimiser.tell(list(zip([x for _, x in asked], values.tolist(), strict=True)))
            best, spent = min(best, values.min()), spent + population
        population *= 2
    return float(np.exp(best)) if best < BROKEN else np.inf


def tpe_search(lattice: Lattice, sizes: np.ndarray, seed: int, budget: int) -> float:
    """Least cost by multivariate TPE (Bergstra et al. 2011), asked for 64 designs at a time."""
    import optuna  # pyright: ignore[reportMissingImports]

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    study = optuna.create_study(sampler=sampler)
    names = [f"{i:02}" for i in range(len(sizes))]
    space: dict[str, Any] = {
        name: optuna.distributions.IntDistribution(0, int(n) - 1)
        for name, n in zip(names, sizes, strict=True)
    }
    best, spent = np.inf, 0
    while spent < budget:
        trials = [study.ask(space) for _ in range(64)]
        rows = np.array([[t.params[name] for name in names] for t in trials])
        values = merit(lattice, rows)
        for trial, value in zip(trials, values.tolist(), strict=True):
            study.tell(trial, value)
        best, spent = min(best, values.min()), spent + len(rows)
    return float(np.exp(best)) if best < BROKEN else np.inf


def compare(search: Search, points: int, optimum: float) -> None:
    """Print what each way finds over the optimum of the lattice, by seed."""
    found: dict[str, list[float]] = {name: [] for name in ("ascent", "random", "coordinates")}
    found |= {name: [] for name in ("cmaes", "optuna") if importlib.util.find_spec(name)}
    problem, efforts = search.problems[0], list[int]()
    lattice = Lattice(problem, problem.limits)  # whose points are kept from seed to seed
    sizes = np.array(problem.relaxed.group.sizes)
    with jax.enable_x64(True):
        for seed in range(SEEDS):
            started = time.perf_counter()
            design = search.run(seed=seed, restarts=48, steps=80)
            seconds = time.perf_counter() - started
            efforts.append(effort := design.counts["gradients"] + design.counts["lattice"])
            found["ascent"].append(design.objective / optimum)
            rng = np.random.default_rng(seed)
            objective, excess = lattice(rng.integers(sizes, size=(effort, len(sizes))))
            kept = objective[excess <= 0]
            found["random"].append(float(np.exp(kept.min())) / optimum if len(kept) else np.inf)
            cost = coordinate_search(lattice, sizes, rng, effort)
            found["coordinates"].append(cost / optimum)
            if "cmaes" in found:
                found["cmaes"].append(cma_search(lattice, sizes, seed, effort) / optimum)
            print(
                f"seed {seed:2}: {effort:,} evaluations, ascent {seconds:.1f} s, "
                + ", ".join(f"{name} {x[seed]:.4f}" for name, x in found.items() if x),
                flush=True,
            )
        for seed in range(TPE_SEEDS if "optuna" in found else 0):
            found["optuna"].append(tpe_search(lattice, sizes, seed, efforts[seed]) / optimum)
            print(f"seed {seed:2}: optuna {found['optuna'][seed]:.4f}", flush=True)
    most = max(efforts)
    print(f"at most {most:,} evaluations, {points / most:.0f} times fewer than the lattice")
    for name, costs in found.items():
        within = sum(x < 1.01 for x in costs)
        print(f"{name}: {within} of {len(costs)} within 1 %, worst {max(costs):.4f}")


def best_of_lattice(space: Space, keep: Best, estimator: Estimator) -> float:
    """The optimum of the whole lattice, printed with its size."""
    started = time.perf_counter()
    rows = ij.sweep(space, keep=keep, estimator=estimator).rows()
    optimum, seconds = float(np.asarray(rows[0][keep.by])), time.perf_counter() - started
    print(
        f"lattice: {space.size:,} designs, {seconds:.0f} s, best {optimum:.6g} USD/Mtok", flush=True
    )
    return optimum


def chip() -> None:
    """A chip for a model that exists."""
    estimator, space, feasible = read_space("chip_search", TABLE)
    assert isinstance(estimator, Estimator)
    keep = Best("cost", under={"tpot": TPOT})
    optimum = best_of_lattice(space, keep, estimator)
    compare(Search.of(estimator, space, keep, feasible=feasible), space.size, optimum)


def joint() -> None:
    """Model, chip and layout, with the cost of training."""
    spec = load_spec(EXAMPLE)
    [keep], space = spec.keeps, spec.space
    optimum = best_of_lattice(space, keep, spec.estimator)
    compare(Search.of(spec.estimator, space, keep), space.size, optimum)


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
    {"joint": joint, "sweep": sweep}.get(" ".join(sys.argv[1:]), chip)()
