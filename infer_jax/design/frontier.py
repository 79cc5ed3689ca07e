"""A frontier of designs along a limit: each search begins at the design before it."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Unpack

import jax
import numpy as np

from infer_jax.design.design import Design, Search, SearchOptions
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
