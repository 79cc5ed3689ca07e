"""Refits to a part of the rows: cross-validation, where others are predicted, and bootstrap."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, Unpack

import numpy as np
from jax.typing import ArrayLike

from infer_jax.calibration.problem import FitProblem, Predict, ProblemOptions
from infer_jax.errors import InputError


class LeftOutFold(NamedTuple):
    """One fold: its name, a mask of its rows, and the solution on the other rows."""

    name: str
    inside: np.ndarray
    free: np.ndarray  # coordinates


def fold_masks(folds: Sequence[Hashable], rows: int) -> dict[str, np.ndarray]:
    """A mask of the rows of each fold, from one label for each row.

    Raises:
        InputError: another number of labels than rows, or fewer than two folds.
    """
    masks = label_masks(np.asarray([str(label) for label in folds]))
    if len(folds) != rows or len(masks) < 2:
        allowed = f"{rows} labels, one a row, of two folds or more"
        raise InputError("fit", "folds", f"{len(folds)} of {len(masks)} kinds", allowed)
    return masks


def label_masks(labels: np.ndarray, scored: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """A mask of all rows that have a label, for every label among the ``scored`` ones (or all)."""
    kinds = np.unique(labels if scored is None else labels[scored])
    return {str(kind): labels == kind for kind in kinds}


def random_groups(
    groups: Sequence[Hashable], share: float = 0.3, seeds: int = 5
) -> dict[str, np.ndarray]:
    """Masks of the rows in random draws of a ``share`` of the groups, one for each of ``seeds``.

    Draws overlap.

    Raises:
        InputError: fewer than two groups, or a share outside (0, 1).
    """
    kinds = sorted(set(groups), key=str)
    if len(kinds) < 2 or not 0.0 < share < 1.0:
        allowed = "two groups or more and a share between 0 and 1"
        raise InputError("fit", "random groups", f"{len(kinds)} groups, share {share}", allowed)
    count = min(max(round(share * len(kinds)), 1), len(kinds) - 1)
    masks = {}
    for seed in range(seeds):
        drawn = {kinds[i] for i in np.random.default_rng(seed).permutation(len(kinds))[:count]}
        masks[f"seed {seed}"] = np.asarray([group in drawn for group in groups])
    return masks


def cross_validate(
    problem: FitProblem,
    folds: Mapping[str, np.ndarray],
    *,
    weights: ArrayLike | None = None,
    starts: ArrayLike | None = None,
    steps: int = 200,
) -> Iterator[LeftOutFold]:
    """The solution for each fold on the rows outside it, one after the other; compiled once.

    Args:
        problem: the fitting problem.
        folds: masks of the rows of each fold, by name; folds may overlap.
        weights: how many times each row counts in fits; 0: it is only predicted.
        starts: free coordinates to start from, starts x parameters; the tree's by default.

    Raises:
        InputError: a fold without rows to fit, or as ``fit``.
    """
    counted = problem.weighted(weights)
    begin = problem.starts() if starts is None else starts
    for name, inside in folds.items():
        weight = np.where(inside, 0.0, counted)
        if not weight.any():
            raise InputError("fit", f"fold {name}", "all rows", "rows left to fit")
        ends, _ = problem.solve(begin, weight, steps)
        yield LeftOutFold(name, np.asarray(inside, bool), ends[0])


def predict_held_out(
    predict: Predict,
    measured: ArrayLike | Sequence[float],
    tree: object,
    names: Sequence[str],
    folds: Sequence[Hashable],
    *,
    weights: ArrayLike | None = None,
    restarts: int = 4,
    spread: float = 1.0,
    seed: int = 0,
    steps: int = 200,
    **options: Unpack[ProblemOptions],
) -> np.ndarray:
    """Every row predicted by a fit on the rows of the other folds, in the unit of the data.

    ``folds`` labels the rows; the rest is as in ``fit``.

    Raises:
        InputError: another number of labels than rows, fewer than two folds; see ``fit``.
    """
    problem = FitProblem.of(predict, measured, tree, names, **options)
    masks = fold_masks(folds, len(problem.data))
    starts = problem.starts(restarts, spread, seed)
    predicted = np.empty_like(problem.data)
    for fold in cross_validate(problem, masks, weights=weights, starts=starts, steps=steps):
        logs, _ = problem.derivatives(fold.free)
        predicted[fold.inside] = np.exp(np.asarray(logs))[fold.inside]
    return predicted


def bootstrap(
    problem: FitProblem,
    clusters: Sequence[Hashable],
    *,
    weights: ArrayLike | None = None,
    start: ArrayLike | None = None,
    draws: int = 40,
    seed: int = 0,
    steps: int = 100,
) -> np.ndarray:
    """Free coordinates refitted to clusters drawn with replacement, draws x parameters.

    A cluster drawn twice counts twice; the fits share one compiled program. Source: Efron and
    Tibshirani 1993, chapter 8.

    Raises:
        InputError: another number of labels than rows, or fewer than two clusters; see ``fit``.
    """
    inside = fold_masks(clusters, len(problem.data))
    member = np.stack(list(inside.values()))
    random = np.random.default_rng(seed)
    picked = random.multinomial(len(member), np.full(len(member), 1.0 / len(member)), size=draws)
    begin = problem.starts() if start is None else start
    ends, _ = problem.solve(begin, picked @ member * problem.weighted(weights), steps)
    return ends
