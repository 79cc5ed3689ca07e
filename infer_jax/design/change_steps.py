"""What each change of a design is worth: one number at a time, from the start to the design."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from infer_jax.design.design import Design, Search
from infer_jax.design.rounding import Lattice
from infer_jax.sweeps.paths import Tree


class ChangeStep(NamedTuple):
    """One number moved to its value in the design, or as near to it as the limits allow.

    ``alone``: the factor by which the objective gets better where it alone moves so; ``gain``: on
    top of the steps before. ``others``: numbers that no limit lets move one by one, and so move
    with it, by path, before and after.
    """

    path: str
    before: Tree
    after: Tree
    alone: float
    gain: float
    others: Mapping[str, tuple[Tree, Tree]]


@dataclass(frozen=True)
class ChangePath:
    """The steps, the most valuable first, and the factor of all of them together."""

    steps: tuple[ChangeStep, ...]
    total: float

    @property
    def interaction(self) -> float:
        """All together over the product of each alone: above 1 where they help each other."""
        return self.total / prod({step.path: step.alone for step in self.steps}.values())


class _State(NamedTuple):
    excess: float
    objective: float
    digits: np.ndarray


def change_path(
    search: Search,
    design: Design,
    start: Mapping[str, float],
    under: Mapping[str, float] | None = None,
) -> ChangePath:
    """The path from the start, rounded to the grid, to a design of the same search.

    Greedy: at each step the number that gains most, moved towards its value in the design as far as
    no limit breaks (or breaks further than at the start); a number may so need several steps.
    """
    if design.index is None:
        return ChangePath((), 1.0)
    problem, end = search.problems[design.group], np.array(design.digits, int)
    lattice, group = Lattice(problem, search.limits(under)), problem.relaxed.group
    base = state = _state(lattice, problem.relaxed.start_digits(start))
    alone: dict[int, _State] = {}
    steps = list[ChangeStep]()
    while len(left := np.flatnonzero(state.digits != end)):
        reached = {int(i): _reach(lattice, state, int(i), end) for i in left}
        alone = alone or reached
        moving = {i: x for i, x in reached.items() if x is not state}
        best = min(moving or reached, key=lambda i: reached[i][:2])
        after = moving.get(best) or _state(lattice, end)
        moved = [group.leads[i] for i in np.flatnonzero(after.digits != state.digits).tolist()]
        pairs = {
            x.path: (x.labels[state.digits[x.digit]], x.labels[after.digits[x.digit]])
            for x in moved
        }
        own = pairs.pop(path := group.leads[best].path)
        worth = float(np.exp(base.objective - alone.get(best, base).objective))
        gain = float(np.exp(state.objective - after.objective))
        steps.append(ChangeStep(path, *own, worth, gain, pairs))
        state = after
    return ChangePath(tuple(steps), float(np.exp(base.objective - state.objective)))


def _state(lattice: Lattice, digits: np.ndarray) -> _State:
    [objective], [excess] = lattice(digits[None])
    return _State(float(excess), float(objective), digits)


def _reach(lattice: Lattice, state: _State, digit: int, end: np.ndarray) -> _State:
    """The state with a digit as near to its end as the limits allow."""
    way = np.sign(end[digit] - state.digits[digit])
    rows = np.repeat(state.digits[None], abs(end[digit] - state.digits[digit]), 0)
    rows[:, digit] = np.arange(end[digit], state.digits[digit], -way)
    scores = lattice(rows)
    held = np.flatnonzero(scores.excess <= max(state.excess, 0.0))
    if not len(held):
        return state
    return _state(lattice, rows[held[0]])
