"""The design of least expected cost: numbers of the chip now, batch and layout when more is known.

C(c, d) is the least cost of candidate c at draw d over the lattice of batches and layouts that keep
the limits there; where none does, tokens are served elsewhere, on the start. Chosen is the least
mean over draws (two stages with recourse: Birge and Louveaux 2011, Introduction to Stochastic
Programming, 2.1). To go on with the start, too, is a choice.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from infer_jax.calibration.expected_value import information_value, mean_of_halves
from infer_jax.design.design import Design
from infer_jax.design.draws import Draws, DrawSpec
from infer_jax.design.problem import DesignProblem
from infer_jax.design.rounding import Lattice
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.estimators.estimator import Wrapper
from infer_jax.silicon.mixture import Mixture, mixture_of
from infer_jax.sweeps.paths import Point

ADDITIVE = ("total", "cost", "input_cost")  # costs that are sums over the cases of a mixture
SECOND = ("workload.", "plan.", ".workload.", ".plan.")  # numbers that are chosen after the draw
MAX_LAYOUTS = 8192  # of a case
ENDS, ROUNDS, FRONTIER = 12, 6, 6  # designs of the search, rounds of moves, draws' optima moved
SHARE = 0.8  # of draws within the ends that are reported
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


class CaseLayouts(NamedTuple):
    """Batches and layouts of one case: digits of the grid, zero where they are not of it."""

    base: Point
    digits: np.ndarray


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
    _check(where, lattice.problem)
    chips = Chips.of(lattice.problem)
    drawn = Draws.of(where, spec, design.start, system, seed)
    layouts = _layouts(where, chips)
    costs = _costs(lattice, layouts, drawn)
    start = chips.nearest(design.start_values)
    own = costs(start, drawn.of_start)
    elsewhere = np.full(len(own.cost), spec.elsewhere or 0.0)
    if spec.elsewhere is None:
        if not own.holds.any():
            allowed = "a cost of what cannot be served: the start keeps the limits in no draw"
            raise InputError(where, "draws.elsewhere", "missing", allowed)
        elsewhere = own.filled(np.max(own.cost, where=own.holds, initial=0.0))
    ends = lattice.best_of(chips.first, ENDS)
    table = _searched(chips, ends, lambda row: costs(np.array(row), drawn.factors), elsewhere)
    rows = [*table, tuple(start.tolist())]
    matrix = np.stack([x.filled(elsewhere) for x in (*table.values(), own)])
    holds = np.stack([x.holds for x in (*table.values(), own)])
    means, floor = matrix.mean(axis=1), matrix.min(axis=0)
    best, often = int(np.argmin(means)), reliable(holds[:-1])
    ordered = int(np.argmin(np.where(often, means[:-1], np.inf)))
    named = {"least expected cost": ordered, "optimum without draws": rows.index(ends[0])}
    named["start"] = len(rows) - 1
    tails = (1.0 - SHARE) / 2.0, (1.0 + SHARE) / 2.0
    candidates: list[Candidate] = []
    for name, i in named.items():
        low, high = (float(x) for x in np.quantile(matrix[i], tails))
        mean, share = float(means[i]), float(holds[i].mean())
        regret = float((matrix[i] - floor).mean())
        candidates.append(Candidate(name, chips.values(rows[i]), mean, low, high, share, regret))
    return ExpectedDesign(
        tuple(candidates),
        Information("all of them", *mean_of_halves(matrix[best] - floor)),
        *_information(drawn, -matrix[_options(matrix, best)].T),
        float(elsewhere.mean()),
        len(drawn.scores),
        len(rows),
        sum(len(x.digits) for x in layouts) * matrix.size,
    )


class Chips(NamedTuple):
    """The grid of a problem by what is chosen first: its digits, and their paths."""

    problem: DesignProblem
    first: tuple[int, ...]
    paths: Mapping[int, str]

    @classmethod
    def of(cls, problem: DesignProblem) -> "Chips":
        """Digits of the chip and of the model are chosen first, of requests and plans later."""
        group = problem.relaxed.group
        paths = {c.digit: c.path for c in reversed(group.columns)}
        moving = [d for d, size in enumerate(group.sizes) if size > 1]
        return cls(problem, tuple(d for d in moving if not _is_second(paths[d])), paths)

    def nearest(self, values: Mapping[str, float]) -> np.ndarray:
        """The digits nearest to values by path."""
        relaxed = self.problem.relaxed
        digits = np.zeros(len(relaxed.group.sizes), int)
        at = relaxed.positions(np.array(relaxed.start_values(values)))
        digits[list(relaxed.moving)] = np.round(at).astype(int)
        digits[[d for d in range(len(digits)) if d not in self.first]] = 0
        return digits

    def values(self, digits: Sequence[int]) -> dict[str, object]:
        """The values of what is chosen first, by path."""
        columns = {c.digit: c for c in reversed(self.problem.relaxed.group.columns)}
        return {self.paths[d]: columns[d].labels[digits[d]] for d in self.first}

    def moves(self, row: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Neighbours by one step of each number that is chosen first, and by two."""
        sizes = self.problem.relaxed.group.sizes
        return [
            (*row[:d], row[d] + by, *row[d + 1 :])
            for d in self.first
            for by in (1, -1, 2, -2)
            if 0 <= row[d] + by < sizes[d]
        ]


