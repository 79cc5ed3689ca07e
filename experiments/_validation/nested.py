"""Nested offsets with learned spreads: what a source, make, engine, server or build adds.

log(measured / predicted) = age b + the sum over levels of an offset + what is left. Offsets of a
level are normal with a spread of its own, what is left is Student's t with 4 degrees of freedom
(rows that went wrong count little); spreads and scale by expectation and maximisation. Source:
Searle, Casella and McCulloch 1992, chapter 8; Lange, Little and Taylor 1989 for t. The innermost
level is eliminated first, as each row is in one of its labels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FREEDOM, ROUNDS = 4.0, 12
# a spread is believed to be about 3 %, as much as two labels say; months of age within 5 %
BELIEVED, LABELS, SLOPE = 0.03, 2.0, 0.05
START = 0.05


class Nested(NamedTuple):
    """Offsets of all rows by level (levels x rows), their variances, spreads and the age's slope.

    Of a label that no seen row has the offset is 0 and the variance that of its level. ``scale``:
    of the Student's t of what is left; ``slope`` with its standard error.
    """

    offsets: np.ndarray
    variances: np.ndarray
    spreads: np.ndarray
    scale: float
    slope: float
    error: float
    known: np.ndarray

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of log(measured / predicted with offsets) of each row."""
        return np.sqrt(self.variances.sum(axis=0) + self.scale**2)


def nested(
    left: np.ndarray, levels: Sequence[np.ndarray], age: np.ndarray, seen: np.ndarray
) -> Nested:
    """Offsets from the ``seen`` rows.

    Args:
        left: log(measured / predicted) of all rows.
        levels: labels of all rows, the innermost level last.
        age: months, 0 where not known.
        seen: the rows that may be used.
    """
    codes = [np.unique(labels, return_inverse=True)[1] for labels in levels]
    sizes = [int(code.max()) + 1 for code in codes]
    starts = np.cumsum([0, *sizes])
    every = np.stack([c + s for c, s in zip(codes, starts, strict=False)])
    used = np.unique(every[:, seen])
    place = np.full(starts[-1], -1)
    place[used] = np.arange(len(used))
    rows = (place[every[:, seen]], age[seen], left[seen])
    level = np.searchsorted(starts, used, side="right") - 1
    spreads = np.full(len(levels), START**2)
    values, variances, scale, slope = _learnt(rows, level, spreads)
    offsets, doubt = np.zeros(starts[-1]), np.repeat(spreads, sizes)
    offsets[used], doubt[used] = values, variances
    known = np.isin(every, used)
    return Nested(offsets[every], doubt[every], np.sqrt(spreads), scale, *slope, known)


Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # places of labels (levels x rows), age, left


def _learnt(
    rows: Rows, level: np.ndarray, spreads: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float, tuple[float, float]]:
    """Offsets, variances, scale, and slope with error; ``spreads`` (squares) is filled in."""
    labels, age, left = rows
    square = float(np.median(np.abs(left))) ** 2 + 1e-8
    rest = left - np.median(left)
    values = variances = np.zeros(len(level))
    slope = (0.0, 0.0)
    for _ in range(ROUNDS):
        weight = (FREEDOM + 1.0) / (FREEDOM + rest**2 / square)
        values, variances, slope = _solved(rows, weight / square, 1.0 / spreads[level], level)
        rest = left - slope[0] * age - values[labels].sum(axis=0)
        for k in range(len(spreads)):
            own = level == k
            size = np.sum(values[own] ** 2 + variances[own]) + LABELS * BELIEVED**2
            spreads[k] = size / (own.sum() + LABELS)
        free = max(len(rest) - 0.3 * len(level), 1.0)  # offsets take some of the freedom
        square = float(np.sum(weight * rest**2)) / free + 1e-10
    return values, variances, float(np.sqrt(square)), slope


def _solved(
    rows: Rows, weight: np.ndarray, held: np.ndarray, level: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """Offsets, their variances, and the slope with its error, of weighted least squares."""
    (*outer, inner), age, left = rows
    count = int(np.sum(level < level.max()))  # labels of the outer levels come first
    many = len(level) - count
    own = inner - count
    square, cross, right = (np.zeros((count + 1, *x)) for x in ((count + 1,), (many,), ()))
    for one in outer:
        for other in outer:
            np.add.at(square, (one, other), weight)
        np.add.at(cross, (one, own), weight)
        np.add.at(square[:, -1], one, weight * age)
        np.add.at(right, one, weight * left)
    square[-1, :-1] = square[:-1, -1]
    square[-1, -1] = np.sum(weight * age**2) + SLOPE**-2
    square[np.arange(count), np.arange(count)] += held[:count]
    cross[-1] = np.bincount(own, weight * age, many)
    right[-1] = np.sum(weight * age * left)
    size = np.bincount(own, weight, many) + held[count:]
    right_inner = np.bincount(own, weight * left, many)
    shared = cross / size
    inverse = np.linalg.inv(square - shared @ cross.T)
    found = inverse @ (right - shared @ right_inner)
    inside = (right_inner - cross.T @ found) / size
    spread = 1.0 / size + np.sum(shared * (inverse @ shared), axis=0)
    doubt = np.diag(inverse)
    values = np.concatenate([found[:-1], inside])
    slope = float(found[-1]), float(np.sqrt(doubt[-1]))
    return values, np.concatenate([doubt[:-1], spread]), slope
