"""The design of least expected cost: numbers of the chip now, batch and layout when more is known.

C(c, d) is the least cost of candidate c at draw d over the lattice of batches and layouts that keep
the limits there; where none does, tokens are served elsewhere, on the start. Chosen is the least
mean over draws (two stages with recourse: Birge and Louveaux 2011, Introduction to Stochastic
Programming, 2.1). To go on with the start, too, is a choice.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from infer_jax.calibration.posterior import information_value, mean_of_halves
from infer_jax.design.design import Design
from infer_jax.design.draws import Draws, DrawSpec
from infer_jax.design.problem import DesignProblem
from infer_jax.design.rounding import Lattice
from infer_jax.errors import InputError
from infer_jax.silicon.mixture import mixture_of
from infer_jax.sweeps.paths import Point
from infer_jax.sweeps.space import Group

ADDITIVE = ("total", "cost", "input_cost")  # costs that are sums over the cases of a mixture
MAX_LAYOUTS = 8192  # of a case
ENDS, ROUNDS, FRONTIER = 12, 6, 6  # designs of the search, rounds of moves, draws' optima moved
TAILS = (1.0 - 0.8) / 2.0, (1.0 + 0.8) / 2.0  # 80 % of draws are within the ends
OFTEN = 1 / 32  # share of draws at which a candidate has to be best to count as an option
CLEAR = 3.0  # standard errors above which a value is told from noise


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A design over the draws: costs by the unit of the objective.

    ``low``, ``high``: ends of 80 % of its costs; ``holds``: probability that some batch and layout
    keep the limits; ``regret``: mean excess over the best candidate at each draw.
    """

    name: str
    values: dict[str, object]
    expected: float
    low: float
    high: float
    holds: float
    regret: float


@dataclasses.dataclass(frozen=True)
class Information:
    """Value of knowing one number, or a group of them, before the chip is chosen.

    ``clear``: whether it can be told from 0 with these draws.
    """

    name: str
    value: float
    error: float

    @property
    def clear(self) -> bool:
        """Whether it is above 0 by more than its Monte Carlo error allows."""
        return self.value > CLEAR * self.error


@dataclasses.dataclass(frozen=True)
class ExpectedDesign:
    """Candidates over draws, and values of information.

    First stands the least expected cost of chips that keep the limits in more than half of the
    draws (of all, where none does), then the optimum without draws, then the start.

    ``perfect``: of knowing all; ``groups`` and ``singles`` by falling value. ``elsewhere``: mean
    cost of what no layout serves within the limits. ``evaluations``: of designs, draws and layouts.
    """

    candidates: tuple[Candidate, ...]
    perfect: Information
    groups: tuple[Information, ...]
    singles: tuple[Information, ...]
    elsewhere: float
    draws: int
    designs: int
    evaluations: int


Digits = tuple[int, ...]
Costs = Float[np.ndarray, " draws"]  # infinite where no batch and layout keep the limits
Layouts = tuple[Point, np.ndarray]  # of one case: its estimator alone, digits of batch and plan


