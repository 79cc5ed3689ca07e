"""Prediction bands of measurements, from errors on left-out rows.

A fit's own residuals are too small, and errors of one server are alike, so the bands are made of
errors of predictions without the row's whole cluster. These errors are computed without refitting,
and quantiles are taken over rows like the one asked about.
"""

from collections.abc import Hashable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from infer_jax.calibration.fitting import Fit
from infer_jax.calibration.uncertainty import moved_without
from infer_jax.errors import InputError


def left_out(fit: Fit, clusters: Sequence[Hashable], asked: np.ndarray | None = None) -> np.ndarray:
    """log(predicted / measured) of every row if its cluster were left out, to first order.

    r + J m with the residuals r, and m the change of the fit without the cluster
    (``moved_without``). Rows that are not ``asked`` keep their residual.

    Raises:
        InputError: labels that are not one a row.
    """
    if len(clusters) != len(fit.measured):
        allowed = f"a label for each of {len(fit.measured)} rows"
        raise InputError("fit", "clusters", len(clusters), allowed)
    rows: dict[Hashable, list[int]] = {}
    for i, label in enumerate(clusters):
        if asked is None or asked[i]:
            rows.setdefault(label, []).append(i)
    residuals = fit.residuals.copy()
    for inside in rows.values():
        residuals[inside] += fit.jacobian[inside] @ moved_without(fit, inside)
    return residuals


class Band(NamedTuple):
    """Bounds of log(measured / predicted) of each row."""

    low: Float[np.ndarray, " asked"]
    high: Float[np.ndarray, " asked"]


def bands(
    errors: Float[np.ndarray, " rows"],
    known: Mapping[str, Sequence[Hashable]],
    asked: Mapping[str, Sequence[Hashable]],
    likeness: Mapping[str, float],
    share: float = 0.8,
    clusters: Sequence[Hashable] | None = None,
) -> Band:
    """The band that holds a ``share`` of measurements like each asked row.

    Weighted quantiles of -``errors``, log(measured / predicted) of known rows that were left out:
    a known row weighs the product of ``likeness`` over the labels (model, chip, engine) that it
    shares with the asked one. Where errors come in few ``clusters``, quantiles are widened about
    the median by Student's t over the normal, with one degree of freedom less than clusters.

    Args:
        errors: log(predicted / measured) of known rows, as ``left_out`` gives them.
        known: labels of the known rows, by name of the label.
        asked: labels of the asked rows, by the same names.
        likeness: by name of the label, the factor by which a row with an equal label weighs more.
        clusters: labels of the known rows whose errors are alike, as passed to ``left_out``.

    Raises:
        InputError: labels that differ in name or number.
    """
    if set(known) != set(asked) or set(likeness) != set(known):
        raise InputError("bands", "labels", sorted(asked), ", ".join(sorted(likeness)))
    for labels in known.values():
        if len(labels) != len(errors):
            raise InputError("bands", "labels", len(labels), f"{len(errors)}, one a known row")
    widen = 1.0 if clusters is None else student(len(set(clusters)) - 1, share)
    order = np.argsort(-np.asarray(errors))
    values = -np.asarray(errors)[order]
    columns = {n: np.asarray([str(x) for x in known[n]])[order] for n in likeness}
    wanted = list(zip(*(map(str, asked[n]) for n in likeness), strict=True))
    bounds: dict[tuple, tuple[float, float]] = {}
    for key in set(wanted):
        weight = np.ones(len(values))
        for name, label in zip(likeness, key, strict=True):
            weight = weight * np.where(columns[name] == label, likeness[name], 1.0)
        bounds[key] = _quantiles(values, weight, share, widen)
    low, high = np.asarray([bounds[key] for key in wanted]).T
    return Band(low, high)


def _quantiles(
    values: Float[np.ndarray, " rows"],
    weight: Float[np.ndarray, " rows"],
    share: float,
    widen: float,
) -> tuple[float, float]:
    """The two weighted quantiles that leave (1 - share) / 2 outside, linear in between."""
    reach = np.cumsum(weight)
    place = (reach - 0.5 * weight) / reach[-1]
    tail = (1.0 - share) / 2.0
    low, middle, high = np.interp((tail, 0.5, 1.0 - tail), place, values)
    return float(middle + widen * (low - middle)), float(middle + widen * (high - middle))


def student(freedom: float, share: float) -> float:
    """Student's t quantile over the normal one, of a central ``share``.

    t = z + (z^3 + z) / (4 f) + (5 z^5 + 16 z^3 + 3 z) / (96 f^2); Abramowitz and Stegun 26.7.5.
    """
    z, f = NormalDist().inv_cdf((1.0 + share) / 2.0), float(max(freedom, 2))
    return 1.0 + (z**2 + 1.0) / (4.0 * f) + (5.0 * z**4 + 16.0 * z**2 + 3.0) / (96.0 * f**2)
