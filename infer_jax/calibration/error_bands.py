"""Errors of rows that were left out, and the law of errors of a new source.

A fit's own residuals are too small, and errors of one server or publisher are correlated, so bands
are made of errors of predictions without the row's whole cluster or source, without refitting.
Such errors come in few clusters: in the law of a new source a cluster counts as a dozen rows at
most, and what facts add to the scale is kept near none by a prior.
"""

from collections.abc import Hashable, Mapping, Sequence
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from infer_jax.calibration.uncertainty import Fit, check_clusters, moved_without, rows_by_label
from infer_jax.catalog.published import ErrorLaw
from infer_jax.errors import InputError

FREEDOM = 4.0  # of the Student's t that scales are learned by: few errors are very large
MAX_CLUSTER_ROWS = 12.0  # rows that a cluster counts as, at most
# deviations of priors: of the log scale, of what a fact adds to it; of the mean error
SCALE, SLOPE, MEAN = 0.5, 0.3, 0.1
SHARES = (50, 80, 95)  # per cent


def left_out_log_errors(
    fit: Fit, clusters: Sequence[Hashable], scored: np.ndarray | None = None
) -> np.ndarray:
    """log(predicted / measured) of every row if its cluster were left out, to first order.

    r + J m with the residuals r, and m the change of the fit without the cluster
    (``moved_without``). Rows that are not ``scored`` keep their residual.

    Raises:
        InputError: labels that are not one a row.
    """
    check_clusters(clusters, len(fit.measured))
    used = np.arange(len(fit.measured)) if scored is None else np.flatnonzero(scored)
    residuals = fit.residuals.copy()
    for rows in rows_by_label(clusters[i] for i in used.tolist()).values():
        inside = used[rows]
        residuals[inside] += fit.jacobian[inside] @ moved_without(fit, inside)
    return residuals


def weighted_quantiles(
    values: Float[np.ndarray, " rows"], weight: Float[np.ndarray, " rows"], shares: Sequence[float]
) -> tuple[float, ...]:
    """Weighted quantiles, linear in between."""
    order = np.argsort(values)
    reach = np.cumsum(weight[order])
    middles = (reach - 0.5 * weight[order]) / reach[-1]
    return tuple(map(float, np.interp(shares, middles, values[order])))


def student(freedom: float, share: float) -> float:
    """Student's t quantile over the normal one, of a central ``share``.

    t = z + (z^3 + z) / (4 f) + (5 z^5 + 16 z^3 + 3 z) / (96 f^2); Abramowitz and Stegun 26.7.5.
    """
    z, f = NormalDist().inv_cdf((1.0 + share) / 2.0), float(max(freedom, 2))
    return 1.0 + (z**2 + 1.0) / (4.0 * f) + (5.0 * z**4 + 16.0 * z**2 + 3.0) / (96.0 * f**2)


def learn_error_law(
    errors: Float[np.ndarray, " rows"],
    facts: Mapping[str, Float[np.ndarray, " rows"]],
    clusters: Sequence[Hashable],
    believed: float,
    shares: Sequence[int] = SHARES,
) -> ErrorLaw:
    """The law of errors whose sources were left out.

    The scale is exp(a + sum b_k fact_k), by the likelihood of Student's t with priors; the ends of
    a share are weighted quantiles of errors over their scale, halfway to those of their size alone,
    as the side on which few sources erred says little of the next one's.

    Args:
        errors: log(measured / predicted), each by a fit without the row's source.
        facts: by name, of each row.
        clusters: labels of rows, equal where errors are correlated: a data set of a source.
        believed: the scale that is expected.

    Raises:
        InputError: no errors, or facts or clusters of another number.
    """
    known = np.asarray(errors, float)
    columns = [np.asarray(x, float) for x in facts.values()]
    if not len(known) or any(len(x) != len(known) for x in (*columns, clusters)):
        raise InputError("law of errors", "rows", len(known), "one or more, each with its facts")
    weight = counts(clusters)
    table = np.stack([np.ones(len(known)), *columns], axis=1)
    slopes = _log_scale(known, table, weight, np.log(believed))
    scores = known * np.exp(-table @ slopes)
    return ErrorLaw(
        float(np.exp(slopes[0])),
        dict(zip(facts, map(float, slopes[1:]), strict=True)),
        {share: _ends(scores, weight, share / 100.0) for share in shares},
    )


def counts(clusters: Sequence[Hashable]) -> Float[np.ndarray, " rows"]:
    """How much each row counts: a cluster as ``MAX_CLUSTER_ROWS`` rows at most."""
    labels = [str(label) for label in clusters]
    _, cluster, rows = np.unique(labels, return_inverse=True, return_counts=True)
    return np.minimum(1.0, MAX_CLUSTER_ROWS / rows)[cluster]


def _log_scale(
    errors: np.ndarray, table: np.ndarray, weight: np.ndarray, believed: float
) -> np.ndarray:
    """Coefficients of the log scale at the most probable point.

    The mean error is a parameter, too, so that a common bias does not count as scale.
    """
    from scipy.optimize import minimize  # of jax's own requirements

    n = table.shape[1]
    middle = np.append([believed], np.zeros(n))
    deviation = np.append([SCALE], np.full(n, SLOPE))
    deviation[-1] = MEAN

    def cost(at: np.ndarray) -> float:
        z = (errors - at[n]) * np.exp(-table @ at[:n])
        row = table @ at[:n] + (FREEDOM + 1.0) / 2.0 * np.log1p(z**2 / FREEDOM)
        return float(weight @ row + np.sum(((at - middle) / deviation) ** 2) / 2.0)

    def slope(at: np.ndarray) -> np.ndarray:
        scale = np.exp(table @ at[:n])
        z = (errors - at[n]) / scale
        pull = (FREEDOM + 1.0) * z / (FREEDOM + z**2)
        rows = np.append(table.T @ (weight * (1.0 - pull * z)), -weight @ (pull / scale))
        return rows + (at - middle) / deviation**2

    start = np.append(middle[:n], 0.0)
    return minimize(cost, start, jac=slope, method="BFGS", options={"gtol": 1e-9}).x[:n]


def _ends(scores: np.ndarray, weight: np.ndarray, share: float) -> tuple[float, float]:
    """The two quantiles of a share, halfway to the symmetric ones."""
    tail = (1.0 - share) / 2.0
    low, high = weighted_quantiles(scores, weight, (tail, 1.0 - tail))
    (both,) = weighted_quantiles(np.abs(scores), weight, (share,))
    return 0.5 * (low - both), 0.5 * (high + both)