def expected_design(
    where: str, spec: DrawSpec, design: Design, system: object, seed: int
) -> ExpectedDesign:
    """The candidates of a search over draws.

    Raises:
        InputError: an objective of which more is better, or that is no sum over the cases of a
            mixture; too many layouts; a start that keeps the limits in no draw where no
            ``elsewhere`` is given.
    """
    lattice = design.lattice
    assert lattice is not None
    relaxed = lattice.problem.relaxed
    leads, sizes = relaxed.group.leads, relaxed.group.sizes
    first = [d for d, n in enumerate(sizes) if n > 1 and _case_of(leads[d].path) is None]
    _check(where, lattice.problem)
    drawn = Draws.of(where, spec, design.start, system, seed)
    layouts = _layouts(where, relaxed.group)
    costs = _costs(lattice, layouts, drawn)
    start = np.zeros(len(sizes), int)
    start[first] = relaxed.start_digits(design.start_values)[first]
    own = costs(start, drawn.of_start)
    elsewhere = _elsewhere(where, spec, own)
    ends = lattice.best_of(first, ENDS)
    moves = [(d, by) for d in first for by in (1, -1, 2, -2)]

    def neighbours(row: Digits) -> list[Digits]:
        """One step of each number that is chosen first, and two."""
        inside = [(d, row[d] + by) for d, by in moves if 0 <= row[d] + by < sizes[d]]
        return [(*row[:d], at, *row[d + 1 :]) for d, at in inside]

    table = _searched(ends, neighbours, lambda x: costs(np.array(x), drawn.factors), elsewhere)
    rows, every = [*table, tuple(start.tolist())], np.stack([*table.values(), own])
    holds, matrix = np.isfinite(every), np.where(np.isfinite(every), every, elsewhere)
    means, floor = matrix.mean(axis=1), matrix.min(axis=0)
    least = int(np.argmin(np.where(reliable(holds[:-1]), means[:-1], np.inf)))
    named = {"least expected cost": least, "optimum without draws": rows.index(ends[0])}
    named["start"] = len(rows) - 1
    low, high = np.quantile(matrix, TAILS, axis=1)
    candidates = [
        Candidate(
            name,
            {leads[d].path: leads[d].labels[rows[i][d]] for d in first},
            float(means[i]),
            float(low[i]),
            float(high[i]),
            float(holds[i].mean()),
            float((matrix[i] - floor).mean()),
        )
        for name, i in named.items()
    ]
    return ExpectedDesign(
        tuple(candidates),
        Information("all of them", *mean_of_halves(matrix[np.argmin(means)] - floor)),
        *_information(drawn, matrix),
        float(elsewhere.mean()),
        len(drawn.scores),
        len(rows),
        sum(len(digits) for _, digits in layouts) * matrix.size,
    )


def _check(where: str, problem: DesignProblem) -> None:
    by, mixture = problem.keep.by, mixture_of(problem.relaxed.group.base.estimator)
    alone = mixture is None or not mixture.cases
    if problem.signs[by] < 0 or not (alone or by in ADDITIVE):
        allowed = "a cost, as total" if alone else ", ".join(ADDITIVE)
        raise InputError(where, "objective.best", by, f"with [draws]: {allowed}")


def _elsewhere(where: str, spec: DrawSpec, own: Costs) -> Costs:
    """Costs of what cannot be served: as given, or on the start, the dearest where that fails."""
    if spec.elsewhere is not None:
        return np.full(len(own), spec.elsewhere)
    if not np.isfinite(own).any():
        allowed = "a cost of what cannot be served: the start keeps the limits in no draw"
        raise InputError(where, "draws.elsewhere", "missing", allowed)
    return np.where(np.isfinite(own), own, np.max(own[np.isfinite(own)]))


def _searched(
    ends: Sequence[Digits],
    neighbours: Callable[[Digits], list[Digits]],
    costs: Callable[[Digits], Costs],
    elsewhere: np.ndarray,
) -> dict[Digits, Costs]:
    """Costs of candidates: ends of the search, and moves from the best of them.

    The best are that of least mean, and those that are cheapest at most draws.
    """
    table, new = dict[Digits, Costs](), [*ends]
    for _ in range(ROUNDS):
        table |= {row: costs(row) for row in new}
        rows, every = list(table), np.stack([*table.values()])
        matrix = np.where(np.isfinite(every), every, elsewhere)
        matrix = np.where(reliable(np.isfinite(every))[:, None], matrix, np.inf)
        often = Counter(np.argmin(matrix, axis=0).tolist()).most_common(FRONTIER)
        tops = [int(np.argmin(matrix.mean(axis=1))), *(i for i, _ in often)]
        moves = [move for i in dict.fromkeys(tops) for move in neighbours(rows[i])]
        new = [row for row in dict.fromkeys(moves) if row not in table]
    return table | {row: costs(row) for row in new}


def reliable(holds: Bool[np.ndarray, "candidates draws"]) -> Bool[np.ndarray, " candidates"]:
    """Which candidates keep the limits in more than half of the draws; all where none does."""
    shares = holds.mean(axis=1)
    return (shares > 0.5) | (shares.max() <= 0.5)


