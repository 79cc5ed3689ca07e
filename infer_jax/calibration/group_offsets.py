"""Offsets: the residual of a chip, an engine or one deployment after the fit.

Errors of runs of one server are alike. Offsets in log are estimated level by level (global,
engine, chip, deployment), each shrunk toward the level above as far as the data demand.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from infer_jax.errors import InputError


class Offsets(NamedTuple):
    """Offsets of each level by label, and the shrinkage of each level, in rows."""

    values: tuple[dict[Hashable, float], ...]
    shrinkage: tuple[float, ...]

    def at(self, levels: Sequence[Sequence[Hashable]]) -> np.ndarray:
        """The sum of the offsets of each row, log(measured / predicted); 0 of unknown labels.

        Args:
            levels: labels of the rows, one sequence a level, as in ``offsets``.
        """
        rows = len(levels[0])
        total = np.zeros(rows)
        for known, labels in zip(self.values, levels, strict=True):
            total += np.asarray([known.get(label, 0.0) for label in labels])
        return total


def offsets(
    left: np.ndarray,
    levels: Sequence[Sequence[Hashable]],
    shrinkage: Sequence[float | None] | None = None,
) -> Offsets:
    """Shrunken offsets of ``left`` = log(measured / predicted), level after level.

    A label with k rows gets k / (k + kappa) times their median. ``kappa`` is the number of rows at
    which a label's own median counts half; None estimates it, as the variance within labels over
    the variance between them (a random effect, by moments). The median, because a few runs of a
    server may have gone wrong altogether.

    Raises:
        InputError: labels that are not one a row.
    """
    left = np.asarray(left, float)
    asked = [None] * len(levels) if shrinkage is None else list(shrinkage)
    values, used = [], []
    for labels, given in zip(levels, asked, strict=True):
        if len(labels) != len(left):
            allowed = f"a label for each of {len(left)} rows"
            raise InputError("offsets", "labels", len(labels), allowed)
        rows: dict[Hashable, list[int]] = {}
        for i, label in enumerate(labels):
            rows.setdefault(label, []).append(i)
        kappa = _ratio(left, list(rows.values())) if given is None else given
        level = {k: float(np.median(left[i]) * len(i) / (len(i) + kappa)) for k, i in rows.items()}
        left = left - np.asarray([level[label] for label in labels])
        values.append(level)
        used.append(kappa)
    return Offsets(tuple(values), tuple(used))


def _ratio(left: np.ndarray, groups: list[list[int]]) -> float:
    """Variance within groups over variance between them, robustly; in rows."""
    within = np.concatenate([left[g] - np.median(left[g]) for g in groups])
    inside = _variance(within) * len(left) / max(len(left) - len(groups), 1)
    centres = np.asarray([np.median(left[g]) for g in groups])
    # medians spread by chance, too
    between = _variance(centres) - inside * float(np.mean([1.0 / len(g) for g in groups]))
    floor = 1e-3 * inside + 1e-12
    return float(inside / max(between, floor))


def _variance(values: np.ndarray) -> float:
    """Variance about 0 from the median absolute value, which few outliers do not move."""
    return float((1.4826 * np.median(np.abs(values))) ** 2)
