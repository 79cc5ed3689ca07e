"""Fits the parameters of a model to measurements.

Residuals are differences of logarithms, passed through a robust loss, with priors as residuals
of their own. Levenberg-Marquardt starts from several points; the best solution is kept.
"""

import dataclasses
import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from infer_jax.calibration.fitted_leaves import Parameters
from infer_jax.calibration.losses import SOFT_L1, Loss
from infer_jax.calibration.problem import FitProblem, Predict, Prior
from infer_jax.calibration.uncertainty import covariance, interval
from infer_jax.errors import InputError

LOOSEST = 0.2  # least stiffness: if most rows are outliers, the curvature is meaningless


@dataclasses.dataclass(frozen=True)
class Fit:
    """Fitted parameters with their error bars: ``values``, ``covariance``, ``intervals``.

    ``tree`` is the given pytree with fitted leaves; ``predicted`` and ``measured`` are in the
    unit of the data; ``free`` and ``jacobian`` (rows x parameters, of log prediction) are in the
    coordinates of ``parameters``; ``precision`` is the diagonal of the prior's information there;
    ``scale`` the typical size of each row's log residual; ``losses`` are half the sums of squares
    of the restarts' solutions, in squares of the scale, the best first. ``clusters`` labels rows
    with correlated errors, for the error bars; None: all rows are independent.
    """

    tree: Any
    parameters: Parameters
    free: np.ndarray
    predicted: np.ndarray
    measured: np.ndarray
    weights: np.ndarray
    jacobian: np.ndarray
    precision: np.ndarray
    scale: np.ndarray
    losses: np.ndarray
    loss: Loss = SOFT_L1
    clusters: tuple[Hashable, ...] | None = None

    @property
    def values(self) -> dict[str, float]:
        """The fitted parameters by name."""
        fitted = np.asarray(self.parameters.values(jnp.asarray(self.free)))
        return dict(zip(self.parameters.names, map(float, fitted), strict=True))

    @functools.cached_property
    def covariance(self) -> np.ndarray:
        """Covariance of the free coordinates, parameters x parameters: ``covariance`` of the fit.

        With a single cluster, which has no scatter, the inverse of the information.
        """
        labels = range(len(self.weights)) if self.clusters is None else self.clusters
        if len({str(one) for one, w in zip(labels, self.weights, strict=True) if w > 0}) < 2:
            return np.linalg.pinv(self.information)
        return covariance(self, self.clusters)

    @functools.cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 80 % interval of each parameter by name; ``interval`` has other shares."""
        return interval(self, self.covariance, 0.8)

    @property
    def errors(self) -> np.ndarray:
        """Relative errors of the prediction, predicted / measured - 1, one a row."""
        return self.predicted / self.measured - 1.0

    @property
    def residuals(self) -> np.ndarray:
        """log(predicted / measured), one a row."""
        return np.log(self.predicted / self.measured)

    @property
    def counted(self) -> np.ndarray:
        """The effective weight of each row: weight times robust weight over squared scale."""
        return self._sums[0]

    @property
    def stiffness(self) -> float:
        """Curvature of the robust loss over its weight, mean of the rows; 1 for least squares.

        Rows with outliers carry less information than their weights. Source: Huber 1981,
        section 7.6.
        """
        return self._sums[1]

    @property
    def information(self) -> np.ndarray:
        """Curvature of the loss, k J^T W J + prior, parameters x parameters; k: ``stiffness``."""
        return self._sums[2]

    @functools.cached_property
    def _sums(self) -> tuple[np.ndarray, float, np.ndarray]:
        z = jnp.asarray(self.residuals / self.scale)
        weight, curvature = (np.asarray(f(z)) for f in (self.loss.weight, self.loss.curvature))
        counted = self.weights * weight / self.scale**2
        bent = np.sum(self.weights * curvature) / np.sum(self.weights * weight)
        stiffness = float(np.clip(bent, LOOSEST, 1.0))
        curved = stiffness * self.jacobian.T @ (counted[:, None] * self.jacobian)
        return counted, stiffness, curved + np.diag(self.precision)


def fit(
    predict: Predict,
    measured: ArrayLike | Sequence[float],
    tree: Any,  # the caller's, and given to its own function
    names: Sequence[str],
    *,
    weights: ArrayLike | None = None,
    priors: Mapping[str, Prior] | None = None,
    bounds: dict[str, tuple[float, float]] | None = None,
    ties: Mapping[str, Sequence[str]] | None = None,
    scale: ArrayLike = 0.03,
    loss: Loss = SOFT_L1,
    clusters: Sequence[Hashable] | None = None,
    tolerance: float = 1e-10,
    restarts: int = 8,
    spread: float = 1.0,
    seed: int = 0,
    steps: int = 200,
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
        priors: by name; a parameter without one is free within its bounds.
        bounds: narrower ones than declared, by name.
        ties: leaves that take the value of a parameter, by its name.
        scale: the typical size of a log residual, one for all rows or one for each.
        loss: ``SOFT_L1`` or ``CAUCHY``.
        clusters: labels of rows with correlated errors (one model, one machine), for the error
            bars of the fit; None: all rows are independent.
        restarts: number of starts; the others are random, ``spread`` away in every coordinate.
        steps: the most iterations from one start.

    Raises:
        InputError: measurements that are not positive numbers, fewer than the parameters, or
            weights or clusters of another number; a prior of an unknown parameter; see
            ``parameters``; the solver is not installed; no start ends at finite residuals.
    """
    problem = FitProblem.of(
        predict,
        measured,
        tree,
        names,
        priors=priors,
        bounds=bounds,
        ties=ties,
        scale=scale,
        loss=loss,
        tolerance=tolerance,
    )
    weight, labels = problem.weighted(weights), _labels(problem, clusters)
    ends, costs = problem.solve(problem.starts(restarts, spread, seed), weight, steps)
    return dataclasses.replace(at(problem, ends[0], weight, np.sort(costs[0])), clusters=labels)


def _labels(
    problem: FitProblem, clusters: Sequence[Hashable] | None
) -> tuple[Hashable, ...] | None:
    if clusters is not None and len(clusters) != len(problem.data):
        allowed = f"a label for each of {len(problem.data)} rows"
        raise InputError("fit", "clusters", len(clusters), allowed)
    return None if clusters is None else tuple(clusters)


def at(
    problem: FitProblem,
    free: ArrayLike,
    weights: ArrayLike | None = None,
    losses: np.ndarray | Sequence[float] = (),
) -> Fit:
    """A ``Fit`` at given coordinates, with predictions, Jacobian and priors there."""
    logs, slope = problem.derivatives(free)
    return Fit(
        tree=problem.chosen.place(problem.tree, jnp.asarray(free)),
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
    )