def _information(
    drawn: Draws, costs: Float[np.ndarray, "candidates draws"]
) -> tuple[tuple[Information, ...], tuple[Information, ...]]:
    """Values of knowing groups of numbers, and single ones, the largest first.

    The options are the candidates that are best at some share of the draws, or in expectation.
    """
    often = np.bincount(np.argmin(costs, axis=0), minlength=len(costs)) > OFTEN * costs.shape[1]
    often[np.argmin(costs.mean(axis=1))] = True
    benefits = -costs[often].T
    groups = np.array(drawn.groups)
    several = [(x, groups == x) for x in dict.fromkeys(drawn.groups) if drawn.groups.count(x) > 1]
    found = (
        [Information(name, *information_value(benefits, drawn.scores[:, own])) for name, own in x]
        for x in (several, [(name, [i]) for i, name in enumerate(drawn.names)])
    )
    many, single = (tuple(sorted(x, key=lambda one: -one.value)) for x in found)
    return many, single


def _case_of(path: str) -> int | None:
    """The case that a batch or a layout is of; None of a number that is chosen before the draw."""
    words = path.split(".")
    if not {"workload", "plan"} & {*words}:
        return None
    return 1 + int(words[words.index("cases") + 1]) if "cases" in words else 0


def _layouts(where: str, group: Group) -> list[Layouts]:
    """The batches and layouts of every case, each with the estimator of that case alone."""
    mixture = mixture_of(group.base.estimator)
    found: list[Layouts] = []
    for i in range(1 if mixture is None else 1 + len(mixture.cases)):
        own = [d for d, x in group.leads.items() if group.sizes[d] > 1 and _case_of(x.path) == i]
        count = int(np.prod([group.sizes[digit] for digit in own], dtype=float))
        if count > MAX_LAYOUTS:
            allowed = f"with [draws] at most {MAX_LAYOUTS:,} batches and layouts of a case"
            raise InputError(where, "free", f"{count:,} of case {i + 1}", allowed)
        digits = np.zeros((count, len(group.sizes)), np.int32)
        digits[:, own] = np.array(list(product(*(range(group.sizes[x]) for x in own))))
        base = group.base
        if mixture is not None and mixture.cases:
            alone = base.estimator.exchange(mixture, mixture.replace(only=i))
            base = base._replace(estimator=alone)
        found.append((base, digits))
    return found


def _costs(
    lattice: Lattice, layouts: Sequence[Layouts], drawn: Draws
) -> Callable[[np.ndarray, Float[np.ndarray, "draws leaves"]], Costs]:
    """Costs of the digits of a chip at factors by draw: one program."""
    problem, group = lattice.problem, lattice.problem.relaxed.group
    tables = [jnp.asarray(t) for t in group.tables]

    def of_layout(base: Point, digits: Array) -> tuple[Array, Array]:
        steps = [t[digits[s.digit]] for s, t in zip(group.slots, tables, strict=True)]
        return problem.score(base, steps, jnp.asarray(lattice.limits))

    def of_draw(chip: Array, factors: Array) -> Array:
        cost = jnp.asarray(0.0)
        for base, digits in layouts:
            flat, tree = jax.tree.flatten(base)
            for leaf, factor in zip(drawn.leaves, factors, strict=True):
                flat[leaf] = flat[leaf] * factor
            moved = jax.tree.unflatten(tree, flat)
            objective, excess = jax.vmap(of_layout, (None, 0))(moved, chip + jnp.asarray(digits))
            cost = cost + jnp.exp(jnp.min(jnp.where(excess <= 0.0, objective, jnp.inf)))
        return cost

    program = jax.jit(jax.vmap(of_draw, (None, 0)))

    def costs(chip: np.ndarray, factors: Float[np.ndarray, "draws leaves"]) -> Costs:
        with jax.enable_x64(True):
            return np.asarray(program(jnp.asarray(chip, jnp.int32), jnp.asarray(factors)))

    return costs
