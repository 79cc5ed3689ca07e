"""Errors of predictions in per cent."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Real

from infer_jax.errors import InputError

Rows = Real[np.ndarray, " rows"]


class Score(NamedTuple):
    """Errors |predicted / measured - 1| in percent, agreement of ranks, share of rows in bands."""

    rows: int
    median: float
    mean: float
    p90: float
    spearman: float
    cover80: float | None = None


def score(
    predicted: Rows,
    measured: Rows,
    low: Rows | None = None,
    high: Rows | None = None,
) -> Score:
    """The score of predictions, and of their 80 % bands where given.

    Raises:
        InputError: no rows.
    """
    if not len(measured):
        raise InputError("score", "rows", "none", "at least one")
    wrong = 100.0 * np.abs(np.asarray(predicted) / measured - 1.0)
    covered = None
    if low is not None and high is not None:
        covered = 100.0 * float(np.mean((low <= measured) & (measured <= high)))
    middle, tail = np.quantile(wrong, (0.5, 0.9))
    rank = spearman(np.asarray(predicted), np.asarray(measured))
    mean = float(wrong.mean())
    return Score(len(measured), float(middle), mean, float(tail), rank, covered)


def spearman(one: Rows, other: Rows) -> float:
    """Correlation of ranks, ties by their mean rank; 0 where either side is all equal."""
    first, second = _ranks(one), _ranks(other)
    if not np.ptp(first) or not np.ptp(second):
        return 0.0  # nothing is ranked
    return float(np.corrcoef(first, second)[0, 1])


def interval_score(measured: Rows, low: Rows, high: Rows, share: float = 0.8) -> float:
    """Mean interval score in log: width + 2/a times the distance outside, a = 1 - share.

    Smaller is better; proper for central intervals. Source: Gneiting and Raftery 2007.
    """
    at, down, up = (np.log(np.asarray(x)) for x in (measured, low, high))
    outside = np.maximum(down - at, 0.0) + np.maximum(at - up, 0.0)
    return float(np.mean(up - down + 2.0 / (1.0 - share) * outside))


def _ranks(values: Rows) -> Float[np.ndarray, " rows"]:
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2.0)[index]
