"""Statistics of errors: scores, offsets of a server or a chip, and predictive checks of a fit."""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from infer_jax.calibration.uncertainty import Fit, rows_by_label
from infer_jax.errors import InputError

Rows = Real[np.ndarray, " rows"]


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
    ratio = np.asarray(predicted) / measured
    wrong = 100.0 * np.abs(ratio - 1.0)
    middle, tail = map(float, np.quantile(wrong, (0.5, 0.9)))
    rank = spearman(np.asarray(predicted), np.asarray(measured))
    bias = 100.0 * float(np.expm1(np.mean(np.log(ratio))))
    result = Score(len(measured), middle, float(wrong.mean()), tail, rank, bias=bias)
    if low is None or high is None or not (banded := np.isfinite(low) & np.isfinite(high)).any():
        return result
    inside = (low <= measured) & (measured <= high)
    with np.errstate(divide="ignore"):
        widths = high[banded] / low[banded]
        ends = low[banded], high[banded]
        winkler = interval_score(np.asarray(measured)[banded], *ends)
    return result._replace(
        cover80=100.0 * float(np.mean(inside[banded])),
        width80=float(np.median(widths)),
        banded=int(banded.sum()),
        winkler80=winkler,
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
