"""Measured runs whose files describe every request, as the scheduler replays them."""

from collections.abc import Sequence

import numpy as np

from infer_jax.calibration.replayed import Bench
from infer_jax.calibration.runs import InstanceLoad, load_of
from infer_jax.catalog.measurements import Run
from infer_jax.catalog.traces import Trace, read_trace
from infer_jax.estimators.serving import ENGINES, Serving
from infer_jax.replays import Requests
from infer_jax.verbs.inputs import Given
from infer_jax.verbs.replay_server import Sizes, server_of

LOGS = ("vllm", "sglang", "request log")  # sources of runs whose files may have every request
CLIENTS = ("vllm", "sglang")  # of these, where times count from the client
OVERLAP = (0, 14)  # the release of vLLM since which async scheduling is the default


def benches(
    runs: Sequence[Run], asked: Given, model: Serving, prompts: float | None
) -> tuple[Bench, ...] | str:
    """The runs with every request and their server to replay, or why there are none.

    ``prompts``: how many of the first requests of each run are fitted; None: all.

    Raises:
        InputError: a log that contradicts itself, a server without room for a cache.
    """
    found = []
    for run in runs:
        log = _replayed(run)
        if isinstance(log, str):
            return f"{run.place} {log}"
        found.append(_bench(run, log, asked, model, prompts))
    return tuple(found)


def _replayed(run: Run) -> Trace | str:
    """The requests of a run, or why it cannot be replayed."""
    many = {"pp": "stages", "ep": "ranks of experts", "dp": "attention groups"}
    for name, words in many.items():
        if (getattr(run, name) or 1.0) > 1.0:
            return f"is of a server with several {words}, which are not replayed"
    if (run.chips or 1.0) > (run.tp or run.chips or 1.0):
        return "is of several copies of a server, and does not say which request went to which"
    if run.failed:
        return "has requests that failed, whose share of the passes is not known"
    detailed = run.source in LOGS and len(run.input_lens) == len(run.output_lens) > 0
    if not detailed:
        return NO_REQUESTS
    log = read_trace(run.file, run.line)
    return log if len(log.first) else NO_REQUESTS


NO_REQUESTS = (
    "does not hold when each request came and was answered (vllm bench serve --save-detailed "
    "and SGLang's --output-details do)"
)


def _bench(run: Run, log: Trace, asked: Given, model: Serving, prompts: float | None) -> Bench:
    load = load_of(run)
    engine = ENGINES[int(model.engine)]
    old = run.version is not None and engine == "vllm" and _release(run.version) < OVERLAP
    sizes = Sizes(
        run.max_num_seqs, run.max_num_batched_tokens, None, None, overlap=False if old else None
    )
    server = server_of(
        engine, model, asked.model.architecture, asked.hardware, {"tp": float(load.plan.tp)},
        sizes, float((log.isl + log.osl).mean()),
    )  # fmt: skip
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
