"""The best design on the lattice near a continuous optimum, by the exact model.

Every end is rounded both ways in every axis. From the best of these, moves of one axis, of two and
(at random) of more are tried until none helps, because along a limit better designs differ in
several axes at once. The exact model decides; no point is evaluated twice.
"""

from collections.abc import Sequence
from itertools import combinations, product

import jax.numpy as jnp
import numpy as np

from infer_jax.design.problem import DesignProblem, Scores

CORNERS = 8  # most axes rounded both ways; the others are rounded to the nearest value
CLIMBS = 12  # designs improved side by side
AXIS_STEPS = 4  # steps of one axis, doubling: 1, 2, 4, and in long axes up to half of it
PAIR_STEPS = (1, -1, 2, -2)  # steps of two axes at once
RANDOM_MOVES = 512  # random moves of three axes and more in each round
MAX_ROUNDS = 24  # rounds of climbing
PATIENCE = 3  # rounds without gain after which a search ends


class Lattice:
    """Scores of lattice points, each evaluated once."""

    def __init__(self, problem: DesignProblem, limits: np.ndarray):
        self.problem, self.limits = problem, limits
        self.sizes = np.asarray(problem.relaxed.group.sizes, int)
        self.scores: dict[tuple[int, ...], tuple[float, float]] = {}

    def __call__(self, digits: np.ndarray) -> Scores:
        """Scores of rows of digits, which must lie in the grid."""
        rows = [tuple(int(x) for x in row) for row in digits]
        new = [row for row in dict.fromkeys(rows) if row not in self.scores]
        if new:
            scores = self.problem.exact(np.array(new), self.limits)
            pairs = zip(scores.objective.tolist(), scores.excess.tolist(), strict=True)
            self.scores |= dict(zip(new, pairs, strict=True))
        rows_of_scores = np.array([self.scores[row] for row in rows]).reshape(-1, 2)
        return Scores(rows_of_scores[:, 0], rows_of_scores[:, 1])

    def best_of(self, digits: Sequence[int], count: int) -> list[tuple[int, ...]]:
        """The best points that keep the limits, one of those that agree in some digits.

        The others are 0.
        """
        kept = [(row, x) for row, (x, excess) in self.scores.items() if excess <= 0.0]
        rows = (row for row, _ in sorted(kept, key=lambda x: x[1]))
        own = (tuple(at if i in digits else 0 for i, at in enumerate(row)) for row in rows)
        return [*dict.fromkeys(own)][:count]

    def inside(self, digits: np.ndarray) -> np.ndarray:
        """The rows that lie in the grid."""
        return digits[np.all((digits >= 0) & (digits < self.sizes), axis=1)]


def corners(problem: DesignProblem, free: np.ndarray, digits: np.ndarray) -> np.ndarray:
    """The lattice points around one end: rounded both ways in up to ``CORNERS`` axes."""
    relaxed = problem.relaxed
    place = relaxed.positions(np.asarray(relaxed.values(jnp.asarray(free))))
    between = np.abs(place - np.round(place))
    open_ = set(np.argsort(-between)[:CORNERS]) if len(place) else set()
    ways = [
        sorted({int(np.floor(p)), int(np.ceil(p))} if i in open_ else {round(p)})
        for i, p in enumerate(place)
    ]
    rows = np.tile(digits, (int(np.prod([len(w) for w in ways])), 1))
    if relaxed.moving:
        rows[:, list(relaxed.moving)] = np.array(list(product(*ways)))
    return rows


def neighbours(digits: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """All moves of one axis and of two, and ``RANDOM_MOVES`` moves of three and more."""
    axes = [i for i, size in enumerate(sizes) if size > 1]
    moves: list[dict[int, int]] = []
    for i in axes:
        far = max(AXIS_STEPS, int(sizes[i]) // 2)
        doubled = [2**k for k in range(far.bit_length())]
        moves += [{i: sign * by} for by in doubled for sign in (1, -1)]
    for i, j in combinations(axes, 2):
        moves += [{i: a, j: b} for a in PAIR_STEPS for b in PAIR_STEPS]
    for _ in range(RANDOM_MOVES if len(axes) > 2 else 0):
        chosen = rng.choice(axes, rng.integers(3, len(axes) + 1), replace=False)
        steps = rng.choice((-3, *PAIR_STEPS, 3), len(chosen))
        moves.append(dict(zip(chosen.tolist(), steps.tolist(), strict=True)))
    rows = np.tile(digits, (len(moves), 1))
    for row, move in zip(rows, moves, strict=True):
        for i, by in move.items():
            row[i] += by
    return rows


def round_ends(
    lattice: Lattice,
    free: np.ndarray,
    digits: np.ndarray,
    rng: np.random.Generator,
    near: Sequence[Sequence[int]] = (),
) -> np.ndarray:
    """The digits of the best lattice point around the ends (rows of coordinates and digits).

    ``near``: the digits of other points to begin at.
    """
    problem = lattice.problem
    around = [lattice.inside(corners(problem, f, d)) for f, d in zip(free, digits, strict=True)]
    firsts = _ranked(lattice, np.array([_best(lattice, rows) for rows in around]))
    rest = _ranked(lattice, np.concatenate(around))[:CLIMBS]
    begun = np.array(near, int).reshape(-1, digits.shape[1])
    climbers = _ranked(lattice, np.r_[firsts[:CLIMBS], rest, begun])[: max(CLIMBS, len(firsts))]
    idle = 0
    for _ in range(MAX_ROUNDS):
        if idle >= PATIENCE:
            break
        tops = climbers if idle == 0 else climbers[:1]
        moved = [
            _best(lattice, np.r_[c[None], lattice.inside(neighbours(c, lattice.sizes, rng))])
            for c in tops
        ]
        moved = _ranked(lattice, np.array(moved))
        idle = 0 if any(not any(np.array_equal(m, c) for c in tops) for m in moved) else idle + 1
        climbers = moved
    return climbers[0]


def _best(lattice: Lattice, rows: np.ndarray) -> np.ndarray:
    return rows[lattice(rows).order[0]]


def _ranked(lattice: Lattice, rows: np.ndarray) -> np.ndarray:
    """Distinct rows, best first."""
    rows = np.unique(rows, axis=0)
    return rows[lattice(rows).order]
