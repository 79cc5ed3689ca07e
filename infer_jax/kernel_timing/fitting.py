"""Fits curves to measured kernels, with intervals and errors on left-out shapes."""

from typing import Any, NamedTuple

import numpy as np

from infer_jax.calibration import covariance, fit, held_out, interval
from infer_jax.kernel_timing.families import Family
from infer_jax.specs import Spec

SCALE = 0.01  # residuals above it count by their size, not by their square
FOLDS = 6  # of whole shapes, each left out once
RESTARTS, SPREAD = 3, 0.7
SHARE = 0.8  # probability that an interval covers
SHARPEST = 1000.0  # largest sharpness: corners beyond it look the same


class FittedFamily(NamedTuple):
    """A fitted family: coefficients, their intervals, relative errors in sample and unseen.

    ``unseen`` has, of each row, the error of a fit without the row's shape; it is empty where
    the family has one shape only.
    """

    family: Family
    coefficients: Spec
    intervals: dict[str, tuple[float, float]]
    seen: np.ndarray
    unseen: np.ndarray


def fitted(family: Family, *, unseen: bool = True, restarts: int = RESTARTS) -> FittedFamily:
    """A family's curve: robust least squares of log seconds, and the errors it leaves.

    Raises:
        InputError: fewer rows than coefficients, or times that are not above 0; see
            ``calibrate.fit``.
    """
    problem = (family.predicted, family.seconds, family.start, family.names)
    options: dict[str, Any] = {"scale": SCALE, "restarts": restarts, "spread": SPREAD}
    if "sharpness" in family.names:
        options["bounds"] = {"sharpness": (1.0, SHARPEST)}
    result = fit(*problem, **options)
    clusters = family.shapes.tolist() if len(set(family.shapes)) > 1 else None
    folds = (family.shapes % min(FOLDS, len(set(family.shapes)))).tolist()
    left = np.zeros(0)
    if unseen and clusters is not None:
        left = held_out(*problem, folds, **options) / family.seconds - 1.0
    spans = interval(result, covariance(result, clusters), SHARE) if len(result.errors) > 1 else {}
    return FittedFamily(family, result.tree, spans, result.errors, left)


def spread(errors: np.ndarray) -> tuple[float, float]:
    """Median and 90 % quantile of the absolute errors, in percent.

    >>> spread(np.array([0.01, -0.02, 0.03]))[0]
    2.0
    """
    size = 100.0 * np.abs(errors)
    return float(np.median(size)), float(np.quantile(size, 0.9))