class ChipCosts(NamedTuple):
    """Least cost of a chip by draw, and whether some batch and layout keep the limits."""

    cost: Float[np.ndarray, " draws"]
    holds: Bool[np.ndarray, " draws"]

    def filled(self, elsewhere: np.ndarray | float) -> Float[np.ndarray, " draws"]:
        """The costs, with that of tokens elsewhere where no layout keeps the limits."""
        return np.where(self.holds, self.cost, elsewhere)


Digits = tuple[int, ...]


def _check(where: str, problem: DesignProblem) -> None:
    by, mixture = problem.keep.by, mixture_of(problem.relaxed.group.base.estimator)
    alone = mixture is None or not mixture.cases
    if problem.signs[by] < 0 or not (alone or by in ADDITIVE):
        allowed = "a cost, as total" if alone else ", ".join(ADDITIVE)
        raise InputError(where, "objective.best", by, f"with [draws]: {allowed}")


def _searched(
    chips: Chips,
    ends: Sequence[Digits],
    costs: Callable[[Digits], ChipCosts],
    elsewhere: np.ndarray,
) -> dict[Digits, ChipCosts]:
    """Costs of candidates: ends of the search, and moves from the best of them.

    The best are that of least mean, and those that are cheapest at most draws.
    """
    table = {row: costs(row) for row in ends}
    for _ in range(ROUNDS):
        rows = list(table)
        matrix = np.stack([x.filled(elsewhere) for x in table.values()])
        keeps = reliable(np.stack([x.holds for x in table.values()]))
        matrix = np.where(keeps[:, None], matrix, np.inf)
        often = Counter(np.argmin(matrix, axis=0).tolist()).most_common(FRONTIER)
        tops = [int(np.argmin(matrix.mean(axis=1))), *(i for i, _ in often)]
        moves = [move for i in dict.fromkeys(tops) for move in chips.moves(rows[i])]
        new = [row for row in dict.fromkeys(moves) if row not in table]
        if not new:
            break
        table |= {row: costs(row) for row in new}
    return table


def reliable(holds: Bool[np.ndarray, "candidates draws"]) -> Bool[np.ndarray, " candidates"]:
    """Which candidates keep the limits in more than half of the draws; all where none does."""
    shares = holds.mean(axis=1)
    return (shares > 0.5) | (shares.max() <= 0.5)


def _options(matrix: np.ndarray, best: int) -> np.ndarray:
    """The candidates that are best at some share of the draws, and the best in expectation."""
    often = np.bincount(np.argmin(matrix, axis=0), minlength=len(matrix))
    return np.unique(np.r_[np.flatnonzero(often > OFTEN * matrix.shape[1]), best])


