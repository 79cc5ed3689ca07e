"""Errors of predictions by data set and metric, and coverage and width of 80 % bands."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from infer_jax.calibration import Score, statistics
from infer_jax.calibration.pooled.publishers import has_narrow_products
from infer_jax.calibration.pooled.rows import METRICS, PooledRow, system_named
from infer_jax.catalog.published import Within, power_errors
from infer_jax.estimators import Trust, make, trust
from infer_jax.estimators.serving import GENERATIONS

SHARE = 80


class Bands(NamedTuple):
    """Ends of 80 % bands of each metric, NaN where there is none."""

    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]


def score(predicted: np.ndarray, measured: np.ndarray, *band: np.ndarray | None) -> Score | None:
    """The score of the rows that are both predicted and measured; None of none."""
    both = np.isfinite(predicted) & np.isfinite(measured) & (predicted > 0) & (measured > 0)
    if not both.any():
        return None
    ends = (None if end is None else end[both] for end in band)
    return statistics.score(predicted[both], measured[both], *ends)


def bands(rows: Sequence[PooledRow], found: Mapping[str, np.ndarray]) -> Bands:
    """The 80 % bands of each metric of each row, as the program has them.

    Of two pools they are what `plan --confidence` believes at as many requests in flight; those of
    power are of rows left out of its fit.
    """
    within = [_within(row) for row in rows]
    none = {SHARE: (np.nan, np.nan)}
    ends = {
        name: np.transpose([known.get(output, none)[SHARE] for known in within]) * found[name]
        for name, output in BANDED.items()
        if name in found
    }
    if "power" in found:
        ends["power"] = np.transpose([_of_power(row) for row in rows]) * found["power"]
    return Bands(*({name: x[i] for name, x in ends.items()} for i in (0, 1)))


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
            ends = () if banded is None else (side[metric] for side in banded if metric in side)
            ends = [end[inside] for end in ends]
            one = score(found[metric][inside], measured(rows, metric)[inside], *ends)
            if one is not None:
                scores.setdefault(dataset, {})[metric] = one
    return scores
