"""Runs whose files describe every request: how they are replayed, and their statistics."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from infer_jax.calibration.replayed import Bench
from infer_jax.calibration.runs import InstanceLoad, load_of
from infer_jax.calibration.server import RequestTimes
from infer_jax.catalog.measurements import Run
from infer_jax.catalog.traces import Trace, read_trace
from infer_jax.estimators import Estimator, Serving
from infer_jax.replays import Requests
from infer_jax.replays.runs import statistic
from infer_jax.results import Column
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.replay_server import Sizes, server_of

LOGS = ("vllm", "sglang", "request log")  # sources of runs whose files may have every request
CLIENTS = ("vllm", "sglang")  # of these, where times count from the client
OVERLAP = (0, 14)  # the release of vLLM since which async scheduling is the default
DEGREES = {"pp": "stages", "ep": "ranks of experts", "dp": "attention groups"}
NO_REQUESTS = (
    "does not hold when each request came and was answered (vllm bench serve --save-detailed "
    "and SGLang's --output-details do)"
)
Row = dict[str, Any]
TIMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "latency_ms": "latency"}
KINDS = {
    "sheet": "data sheet",
    "before": "profile",
    "after": "calibrated",
    "held_out": "left out",
}


def benches(
    runs: Sequence[Run], setup: Setup, estimator: Estimator, prompts: float | None
) -> tuple[Bench, ...] | str:
    """The runs with every request and their server to replay, or why they are not replayed.

    ``prompts``: how many of the first requests of each run are fitted; None: all.

    Raises:
        InputError: a log that contradicts itself, a server without memory for a cache.
    """
    if not estimator.batches:
        return "the estimator does not price a server that batches, which a replay needs"
    logs: list[tuple[Run, Trace]] = []
    for run in runs:
        log = _requests(run)
        if isinstance(log, str):
            return f"{run.place} {log}"
        logs.append((run, log))
    return tuple(_bench(run, log, setup, cast(Serving, estimator), prompts) for run, log in logs)


def _requests(run: Run) -> Trace | str:
    """The requests of a run, or why it cannot be replayed."""
    for name, several in DEGREES.items():
        if (getattr(run, name) or 1.0) > 1.0:
            return f"is of a server with several {several}, which are not replayed"
    if (run.chips or 1.0) > (run.tp or run.chips or 1.0):
        return "is of several copies of a server, and does not say which request went to which"
    if run.failed:
        return "has requests that failed, whose share of the passes is not known"
    if run.source not in LOGS or not len(run.input_lens) == len(run.output_lens) > 0:
        return NO_REQUESTS
    log = read_trace(run.file, run.line)
    return log if len(log.first) else NO_REQUESTS


def _bench(run: Run, log: Trace, setup: Setup, model: Serving, prompts: float | None) -> Bench:
    load = load_of(run)
    vllm = model.engine_name == "vllm"
    old = run.version is not None and vllm and _release(run.version) < OVERLAP
    overlap = False if old else None
    sizes = Sizes(run.max_num_seqs, run.max_num_batched_tokens, overlap=overlap)
    degrees, tokens = {"tp": float(load.plan.tp)}, float((log.isl + log.osl).mean())
    server = server_of(model, setup.model.architecture, setup.hardware, degrees, sizes, tokens)
    closed = run.loop == "closed"
    times = np.zeros(len(log)) if closed else log.arrivals
    after = np.where(log.osl > 1, (log.last - log.first) / np.maximum(log.osl - 1, 1), np.nan)
    measured = np.stack([after, log.first - log.arrivals])
    return Bench(
        run=run,
        load=InstanceLoad(load.workload, server.pass_.context.plan),
        rules=server.rules,
        requests=Requests.of(times, log.isl, log.osl),
        concurrency=int(run.concurrency or 1) if closed else None,
        measured=np.where(measured > 0.0, measured, np.nan),
        fitted=len(log) if prompts is None else min(int(prompts), len(log)),
        from_client=run.source in CLIENTS,
    )


def _release(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with; of none, the newest."""
    numbers = []
    for part in version.lstrip("v").split(".")[:2]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers) or OVERLAP


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
