"""Fits the serving model to the requests of measured runs, each replayed by the scheduler.

Where a log has every request, nothing of how requests share passes is a mean: the engine's rules
say which pass feeds and decodes what, the estimator says how long a pass takes, and the times of
each request are compared. Values are those of the replay; slopes are those of its path, which is
held (``replays.path_gradient``; Ho and Cao 1983), arrivals in phase where they come by a clock.
"""

import re
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from infer_jax.calibration.runs import CLIENTS, InstanceLoad, check_times, load_of
from infer_jax.calibration.server import coefficients_to_fit, solve
from infer_jax.calibration.server_fit import Calibrated, MeasuredTimes, RequestTimes
from infer_jax.calibration.statistics import left_out_log_errors
from infer_jax.catalog.measurements import Run
from infer_jax.catalog.traces import Trace, read_trace
from infer_jax.estimators import Estimator
from infer_jax.estimators.serving import Deployment, Serving, Shape, shape
from infer_jax.estimators.serving.price import PassLaw, pass_time
from infer_jax.replays import Requests, Rules, lanes, path_gradient, replay
from infer_jax.replays.loops import checked, sizes_of
from infer_jax.servers.instance import Sizes, replayed_instance
from infer_jax.specs import Architecture, Hardware

# typical log error of a request: TPOT, TTFT. Measured on the two servers of LLMServingSim's
# bench/examples (vLLM 0.19): 1.48 times the median |residual| of fits to 100 requests of each is
# 0.4 and 1.3 % of TPOT, 3 and 7 % of TTFT; these are wider, as other servers may be
REQUEST_SCALES = (0.02, 0.1)
BATCHES = 16  # batches of successive requests, whose errors are correlated


class Bench(NamedTuple):
    """A measured run and its server: the requests to replay, and the measured times of each.

    ``measured``: TPOT and TTFT in s, 2 x requests, NaN where there is none; ``fitted``: how many of
    the first are fitted; ``from_client``: whether TTFT starts at the client, not at the queue.
    """

    run: Run
    load: InstanceLoad
    rules: Rules
    requests: Requests
    concurrency: int | None
    measured: np.ndarray
    fitted: int
    from_client: bool

    @property
    def count(self) -> int:
        """Requests of the run."""
        return self.measured.shape[1]


def calibrate_requests(
    serving: Serving,
    arch: Architecture,
    hardware: Hardware,
    benches: Sequence[Bench],
    names: Sequence[str] | None = None,
) -> Calibrated:
    """The coefficients of ``serving`` that fit the requests of one server's runs, with priors.

    Least squares of robust log residuals of each request's TPOT and TTFT, in units of
    ``REQUEST_SCALES``, and of the priors of ``calibrate_server``. Error bars are those of batches
    of successive requests, whose errors are correlated. ``names``: the coefficients; by default
    those of the estimator's own list that pass times depend on.

    Raises:
        InputError: a request too large for the server's cache, fewer measured times than ``names``,
            an unknown name.
    """
    loads = tuple(bench.load for bench in benches)
    times = np.concatenate([bench.measured for bench in benches], axis=1)
    first = [np.arange(bench.count) < bench.fitted for bench in benches]
    fitted = np.isfinite(times) & np.concatenate(first)
    if names is None:
        fittable = coefficients_to_fit(serving, arch, loads, np.where(fitted, times, np.nan))
        names = [name for name in fittable if _is_timed(name, benches)]
    check_times(fitted, names)
    for bench in benches:
        checked(bench.rules, bench.requests, bench.concurrency)
    predict = Replays.of(arch, hardware, benches)
    while not (evaluate := jax.jit(predict.times))(serving)[1]:
        # preempted requests take more of them
        predict = predict._replace(entries=2 * predict.entries)
    batches = _batches(benches)
    _, fit = solve(predict, times, fitted, serving, tuple(names), batches, REQUEST_SCALES)
    predictions = {
        "sheet": evaluate(serving.at_data_sheet())[0],
        "before": evaluate(serving)[0],
        "after": fit.predicted,
        "held_out": fit.measured * np.exp(left_out_log_errors(fit, batches, fit.weights > 0)),
    }
    for name, x in predictions.items():
        predictions[name] = np.where(np.isfinite(times), np.reshape(x, times.shape), np.nan)
    means = partial(_means, fitted=fitted, counts=[bench.count for bench in benches])
    return Calibrated(
        runs=tuple(bench.run for bench in benches),
        loads=loads,
        fit=fit,
        start=serving,
        times=MeasuredTimes(means(times), {name: means(x) for name, x in predictions.items()}),
        requests=RequestTimes(
            measured=times,
            predictions=predictions,
            fitted=np.any(fitted, axis=0),
            output=np.concatenate([x.requests.output[: x.count] for x in benches]),
        ),
    )


def _is_timed(name: str, benches: Sequence[Bench]) -> bool:
    """Whether times of these requests depend on a coefficient."""
    field = name.rpartition(".")[2]
    if field == "front":
        return any(bench.from_client for bench in benches)
    return field != "usable_memory"


