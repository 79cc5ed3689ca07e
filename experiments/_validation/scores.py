"""Errors of predictions by data set and metric, and coverage and width of 80 % bands."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from infer_jax.calibration.pooled.publishers import has_narrow_products
from infer_jax.calibration.pooled.rows import METRICS, PooledRow, system_named
from infer_jax.catalog.published import Within, power_errors
from infer_jax.estimators import Trust, make, trust
from infer_jax.estimators.serving import GENERATIONS

SHARE = 80


class Score(NamedTuple):
    """Errors of one metric over rows of one data set, per cent.

    ``median`` and ``mean`` of |predicted / measured - 1|; ``bias``: the geometric mean of predicted
    over measured, less one. ``cover80``: share of the banded rows measured within their 80 % band,
    ``width80``: the middle ratio of a band's ends; None where the program gives no band.
    """

    rows: int
    median: float
    mean: float
    bias: float
    cover80: float | None = None
    width80: float | None = None
    banded: int = 0


class Bands(NamedTuple):
    """Ends of 80 % bands of each metric, NaN where there is none."""

    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]


def score(
    predicted: np.ndarray,
    measured: np.ndarray,
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
) -> Score | None:
    """The score of the rows that are both predicted and measured; None of none."""
    there = np.isfinite(predicted) & np.isfinite(measured) & (predicted > 0) & (measured > 0)
    if not there.any():
        return None
    ratio = predicted[there] / measured[there]
    wrong = 100.0 * np.abs(ratio - 1.0)
    bias = 100.0 * np.expm1(np.mean(np.log(ratio)))
    plain = Score(int(there.sum()), float(np.median(wrong)), float(wrong.mean()), float(bias))
    if low is None or high is None:
        return plain
    banded = there & np.isfinite(low) & np.isfinite(high)
    if not banded.any():
        return plain
    inside = (low <= measured) & (measured <= high)
    return plain._replace(
        cover80=100.0 * float(np.mean(inside[banded])),
        width80=float(np.median(high[banded] / low[banded])),
        banded=int(banded.sum()),
    )


def bands(rows: Sequence[PooledRow], found: Mapping[str, np.ndarray]) -> Bands:
    """The 80 % bands of each metric of each row, as the program has them.

    Of two pools they are what `plan --confidence` believes at as many requests in flight; those of
    power are of rows left out of its fit.
    """
    edges = {end: {n: np.full(len(rows), np.nan) for n in BANDED if n in found} for end in (0, 1)}
    for i, row in enumerate(rows):
        known = _within(row)
        for name, output in BANDED.items():
            if name in found and output in known:
                for end, factor in enumerate(known[output][SHARE]):
                    edges[end][name][i] = found[name][i] * factor
    if "power" in found:
        ends = np.asarray([_of_power(row) for row in rows]).T
        for end, bound in edges.items():
            bound["power"] = found["power"] * ends[end]
    return Bands(edges[0], edges[1])


def _of_power(row: PooledRow) -> tuple[float, float]:
    """The 80 % band of power, as a row's generation has it, over the prediction."""
    own = system_named(row.system).coefficients.get("serving", {})
    known = own and "generation" in own
    name = GENERATIONS[int(own["generation"])] if known else "unseen"
    return power_errors(name).within[SHARE]


# the output whose law of errors a metric has
BANDED = {
    "tpot": "tpot",
    "ttft": "ttft",
    "ttft_mean": "ttft",
    "ttft_median": "ttft",
    "throughput": "throughput",
    "e2e": "latency",
    "latency": "latency",
}


def _within(row: PooledRow) -> Within:
    """Factors of a prediction between which shares of runs are, as the program has them."""
    if row.mode not in ("loop", "batch", "pools") or row.served is None or row.workload is None:
        return {}
    profile = system_named(row.system)
    name = f"serving.{row.engine}" if row.engine != "vllm" else "serving"
    known = _trusted(name, profile.name, row.served.model, has_narrow_products(row))
    return known.within(float(row.workload.batch), pools=row.mode == "pools")


@cache
def _trusted(name: str, where: str, model: str, narrow: bool) -> Trust:
    profile = system_named(where)
    return trust(name, make(name, profile.coefficients), profile, model, narrow=narrow)


def measured(rows: Sequence[PooledRow], metric: str) -> np.ndarray:
    """A metric as measured, NaN where a row has none."""
    return np.asarray([row.measured.get(metric, np.nan) for row in rows], float)


Scores = dict[str, dict[str, Score]]


def by_dataset(
    rows: Sequence[PooledRow], found: Mapping[str, np.ndarray], banded: Bands | None = None
) -> Scores:
    """The scores of each metric of each data set."""
    labels = np.asarray([row.dataset for row in rows])
    scores: Scores = {}
    for dataset in dict.fromkeys(labels.tolist()):
        inside = labels == dataset
        for metric in METRICS:
            if metric not in found:
                continue
            ends = () if banded is None else (banded.low.get(metric), banded.high.get(metric))
            ends = [None if end is None else end[inside] for end in ends]
            one = score(found[metric][inside], measured(rows, metric)[inside], *ends)
            if one is not None:
                scores.setdefault(dataset, {})[metric] = one
    return scores
