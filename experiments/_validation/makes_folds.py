"""AMD's rows predicted by fits that have not seen their group or server."""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from experiments._validation import makes
from experiments._validation.row import Row

FOLDS = 5
WAYS = ("groups", "servers")


def group_of(row: Row) -> tuple:
    """Rows that are held out together: a server with its lengths."""
    assert row.work is not None
    return (row.group, row.asked, float(row.work.isl), float(row.work.osl))


def folds(rows: Sequence[Row], way: str, seed: int = 0) -> list[np.ndarray]:
    """Rows of each fold (true), each row in one: random groups, or a server at a time."""
    labels: list[Hashable] = [r.group if way == "servers" else group_of(r) for r in rows]
    kinds = sorted(set(labels), key=str)
    parts = [[k] for k in kinds]
    if way == "groups":
        order = np.random.default_rng(seed).permutation(len(kinds))
        parts = [[kinds[i] for i in order[f::FOLDS]] for f in range(FOLDS)]
    return [np.asarray([label in part for label in labels]) for part in parts]


class HeldOut(NamedTuple):
    """Seconds of each row by a fit without its group: of its build where that is known, and not."""

    of_build: np.ndarray
    of_mature: np.ndarray


def held_out(rows: Sequence[Row], way: str) -> HeldOut:
    """Times of all rows, each by a fit on the other folds."""
    problem = makes.problem(rows, makes.early(rows))
    end = problem.starts(1, 0.0, 0)
    found = HeldOut(np.full(len(rows), np.nan), np.full(len(rows), np.nan))
    for inside in folds(rows, way):
        ends, _ = problem.solve(end, (~inside).astype(float), makes.STEPS)
        logs, _ = problem.derivatives(ends[0])
        found.of_build[inside] = np.exp(np.asarray(logs))[inside]
        make = np.where(np.arange(len(problem.chosen.names)) < makes.SHARED, ends[0], 0.0)
        logs, _ = problem.derivatives(make)
        found.of_mature[inside] = np.exp(np.asarray(logs))[inside]
    return found


def as_answers(
    rows: Sequence[Row], pick: Callable[[HeldOut], np.ndarray], way: str
) -> dict[str, np.ndarray]:
    """The held-out times of AMD's rows among ``rows``, by metric."""
    places = [i for i, row in enumerate(rows) if makes.fitted(row)]
    found = {m: np.full(len(rows), np.nan) for m in makes.OUTPUTS}
    if len({rows[i].group for i in places}) < 2:
        return found
    times = pick(held_out([rows[i] for i in places], way))
    for i, seconds in zip(places, times, strict=True):
        found[makes.output(rows[i])][i] = seconds
    return found
