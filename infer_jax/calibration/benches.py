"""Runs whose files describe every request, and the servers by which they are replayed."""

from collections.abc import Sequence
from typing import cast

import numpy as np

from infer_jax.calibration.replayed import Bench
from infer_jax.calibration.runs import InstanceLoad, load_of
from infer_jax.catalog.measurements import Run
from infer_jax.catalog.traces import Trace, read_trace
from infer_jax.estimators import Estimator
from infer_jax.estimators.serving import Serving
from infer_jax.replays import Requests
from infer_jax.servers.instance import Sizes, server_of
from infer_jax.specs import Architecture, Hardware

LOGS = ("vllm", "sglang", "request log")  # sources of runs whose files may have every request
CLIENTS = ("vllm", "sglang")  # of these, where times count from the client
OVERLAP = (0, 14)  # the release of vLLM since which async scheduling is the default
DEGREES = {"pp": "stages", "ep": "ranks of experts", "dp": "attention groups"}
NO_REQUESTS = (
    "does not hold when each request came and was answered (vllm bench serve --save-detailed "
    "and SGLang's --output-details do)"
)


def benches(
    runs: Sequence[Run], arch: Architecture, hardware: Hardware, estimator: Estimator,
    prompts: float | None = None,
) -> tuple[Bench, ...] | str:  # fmt: skip
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
    model = cast(Serving, estimator)
    return tuple(_bench(run, log, (model, arch, hardware), prompts) for run, log in logs)


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


def _bench(
    run: Run, log: Trace, served: tuple[Serving, Architecture, Hardware], prompts: float | None
) -> Bench:
    """A run with its requests, and the server that ``served`` them."""
    load = load_of(run)
    vllm = served[0].engine_name == "vllm"
    old = run.version is not None and vllm and _release(run.version) < OVERLAP
    overlap = False if old else None
    sizes = Sizes(run.max_num_seqs, run.max_num_batched_tokens, overlap=overlap)
    degrees, tokens = {"tp": float(load.plan.tp)}, float((log.isl + log.osl).mean())
    server = server_of(*served, degrees, sizes, tokens)
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
