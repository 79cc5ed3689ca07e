"""Fits the parameters of a model to measurements.

Residuals are differences of logarithms, passed through a robust loss, with priors as residuals
of their own. Levenberg-Marquardt starts from several points; the best solution is kept.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from infer_jax.calibration.problem import FitProblem, Predict, ProblemOptions
from infer_jax.calibration.uncertainty import Fit, check_clusters


def fit(
    predict: Predict,
    measured: ArrayLike | Sequence[float],
    tree: Any,  # the caller's, and given to its own function
    names: Sequence[str],
    *,
    weights: ArrayLike | None = None,
    clusters: Sequence[Hashable] | None = None,
    restarts: int = 8,
    spread: float = 1.0,
    seed: int = 0,
    steps: int = 200,
    **options: Unpack[ProblemOptions],
) -> Fit:
    """Fits the leaves ``names`` of ``tree`` so that ``predict(tree)`` is nearest to ``measured``.

    Least squares of the robust log residuals in units of ``scale``, each counted ``weights``
    times, and of the priors' residuals, log(x / value) / spread.

    Args:
        predict: all predictions of a tree, in the order and unit of ``measured``.
        measured: positive numbers.
        tree: the first starting point; all other leaves keep their values.
        names: dotted paths; see ``parameters``.
        weights: how many times each row counts, once by default.
        clusters: labels of rows with correlated errors (one machine), for the error bars.
        restarts: number of starts; the others are random, ``spread`` away in every coordinate.
        steps: the most iterations from one start.
        options: priors, bounds, ties, scale (0.03), loss (``SOFT_L1``) and tolerance, as in
            ``FitProblem.of``.

    Raises:
        InputError: measurements that are not positive numbers, fewer than the parameters, or
            weights or clusters of another number; a prior of an unknown parameter; see
            ``parameters``; the solver is not installed; no start ends at finite residuals.
    """
    problem = FitProblem.of(predict, measured, tree, names, **options)
    check_clusters(clusters, len(problem.data))
    weight = problem.weighted(weights)
    ends, costs = problem.solve(problem.starts(restarts, spread, seed), weight, steps)
    return at(problem, ends[0], weight, np.sort(costs[0]), clusters)


def at(
    problem: FitProblem,
    free: ArrayLike,
    weights: ArrayLike | None = None,
    losses: np.ndarray | Sequence[float] = (),
    clusters: Sequence[Hashable] | None = None,
) -> Fit:
    """A ``Fit`` at given coordinates, with predictions, Jacobian and priors there."""
    logs, slope = problem.derivatives(free)
    return Fit(
        tree=problem.chosen.insert(problem.tree, jnp.asarray(free)),
        parameters=problem.chosen,
        free=np.asarray(free),
        predicted=np.exp(np.asarray(logs)),
        measured=problem.data,
        weights=problem.weighted(weights),
        jacobian=np.asarray(slope),
        precision=problem.precision(free),
        scale=problem.scale,
        losses=np.asarray(losses),
        loss=problem.loss,
        clusters=None if clusters is None else tuple(clusters),
    )