def _batches(benches: Sequence[Bench]) -> list[int]:
    """Labels of rows with correlated errors: batches of successive requests of a run."""
    of_run = max(1, -(-BATCHES // len(benches)))
    labels: list[int] = []
    for i, bench in enumerate(benches):
        batch = np.arange(bench.count) * of_run // min(bench.fitted, bench.count)
        labels += (i * of_run + np.minimum(batch, of_run - 1)).tolist()
    return 2 * labels


def _means(times: np.ndarray, *, fitted: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Means over the fitted requests of each run, 2 x runs; ``counts``: requests of each."""
    runs = np.split(np.where(fitted, times, np.nan), np.cumsum(counts)[:-1], axis=1)
    with np.errstate(invalid="ignore"):
        sums = [np.nansum(run, axis=1) / np.isfinite(run).sum(axis=1) for run in runs]
    return np.stack(sums, axis=1)


class _Lane(NamedTuple):
    """The numbers of one replay; lanes of equal shapes share a program."""

    plan: Deployment
    rules: Rules
    requests: Requests
    concurrency: Array
    from_client: float


class Replays(NamedTuple):
    """TPOT of all requests, then TTFT of all requests, in seconds, of a serving model.

    Runs with one kind of load (open or closed) are replayed one after the other by one program.
    ``index``: where each request is among the entries of all lanes; ``entries``: the most passes.
    """

    model: Shape
    hardware: Hardware
    groups: tuple[_Lane, ...]
    closed: tuple[bool, ...]
    index: np.ndarray
    width: int
    entries: int

    @classmethod
    def of(cls, arch: Architecture, hardware: Hardware, benches: Sequence[Bench]) -> "Replays":
        """The replays of these runs."""

        def is_closed(i: int) -> bool:
            return benches[i].concurrency is not None

        size = max(bench.requests.arrival.shape[0] for bench in benches)
        order = sorted(range(len(benches)), key=is_closed)
        groups, closed = [], []
        for loop, members in groupby(order, is_closed):
            lanes_of = [_lane(benches[i], size) for i in members]
            groups.append(jax.tree.map(lambda *x: np.stack(x), *lanes_of))
            closed.append(loop)
        begin = size * np.argsort(order)  # the first entry of each run
        places = [first + np.arange(one.count) for first, one in zip(begin, benches, strict=True)]
        sizes = [sizes_of(bench.rules, bench.requests) for bench in benches]
        width, entries = (max(numbers) for numbers in zip(*sizes, strict=True))
        model = jax.tree.map(np.asarray, shape(arch))
        index = np.concatenate(places)
        return cls(model, hardware, tuple(groups), tuple(closed), index, width, entries)

    def __call__(self, model: Serving) -> Array:
        times, complete = self.times(model)
        return jnp.where(complete, times, jnp.nan)

    def times(self, model: Serving) -> tuple[Array, Array]:
        """The times of all requests, and whether ``entries`` were enough for every path."""

        def replay_lane(lane: _Lane, closed: bool) -> tuple[Array, Array]:
            table = PassLaw.of_context(model.context(self.model, self.hardware, lane.plan))
            loop = lane.concurrency if closed else None
            path = Partial(pass_time, lax.stop_gradient(table))
            log = replay(
                path, lane.rules, lane.requests, loop, width=self.width, entries=self.entries
            )
            step = Partial(pass_time, table)
            again = path_gradient(step, log, lane.requests, loop, phase=not closed)
            front = model.front_time(lane.plan) * lane.from_client
            return jnp.stack([again.tpot, again.ttft + front]), log.complete

        by_group = [
            lanes(partial(replay_lane, closed=closed), lane)
            for lane, closed in zip(self.groups, self.closed, strict=True)
        ]
        times, complete = (jnp.concatenate(x) for x in zip(*by_group, strict=True))
        times = jnp.moveaxis(times, 1, 0).reshape(2, -1)[:, self.index]
        # a request of one token has no TPOT; this number is not compared
        times = jnp.where(times > 0.0, times, 1.0)
        return times.ravel(), jnp.all(complete)


def _lane(bench: Bench, size: int) -> _Lane:
    """A run's numbers, its requests padded to ``size`` with requests that never arrive."""
    missing = size - bench.requests.arrival.shape[0]
    requests = jax.tree.map(
        lambda x: np.pad(x, (0, missing), mode="edge") if np.ndim(x) else x, bench.requests
    )
    loop = bench.count if bench.concurrency is None else bench.concurrency
    rules = jax.tree.map(lambda x: np.asarray(x, float), bench.rules)
    concurrency = jnp.asarray(loop, jnp.int32)
    return _Lane(bench.load.plan, rules, requests, concurrency, float(bench.from_client))


# sources of runs whose files may have every request; times of clients count from the client
LOGS = (*CLIENTS, "request log")
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
    server = replayed_instance(*served, degrees, sizes, tokens)
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
    match = re.match(r"v?(\d+)(?:\.(\d+))?", version)
    return OVERLAP if match is None else tuple(int(x) for x in match.groups() if x)
