"""What each change of a design is worth: one number at a time, from the start to the design."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from infer_jax.design.design import Design, Search
from infer_jax.design.rounding import Lattice
from infer_jax.sweeps.paths import Tree
from infer_jax.sweeps.space import Group


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
    base = state = _state(lattice, _start_digits(search, design, start))
    alone: dict[int, _State] = {}
    steps = list[ChangeStep]()
    while len(left := np.flatnonzero(state.digits != end)):
        reached = {int(i): _reach(lattice, state, int(i), end) for i in left}
        alone = alone or reached
        moving = {i: x for i, x in reached.items() if x is not state}
        best = min(moving or reached, key=lambda i: reached[i][:2])
        after = moving.get(best) or _state(lattice, end)
        pairs = {
            _path(group, i): (_value(group, i, state.digits), _value(group, i, after.digits))
            for i in np.flatnonzero(after.digits != state.digits).tolist()
        }
        own = pairs.pop(path := _path(group, best))
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
    at = held[0]
    return _State(float(scores.excess[at]), float(scores.objective[at]), rows[at])


def _start_digits(search: Search, design: Design, start: Mapping[str, float]) -> np.ndarray:
    """The digits of the start, each number rounded to the nearest value of its axis."""
    relaxed = search.problems[design.group].relaxed
    digits = np.zeros(len(relaxed.group.sizes), int)
    moving = zip(relaxed.moving, relaxed.tables, relaxed.start_values(start), strict=True)
    for digit, table, value in moving:
        digits[digit] = int(np.argmin(np.abs(table - value)))
    for slot, table in zip(relaxed.group.slots, relaxed.group.tables, strict=True):
        path = _path(relaxed.group, slot.digit) if slot.rule is None else ""
        if slot.digit not in relaxed.moving and path in start:
            digits[slot.digit] = int(np.argmin(np.abs(table - start[path])))
    return digits


def _path(group: Group, digit: int) -> str:
    """The path of the first axis of a digit."""
    return next(column.path for column in group.columns if column.digit == digit)


def _value(group: Group, digit: int, digits: np.ndarray) -> Tree:
    """What the first axis of a digit is there, as it is written."""
    column = next(column for column in group.columns if column.digit == digit)
    return column.labels[int(digits[digit])]
