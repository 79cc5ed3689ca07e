"""A frontier of designs along a limit, and what each change of a design is worth.

Each search of a frontier begins at the design before it; changes are made one number at a time,
from the start to the design.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple, Unpack

import jax
import numpy as np

from infer_jax.design.design import Design, Search, SearchOptions
from infer_jax.design.rounding import Lattice
from infer_jax.sweeps.paths import Tree
from infer_jax.sweeps.space import AxisColumn


class Flip(NamedTuple):
    """Numbers that jump between two neighbouring limits: by path, before and after."""

    low: float
    high: float
    jumps: Mapping[str, tuple[Tree, Tree]]


def follow(
    search: Search, limits: Sequence[Mapping[str, float]], **options: Unpack[SearchOptions]
) -> list[Design]:
    """The best design under each of several limits, in their order.

    A search begins at the design before it, too. Where the design after it is better under its
    limit, the lattice around that one is searched, so that no design is worse than a neighbour's.
    """
    designs = list[Design]()
    with jax.enable_x64(True):
        for under in limits:
            designs.append(search.run(under=under, near=designs[-1:], **options))
        for i in reversed(range(len(limits) - 1)):
            own, after = designs[i], designs[i + 1]
            exact = search.problems[after.group].exact
            [objective], [excess] = exact([*after.digits], search.limits(limits[i]))
            better = objective < own.sign * np.log(own.objective) - 1e-12
            if after.index is None or excess > 0 or not better:
                continue
            start = options.get("start")
            again = search.run(start=start, under=limits[i], restarts=1, steps=0, near=[after])
            counts = own.counts | {"lattice": own.counts["lattice"] + again.counts["lattice"]}
            seconds = own.seconds + again.seconds
            changed = {"paths": own.paths, "counts": counts, "seconds": seconds}
            designs[i] = dataclasses.replace(again, **changed)
    return designs


def flips(search: Search, designs: Sequence[Design], values: Sequence[float]) -> list[Flip]:
    """Where a small change of the limit, whose values these are, flips the design.

    A number jumps where it moves by more than one value of its axis, and by more per cent than the
    limit does; a name, where it changes.
    """
    found = list[Flip]()
    for i, j in pairwise(np.argsort(values).tolist()):
        before, after = designs[i], designs[j]
        least = abs(np.log(values[j] / values[i]))
        leads = search.problems[after.group].relaxed.group.leads.values()
        pairs = [(x, (before.values.get(x.path), after.values.get(x.path))) for x in leads]
        jumps = {x.path: ends for x, ends in pairs if None not in ends and _jumps(x, ends, least)}
        if jumps:
            found.append(Flip(values[i], values[j], jumps))
    return found


def _jumps(column: AxisColumn, pair: tuple[Tree, Tree], least: float) -> bool:
    """Whether a number moves further on its axis than a limit by ``least``, in logarithms."""
    if any(isinstance(x, str) for x in pair):
        return pair[0] != pair[1]
    one, two = (float(x) for x in pair)
    labels = np.array(column.labels, np.float64)
    positions = np.argmin(np.abs(labels - one)), np.argmin(np.abs(labels - two))
    far = abs(int(positions[1]) - int(positions[0])) > 1
    return far and (min(one, two) <= 0 or abs(np.log(two / one)) > least)


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
