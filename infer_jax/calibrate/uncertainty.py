"""How sure is a fit? Covariance that does not trust the rows to be independent."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from infer_jax.calibrate.fit import Fit
from infer_jax.errors import InputError

QUANTILES = {0.5: 0.6744897501960817, 0.8: 1.2815515655446004, 0.95: 1.959963984540054}


def covariance(fit: Fit, clusters: Sequence[Any] | None = None) -> np.ndarray:
    """Covariance of the free coordinates: the sandwich A^-1 B A^-1, parameters x parameters.

    A = J^T W J / s^2 + prior; B = sum over clusters g of s_g s_g^T with s_g the sum of
    J^T w r / s^2 in g, times G / (G - 1), plus the prior. ``clusters`` labels rows whose errors
    belong together (one model, one machine); None: every row is alone. Rows weigh as the robust
    loss has them, w = 1 / sqrt(1 + (r/s)^2) times their squared weights.
    Source: Huber 1967; Liang and Zeger 1986 for clusters.

    Raises:
        InputError: another number of labels than rows, or fewer than two clusters.
    """
    residual = fit.weights * np.log(fit.predicted / fit.measured)
    slope = fit.weights[:, None] * fit.jacobian
    weight = 1.0 / np.sqrt(1.0 + (residual / fit.scale) ** 2)
    prior = np.diag(fit.precision)
    bread = np.linalg.pinv(slope.T @ (weight[:, None] * slope) / fit.scale**2 + prior)
    labels = list(range(len(residual))) if clusters is None else list(clusters)
    if len(labels) != len(residual):
        raise InputError(
            "fit", "clusters", len(labels), f"a label for each of {len(residual)} rows"
        )
    groups = sorted({str(label) for label in labels})
    if len(groups) < 2:
        raise InputError("fit", "clusters", len(groups), "at least 2")
    score = slope * (weight * residual)[:, None] / fit.scale**2
    index = np.asarray([groups.index(str(label)) for label in labels])
    sums = np.stack([score[index == g].sum(axis=0) for g in range(len(groups))])
    meat = sums.T @ sums * len(groups) / (len(groups) - 1) + prior
    return bread @ meat @ bread


def interval(fit: Fit, covered: np.ndarray, share: float = 0.8) -> dict[str, tuple[float, float]]:
    """The ``share`` (0.5, 0.8 or 0.95) interval of each parameter, by name, in its own unit.

    Symmetric in the free coordinate, whose covariance is ``covered``; within the bounds.

    Raises:
        InputError: another share.
    """
    if share not in QUANTILES:
        raise InputError("fit", "share", share, ", ".join(map(str, QUANTILES)))
    reach = QUANTILES[share] * np.sqrt(np.maximum(np.diag(covered), 0.0))
    low, high = (
        np.asarray(fit.parameters.values(jnp.asarray(fit.free + sign * reach))) for sign in (-1, 1)
    )
    pairs = zip(map(float, low), map(float, high), strict=True)
    return dict(zip(fit.parameters.names, pairs, strict=True))


def correlation(covered: np.ndarray) -> np.ndarray:
    """Correlations of a covariance: near 1 or -1, the data cannot tell two parameters apart."""
    deviation = np.sqrt(np.maximum(np.diag(covered), 1e-300))
    return covered / np.outer(deviation, deviation)