def _information(
    drawn: Draws, benefits: Float[np.ndarray, "draws options"]
) -> tuple[tuple[Information, ...], tuple[Information, ...]]:
    """Values of knowing groups of numbers, and single ones, the largest first."""
    groups = np.array(drawn.groups)
    several = [x for x in dict.fromkeys(drawn.groups) if drawn.groups.count(x) > 1]
    found = [
        [Information(name, *information_value(benefits, drawn.scores[:, own])) for name, own in x]
        for x in (
            [(name, groups == name) for name in several],
            [(name, [i]) for i, name in enumerate(drawn.names)],
        )
    ]
    many, single = (tuple(sorted(x, key=lambda one: -one.value)) for x in found)
    return many, single


def _is_second(path: str) -> bool:
    return path.startswith(SECOND[:2]) or any(part in path for part in SECOND[2:])


def _layouts(where: str, chips: Chips) -> tuple[CaseLayouts, ...]:
    """The batches and layouts of every case, each with the estimator of that case alone."""
    group = chips.problem.relaxed.group
    mixture = mixture_of(group.base.estimator)
    cases = 1 if mixture is None else 1 + len(mixture.cases)
    found: list[CaseLayouts] = []
    for i in range(cases):
        own = [
            digit
            for digit, path in chips.paths.items()
            if _is_second(path) and group.sizes[digit] > 1
            if path.startswith(SECOND[:2]) == (i == 0) and (i == 0 or f"cases.{i - 1}." in path)
        ]
        count = int(np.prod([group.sizes[digit] for digit in own], dtype=float))
        if count > MAX_LAYOUTS:
            allowed = f"with [draws] at most {MAX_LAYOUTS:,} batches and layouts of a case"
            raise InputError(where, "free", f"{count:,} of case {i + 1}", allowed)
        digits = np.zeros((count, len(group.sizes)), np.int32)
        digits[:, own] = np.array(list(product(*(range(group.sizes[x]) for x in own))))
        base = group.base
        if cases > 1:
            base = base._replace(estimator=_only(base.estimator, i))
        found.append(CaseLayouts(base, digits))
    return tuple(found)


def _only(estimator: Estimator, case: int) -> Estimator:
    """The estimator with costs and limits of one case of its mixture."""
    if isinstance(estimator, Mixture):
        return estimator.replace(only=case)
    assert isinstance(estimator, Wrapper)
    return estimator.replace(target=_only(estimator.target, case))


def _costs(
    lattice: Lattice, layouts: Sequence[CaseLayouts], drawn: Draws
) -> Callable[[np.ndarray, Float[np.ndarray, "draws leaves"]], ChipCosts]:
    """Costs of the digits of a chip at factors by draw: one program."""
    problem, group = lattice.problem, lattice.problem.relaxed.group
    tables = [jnp.asarray(t) for t in group.tables]

    def of_layout(base: Point, digits: Array) -> tuple[Array, Array]:
        steps = [t[digits[s.digit]] for s, t in zip(group.slots, tables, strict=True)]
        return problem.score(base, steps, jnp.asarray(lattice.limits))

    def of_draw(chip: Array, factors: Array) -> tuple[Array, Array]:
        cost, holds = jnp.asarray(0.0), jnp.asarray(True)
        for base, digits in layouts:
            flat, tree = jax.tree.flatten(base)
            for leaf, factor in zip(drawn.leaves, factors, strict=True):
                flat[leaf] = flat[leaf] * factor
            moved = jax.tree.unflatten(tree, flat)
            objective, excess = jax.vmap(of_layout, (None, 0))(moved, chip + jnp.asarray(digits))
            kept = excess <= 0.0
            cost = cost + jnp.exp(jnp.min(jnp.where(kept, objective, jnp.inf)))
            holds = holds & jnp.any(kept)
        return cost, holds

    program = jax.jit(jax.vmap(of_draw, (None, 0)))

    def costs(chip: np.ndarray, factors: Float[np.ndarray, "draws leaves"]) -> ChipCosts:
        with jax.enable_x64(True):
            found = program(jnp.asarray(chip, jnp.int32), jnp.asarray(factors))
        return ChipCosts(*(np.asarray(x) for x in found))

    return costs
