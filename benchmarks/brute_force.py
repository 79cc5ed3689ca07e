"""How near to the exhaustive optimum do gradients come, and at how few evaluations?

``python benchmarks/brute_force.py``. An evaluation is one exact estimate of one point. A value
with its gradient counts as many as it takes time, measured beside it; lattice points of the
rounding count one each. Exit code 0: near enough, at few enough evaluations; 1: not; 2: bad input.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import jax.numpy as jnp
import numpy as np
import typer

import infer_jax as ij
from benchmarks import design_spaces as spaces
from benchmarks.design_spaces import Task
from experiments import _report
from infer_jax.design import Search
from infer_jax.design.ascent import ascend
from infer_jax.design.design import RESTARTS_PER_NUMBER
from infer_jax.design.problem import DesignProblem, Scores

SEEDS = 20
WITHIN = 0.01  # of the exhaustive optimum: a success
LINE = 64  # values of a long axis that coordinate search tries at a time
LANES = 256
RATIO = 100.0  # fewer evaluations by at least this factor


class Outcome(NamedTuple):
    """One space under one estimator: gaps of 20 seeds by method, and what they cost."""

    task: Task
    best: float
    gaps: dict[str, np.ndarray]
    evaluations: np.ndarray
    gradient_cost: float
    seconds: dict[str, float]

    @property
    def ratio(self) -> float:
        """Points of the space over the most evaluations of a seed."""
        return self.task.size / float(self.evaluations.max())

    def successes(self, method: str) -> int:
        """Seeds within ``WITHIN`` of the optimum."""
        return int((self.gaps[method] <= WITHIN).sum())

    def report(self) -> dict[str, Any]:
        """Figures for JSON; an unmet limit is a gap of null."""
        reports = {
            name: {
                "worst_gap": float(gap.max()),
                "mean_gap": float(gap.mean()),
                "successes": self.successes(name),
            }
            for name, gap in self.gaps.items()
        }
        return {
            "points": self.task.size,
            "optimum": self.best,
            "evaluation_ratio": self.ratio,
            "evaluations": float(self.evaluations.mean()),
            "gradient_cost": self.gradient_cost,
            "methods": reports,
            "seconds": self.seconds,
        }


def compare(task: Task, seeds: int = SEEDS, say: Callable[[str], None] = print) -> Outcome:
    """Sweep the space, then search it with gradients, at random and by coordinates."""
    timed: dict[str, float] = {}
    begun = time.perf_counter()
    exhaustive = ij.sweep(task.space, keep=task.keep, estimator=task.estimator, legal=False)
    if not exhaustive.met:
        raise AssertionError(f"{task.name}: nothing in the space keeps the limits")
    best = float(exhaustive.columns[task.keep.by][0])
    timed["sweep"] = time.perf_counter() - begun
    say(f"  swept {task.size:,} points in {timed['sweep']:.0f} s: {task.keep.by} {best:.6g}")
    with jax.enable_x64(True):
        search = Search.of(task.estimator, task.space, task.keep)
        problem = search.problems[0]
        begun = time.perf_counter()
        designs = [search.run(seed=seed) for seed in range(seeds)]
        timed["gradients"] = time.perf_counter() - begun
        cost = gradient_cost(problem)
        counts = np.array([cost * d.counts["gradients"] + d.counts["lattice"] for d in designs])
        budget = int(counts.mean())
        result = {"gradients": np.array([d.objective / best - 1.0 for d in designs])}
        for name, method in (("random", at_random), ("coordinates", by_coordinates)):
            begun = time.perf_counter()
            result[name] = np.exp(method(problem, budget, seeds)) / best - 1.0
            timed[name] = time.perf_counter() - begun
    return Outcome(task, best, result, counts, cost, timed)


def gradient_cost(problem: DesignProblem, rounds: int = 5) -> float:
    """Time of a step of the ascent over the time of an exact value in batches of 256.

    A step is a value with its gradient and what the optimiser makes of it, in as many lanes as a
    search has restarts. Seconds of processor, which other programs do not lengthen.
    """
    relaxed, limits = problem.relaxed, problem.limits
    rng = np.random.default_rng(0)
    free, digits = relaxed.random(rng, RESTARTS_PER_NUMBER * max(2, len(relaxed.moving)))
    rows = jnp.asarray(relaxed.random(rng, LANES)[1])
    least = [np.inf, np.inf]
    for _ in range(rounds):  # in turn, so that a busy machine slows both
        begun = time.process_time()
        path = ascend(problem, free, digits, limits)
        least[0] = min(least[0], (time.process_time() - begun) / path.gradients)
        for _ in range(5):
            begun = time.process_time()
            jax.block_until_ready(problem._scored(rows, limits))
            least[1] = min(least[1], (time.process_time() - begun) / LANES)
    return least[0] / least[1]


def at_random(problem: DesignProblem, budget: int, seeds: int) -> np.ndarray:
    """Log objective of the best of ``budget`` points drawn evenly, by seed; infinite if none."""
    sizes = np.asarray(problem.relaxed.group.sizes)
    result = []
    for seed in range(seeds):
        rows = np.random.default_rng(seed).integers(0, sizes, (budget, len(sizes)))
        scores = problem.exact(rows, problem.limits)
        result.append(_feasible_objective(scores)[scores.order[0]])
    return np.array(result)


def by_coordinates(problem: DesignProblem, budget: int, seeds: int) -> np.ndarray:
    """Log objective of coordinate search with restarts, by seed: all values of an axis in turn.

    A start is drawn evenly; where limits are broken, the least broken value is taken, which is
    what rounding does, too. Seeds go side by side, so that batches are full.
    """
    sizes = np.asarray(problem.relaxed.group.sizes)
    draws = [np.random.default_rng(seed) for seed in range(seeds)]
    at = np.array([rng.integers(0, sizes) for rng in draws])
    start = problem.exact(at, problem.limits)
    here = np.c_[start.excess, start.objective]
    best, spent = np.full(seeds, np.inf), np.ones(seeds)
    axes, idle, turn = np.flatnonzero(sizes > 1), np.zeros(seeds, int), 0
    while np.any(spent < budget):
        axis = axes[turn % len(axes)]
        turn += 1
        lines = [_line(int(row[axis]), int(sizes[axis]), turn) for row in at]
        tried = [
            np.repeat(row[None], len(line), axis=0) for row, line in zip(at, lines, strict=True)
        ]
        for rows, line in zip(tried, lines, strict=True):
            rows[:, axis] = line
        scores = problem.exact(np.concatenate(tried), problem.limits)
        first = 0
        for seed, rows in enumerate(tried):
            own = Scores(*(x[first : first + len(rows)] for x in scores))
            first += len(rows)
            if spent[seed] >= budget:
                continue
            spent[seed] += len(rows)
            top = own.order[0]
            new = (float(own.excess[top]), float(own.objective[top]))
            better = new < tuple(here[seed])
            idle[seed] = 0 if better else idle[seed] + 1
            if better:
                at[seed], here[seed] = rows[top], new
            best[seed] = min(best[seed], here[seed][1] if here[seed][0] <= 0 else np.inf)
            if idle[seed] > len(axes):
                at[seed] = draws[seed].integers(0, sizes)
                here[seed], idle[seed] = (np.inf, np.inf), 0
    return best


def _line(place: int, size: int, turn: int) -> np.ndarray:
    """All values of an axis; of a long one, evenly spaced ones and, every other turn, near ones."""
    if size <= LINE:
        return np.arange(size)
    reach = size if turn % 2 else max(LINE, size // LINE)
    low = np.clip(place - reach // 2, 0, max(0, size - reach))
    return np.unique(np.linspace(low, min(low + reach, size) - 1, LINE).astype(int))


def _feasible_objective(scores: Scores) -> np.ndarray:
    """Log objectives, infinite where a limit is broken."""
    return np.where(scores.excess <= 0, scores.objective, np.inf)


def main(
    only: Annotated[list[str] | None, typer.Option(help="Spaces; all five if none.")] = None,
    estimator: Annotated[list[str] | None, typer.Option(help="Estimators; both if none.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of every search.")] = SEEDS,
    as_json: _report.Json = False,
) -> None:
    """Five spaces of 10^7 points and more: gradients and rounding against brute force."""
    with _report.door():
        names = _report.chosen_keys("space", only or list(spaces.SPACES), spaces.SPACES)
        estimators = _report.chosen_keys(
            "estimator", estimator or list(spaces.ESTIMATORS), spaces.ESTIMATORS
        )
    reports: dict[str, Any] = {}
    rows = []
    for name in names:
        for kind in estimators:
            print(f"{name}, {kind}", flush=True)
            outcome = compare(spaces.SPACES[name](kind), seeds)
            reports[f"{name} {kind}"] = outcome.report()
            rows.append(_row(f"{name}, {kind}", outcome, seeds))
            print("  " + ", ".join(rows[-1][1:]), flush=True)
    columns = ("space", "points", "evaluations", "fewer by", "gradient / value",
               "gradients: worst gap %", "random", "coordinates")  # fmt: skip
    note = "In brackets: seeds within 1 % of the exhaustive optimum, at the same evaluations."
    _report.show("Gradients against brute force", columns, rows, note)
    worst = max(x["methods"]["gradients"]["worst_gap"] for x in reports.values())
    least = min(x["evaluation_ratio"] for x in reports.values())
    beaten = {kind: _beaten(reports, kind) for kind in estimators}
    agrees = worst <= WITHIN and least >= RATIO
    headline = {
        "worst_gap": worst,
        "least_evaluation_ratio": least,
        "spaces_better_than_both": beaten,
        "spaces": reports,
        "agrees": agrees,
    }
    _report.finish(agrees, headline, as_json)


def _row(title: str, outcome: Outcome, seeds: int) -> tuple[str, ...]:
    """A line of the table."""
    return (
        title,
        f"{outcome.task.size:.2g}",
        f"{outcome.evaluations.mean():,.0f}",
        f"{outcome.ratio:.0f}",
        f"{outcome.gradient_cost:.2f}",
        *(
            f"{100 * outcome.gaps[m].max():.2f} ({outcome.successes(m)}/{seeds})"
            for m in ("gradients", "random", "coordinates")
        ),
    )


def _beaten(reports: dict[str, Any], kind: str) -> int:
    """Spaces in which the mean gap of gradients is below that of both other searches."""
    mine = [x["methods"] for name, x in reports.items() if name.endswith(f" {kind}")]
    return sum(
        all(m["gradients"]["mean_gap"] < m[o]["mean_gap"] for o in ("random", "coordinates"))
        for m in mine
    )


if __name__ == "__main__":
    typer.run(main)
