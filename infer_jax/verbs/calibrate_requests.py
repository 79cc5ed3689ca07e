"""Statistics of runs whose requests were replayed, as measured and by each prediction."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from infer_jax.calibration.server import RequestTimes
from infer_jax.replays.runs import statistic
from infer_jax.results import Column

Row = dict[str, Any]
TIMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "latency_ms": "latency"}
KINDS = {
    "sheet": "data sheet",
    "before": "profile",
    "after": "calibrated",
    "held_out": "left out",
}


def request_statistics(requests: RequestTimes) -> Row:
    """Means and percentiles of TTFT, TPOT and latency in ms, as measured and by prediction.

    Of the requests that were not fitted if there are any, else of all.
    """
    fitted = bool(requests.fitted.all())
    which = requests.fitted if fitted else ~requests.fitted
    times: dict[str, dict[str, Mapping[str, float]]] = {key: {} for key in TIMES}
    for source, seconds in {"measured": requests.measured, **requests.predictions}.items():
        if source == "held_out" and not fitted:
            continue
        tpot, ttft = seconds[:, which]
        latency = ttft + np.nan_to_num(tpot) * (requests.output[which] - 1)
        for key, x in zip(TIMES, (ttft, tpot, latency), strict=True):
            values = statistic([x[np.isfinite(x)]]).values
            times[key][source] = {name: 1e3 * value for name, value in values.items()}
    return {"count": int(which.sum()), "fitted": fitted, **times}


def request_table(statistics: Row) -> tuple[list[Row], list[Column]]:
    """Each statistic as measured, with the error of every prediction in per cent."""
    rows: list[Row] = []
    for key, title in TIMES.items():
        (_, measured), *predictions = statistics[key].items()
        for name, x in measured.items():
            wrong = {kind: 100.0 * (values[name] / x - 1.0) for kind, values in predictions}
            rows.append({"title": f"{title} {name}", "measured": x, **wrong})
    count = f"{statistics['count']:,} requests" + ("" if statistics["fitted"] else " left out")
    kinds = [kind for kind in statistics["ttft_ms"] if kind in KINDS]
    return rows, [
        Column(count, "", "title"),
        Column("measured", "ms", "measured"),
        *(Column(KINDS[kind], "%", kind, "{:+.1f}".format) for kind in kinds),
    ]


def request_errors(statistics: Row) -> str:
    """Errors of the means by the last prediction, in words."""
    rows, columns = request_table(statistics)
    means = {row["title"]: row[str(columns[-1].value)] for row in rows}
    errors = [f"{time} {means[f'{time} mean']:+.1f} %" for time in ("TTFT", "TPOT")]
    which = "each batch of requests" if statistics["fitted"] else "requests"
    return f"error of means of {which} left out {' and '.join(errors)}"
