"""Means and percentiles of replayed requests, as measured and as predicted."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from infer_jax.calibration.server import RequestTimes
from infer_jax.results import Column, Table
from infer_jax.results.numbers import digits
from infer_jax.verbs.replay_runs import names, statistic

KINDS = {
    "sheet": "data sheet",
    "before": "profile",
    "after": "calibrated",
    "held_out": "left out",
}


class ServerStatistics(NamedTuple):
    """Statistics by time (``ttft``, ``tpot``, ``latency``), in s: of the server, and by kind.

    ``others``: whether they are of the requests that were not fitted.
    """

    measured: Mapping[str, Mapping[str, float]]
    predicted: Mapping[str, Mapping[str, Mapping[str, float]]]
    count: int
    others: bool


def shown(requests: RequestTimes) -> ServerStatistics:
    """Statistics of the requests that were not fitted, if there are any, else of all."""
    others = not requests.fitted.all()
    which = ~requests.fitted if others else requests.fitted
    kinds = dict(requests.predictions)
    if others:
        del kinds["held_out"]
    each = {kind: _of(x[:, which], requests.output[which]) for kind, x in kinds.items()}
    measured = _of(requests.measured[:, which], requests.output[which])
    return ServerStatistics(measured, each, int(which.sum()), others)


def _of(times: np.ndarray, output: np.ndarray) -> dict[str, dict[str, float]]:
    """Mean and percentiles of TTFT, TPOT and latency, s."""
    tpot, ttft = times
    latency = ttft + np.nan_to_num(tpot) * (output - 1)
    columns = {"ttft": ttft, "tpot": tpot, "latency": latency}
    return {name: statistic([x[np.isfinite(x)]]).values for name, x in columns.items()}


def in_json(requests: RequestTimes) -> dict[str, object]:
    """Milliseconds by time and statistic, with the number of requests and which they are."""
    all_of_it = shown(requests)
    sources = {"measured": all_of_it.measured, **all_of_it.predicted}
    return {
        "count": all_of_it.count,
        "fitted": not all_of_it.others,
        **{
            f"{time}_ms": {
                kind: {name: 1e3 * value for name, value in by_time[time].items()}
                for kind, by_time in sources.items()
            }
            for time in all_of_it.measured
        },
    }


def table_of(requests: RequestTimes) -> Table:
    """Errors of each statistic by every prediction, in per cent."""
    all_of_it = shown(requests)
    kinds = list(all_of_it.predicted)
    count = f"{all_of_it.count:,} requests" + (" left out" if all_of_it.others else "")
    columns = (
        Column(count, left=True),
        Column("measured", "ms"),
        *(Column(KINDS[kind], "%") for kind in kinds),
    )
    rows = []
    for time, measured in all_of_it.measured.items():
        for name in names():
            predicted = [all_of_it.predicted[kind][time][name] for kind in kinds]
            wrong = [f"{100.0 * (x / measured[name] - 1.0):+.1f}" for x in predicted]
            title = f"{time.upper() if time != 'latency' else time} {name}"
            rows.append([title, digits(1e3 * measured[name]), *wrong])
    return Table(columns, rows)


def in_words(requests: RequestTimes) -> str:
    """Errors of the means, in words."""
    all_of_it = shown(requests)
    kind = list(all_of_it.predicted)[-1]
    errors = [
        f"{time.upper()} {100.0 * (values[time]['mean'] / measured['mean'] - 1.0):+.1f} %"
        for time, measured in all_of_it.measured.items()
        if time != "latency"
        for values in (all_of_it.predicted[kind],)
    ]
    which = "requests" if all_of_it.others else "each batch of requests"
    return f"error of means of {which} left out {' and '.join(errors)}"
