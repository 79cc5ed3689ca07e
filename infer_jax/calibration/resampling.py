"""Cluster bootstrap of a fit: refits to resampled clusters, without linearisation."""

from collections.abc import Hashable, Sequence

import numpy as np
from jax.typing import ArrayLike

from infer_jax.calibration.cross_validation import labelled
from infer_jax.calibration.problem import FitProblem


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
    inside = labelled(clusters, len(problem.data))
    member = np.stack(list(inside.values()))
    random = np.random.default_rng(seed)
    picked = random.multinomial(len(member), np.full(len(member), 1.0 / len(member)), size=draws)
    begin = problem.starts(1, 0.0, 0) if start is None else np.atleast_2d(start)
    ends, _ = problem.solve(begin, picked @ member * problem.weighted(weights), steps)
    return ends
