"""What is predicted of each row by a fit that has not seen it, and how surely?"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments._silicon import fit as fitting
from experiments._silicon.rows import Row
from infer_jax.calibration import Fit, FitProblem, bands, cross_validate, left_out
from infer_jax.errors import InputError

OUTPUTS = ("tpot", "ttft")
# how many times more the error of a row says that shares a label with the one in question
LIKENESS = {"family": 4.0, "engine": 3.0, "system": 2.0, "family and engine": 2.0}
SAME_GROUP = 8.0


@dataclass(frozen=True)
class Held:
    """One fold: indices of its rows; times and their 80 % bounds in seconds, outputs x rows."""

    name: str
    index: np.ndarray
    times: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Fold(Held):
    """A fold with the ``fit`` of the other rows; ``counted`` marks the rows that it saw."""

    fit: Fit
    counted: np.ndarray


def predicted(
    problem: FitProblem, rows: Sequence[Row], folds: Mapping[str, np.ndarray], used: np.ndarray
) -> list[Fold]:
    """Every fold predicted by a fit on the ``used`` rows outside it (clean ones), with bands.

    Each fit starts at what is believed before any row: nothing of a fold reaches its prediction.

    Raises:
        InputError: a fold whose other rows have fewer times than there are parameters.
    """
    for name, inside in folds.items():
        times = 2 * int(np.sum(used & ~inside))
        if times < len(problem.chosen.names):
            allowed = f"at least {len(problem.chosen.names)}, the number of parameters"
            raise InputError(f"fold {name}", "measured times of clean rows to fit", times, allowed)
    double = {name: np.tile(inside, 2) for name, inside in folds.items()}
    found = []
    for held in cross_validate(problem, double, weights=fitting.counted(used), steps=fitting.STEPS):
        inside = folds[held.name]
        index = np.flatnonzero(inside)
        counted = used & ~inside
        low, high = spread(held.fit, rows, index, counted)
        times = held.fit.predicted.reshape(2, -1)[:, index]
        found.append(Fold(held.name, index, times, times * low, times * high, held.fit, counted))
    return found


def spread(
    fit: Fit, rows: Sequence[Row], index: np.ndarray, counted: np.ndarray, share: float = 0.8
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of a ``share`` of measured over predicted of the rows of ``index``, outputs x rows.

    Errors are of predictions without what the asked row is new in: its group where other groups
    of its model and system were fitted, else its system, else its model.
    """
    seen = np.flatnonzero(counted)
    labels = {n: np.asarray(v, object) for n, v in _labels(rows).items()}
    factor = np.empty((2, 2, len(index)))
    new = np.asarray([_new(labels, i, seen) for i in index])
    for level in sorted(set(new)):
        among = new == level
        likeness = LIKENESS | ({"group": SAME_GROUP} if level == "row" else {})
        clusters = np.arange(len(rows)) if level == "row" else labels[level]
        errors = left_out(fit, np.tile(clusters, 2).tolist(), np.tile(counted, 2)).reshape(2, -1)
        for output in range(2):
            band = bands(
                errors[output, seen],
                {n: labels[n][seen].tolist() for n in likeness},
                {n: labels[n][index[among]].tolist() for n in likeness},
                likeness,
                share,
                clusters=clusters[seen].tolist(),
            )
            factor[0, output, among], factor[1, output, among] = np.exp(band.low), np.exp(band.high)
    return factor[0], factor[1]


def _labels(rows: Sequence[Row]) -> dict[str, list[Hashable]]:
    return {
        "family": [r.family for r in rows],
        "engine": [r.engine for r in rows],
        "system": [r.system for r in rows],
        "family and engine": [f"{r.family} {r.engine}" for r in rows],
        "group": [" ".join(map(str, r.group)) for r in rows],
    }


def _new(labels: dict[str, np.ndarray], row: int, seen: np.ndarray) -> str:
    """In what a row differs from all that were fitted."""
    for name in ("family", "system", "group"):
        if labels[name][row] not in set(labels[name][seen]):
            return name
    return "row"
