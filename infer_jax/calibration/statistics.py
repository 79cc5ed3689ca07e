"""Statistics of errors: scores, offsets, checks of a fit, rows left out, the law of a new source.

A fit's own residuals are too small, and errors of one server or publisher are correlated, so bands
are made of errors of predictions without the row's whole cluster or source, without refitting.
Such errors come in few clusters: in the law of a new source a cluster counts as a dozen rows at
most, and what facts add to the scale is kept near none by a prior.
"""

from collections.abc import Hashable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from infer_jax.calibration.uncertainty import Fit, check_clusters, moved_without, rows_by_label
from infer_jax.catalog.published import ErrorLaw
from infer_jax.errors import InputError

Rows = Real[np.ndarray, " rows"]
FREEDOM = 4.0  # of the Student's t that scales are learned by: few errors are very large
MAX_CLUSTER_ROWS = 12.0  # rows that a cluster counts as, at most
# deviations of priors: of the log scale, of what a fact adds to it; of the mean error
SCALE, SLOPE, MEAN = 0.5, 0.3, 0.1
SHARES = (50, 80, 95)  # per cent


class Score(NamedTuple):
    """Errors |predicted / measured - 1| in percent, agreement of ranks, share of rows in bands.

    ``bias``: the geometric mean of predicted over measured, less one, in percent. ``cover80``: the
    share of the ``banded`` rows that were measured within their 80 % band, in percent;
    ``width80``: the middle ratio of a band's ends; ``winkler80``: the mean interval score of the
    bands; None without bands.
    """

    rows: int
    median: float
    mean: float
    p90: float
    spearman: float
    cover80: float | None = None
    bias: float = 0.0
    width80: float | None = None
    banded: int = 0
    winkler80: float | None = None


def score(
    predicted: Rows, measured: Rows, low: Rows | None = None, high: Rows | None = None
) -> Score:
    """The score of predictions, and of their 80 % bands where given; NaN: a row without a band.

    Raises:
        InputError: no rows.
    """
    if not len(measured):
        raise InputError("score", "rows", "none", "at least one")
    predicted, measured = np.asarray(predicted), np.asarray(measured)
    ratio, rank = predicted / measured, spearman(predicted, measured)
    wrong = 100.0 * np.abs(ratio - 1.0)
    middle, tail = map(float, np.quantile(wrong, (0.5, 0.9)))
    bias = 100.0 * float(np.expm1(np.mean(np.log(ratio))))
    plain = Score(len(measured), middle, float(wrong.mean()), tail, rank, bias=bias)
    if low is None or high is None or not (banded := np.isfinite(low) & np.isfinite(high)).any():
        return plain
    low, high, measured = low[banded], high[banded], measured[banded]
    with np.errstate(divide="ignore"):
        return plain._replace(
            cover80=100.0 * float(np.mean((low <= measured) & (measured <= high))),
            width80=float(np.median(high / low)),
            banded=len(measured),
            winkler80=interval_score(measured, low, high),
        )


def spearman(first: Rows, second: Rows) -> float:
    """Correlation of ranks, ties by their mean rank; 0 where either side is all equal."""
    from scipy.stats import rankdata  # of jax's own requirements

    x, y = rankdata(first), rankdata(second)
    if not np.ptp(x) or not np.ptp(y):
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def interval_score(measured: Rows, low: Rows, high: Rows, share: float = 0.8) -> float:
    """Mean interval score in log: width + 2/a times the distance outside, a = 1 - share.

    Smaller is better; proper for central intervals. Source: Gneiting and Raftery 2007.
    """
    at, down, up = (np.log(np.asarray(x)) for x in (measured, low, high))
    outside = np.maximum(down - at, 0.0) + np.maximum(at - up, 0.0)
    return float(np.mean(up - down + 2.0 / (1.0 - share) * outside))


class Offsets(NamedTuple):
    """Offsets of each level by label, and the shrinkage of each level, in rows."""

    values: tuple[dict[Hashable, float], ...]
    shrinkage: tuple[float, ...]

    def at(self, levels: Sequence[Sequence[Hashable]]) -> np.ndarray:
        """The sum of the offsets of each row, log(measured / predicted); 0 of unknown labels.

        Args:
            levels: labels of the rows, one sequence a level, as in ``offsets``.
        """
        parts = zip(self.values, levels, strict=True)
        return np.sum([[known.get(x, 0.0) for x in labels] for known, labels in parts], axis=0)


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
    values, used = [], []
    for labels, kappa in zip(levels, shrinkage or [None] * len(levels), strict=True):
        if len(labels) != len(left):
            allowed = f"a label for each of {len(left)} rows"
            raise InputError("offsets", "labels", len(labels), allowed)
        rows = rows_by_label(labels)
        kappa = _ratio(left, list(rows.values())) if kappa is None else kappa
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


class Check(NamedTuple):
    """One statistic of the residuals: as measured, its 80 % range in replicas, how extreme.

    ``extreme`` is the share of replicas at least as large; near 0 or 1 the fit does not explain it.
    """

    name: str
    measured: float
    low: float
    high: float
    extreme: float

    @property
    def passes(self) -> bool:
        """True where at least 1 % of the replicas lie on each side."""
        return 0.01 <= self.extreme <= 0.99


def predictive_checks(
    fit: Fit,
    covered: np.ndarray,
    scale: float,
    trends: Mapping[str, ArrayLike] | None = None,
    draws: int = 500,
    seed: int = 0,
) -> tuple[Check, ...]:
    """Statistics of log(measured / predicted), against replicas drawn from the posterior.

    A replica has parameters of covariance ``covered`` and independent noise of size ``scale``.
    Checked: the spread, the worst row, the lag-one autocorrelation (neighbouring rows are runs of
    one server, with correlated errors where it is positive), and the correlation with each of
    ``trends`` (such as log concurrency), which a wrong functional form leaves. Source: Gelman, Meng
    and Stern 1996.
    """
    random = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(covered)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    moves = random.normal(size=(draws, len(values))) @ root.T
    replicas = moves @ fit.jacobian.T + scale * random.normal(size=(draws, len(fit.measured)))
    used = fit.weights > 0
    rows = np.vstack([-fit.residuals[None], replicas])[:, used]  # as measured, then replicas
    centred = rows - rows.mean(axis=1, keepdims=True)
    neighbours = np.mean(centred[:, 1:] * centred[:, :-1], axis=1)
    statistics = {
        "spread": np.std(rows, axis=1),
        "worst row": np.max(np.abs(rows), axis=1),
        "likeness of neighbours": neighbours / np.maximum(np.mean(centred**2, axis=1), 1e-300),
    }
    for name, values in (trends or {}).items():
        along = np.asarray(values, float)[used]
        along = (along - along.mean()) / max(float(along.std()), 1e-300)
        statistics[f"trend with {name}"] = np.mean(rows * along, axis=1)
    checks = []
    for name, (measured, *replicated) in statistics.items():
        low, high = np.quantile(replicated, (0.1, 0.9))
        extreme = float(np.mean(np.asarray(replicated) >= measured))
        checks.append(Check(name, float(measured), float(low), float(high), extreme))
    return tuple(checks)


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
