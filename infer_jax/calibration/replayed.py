"""Fits the serving model to the requests of measured runs, each replayed by the scheduler.

Where a log has every request, nothing of how requests share passes is a mean: the engine's rules
say which pass feeds and decodes what, the estimator says how long a pass takes, and the times of
each request are compared. Values are those of the replay; slopes are those of its path, which is
held (``replays.retrace``; Ho and Cao 1983), with arrivals in phase where they come by a clock.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from infer_jax.calibration.error_bands import left_out
from infer_jax.calibration.fitting import Fit, at
from infer_jax.calibration.ladder import coefficients_to_fit, priors
from infer_jax.calibration.linearised import Linearised
from infer_jax.calibration.runs import InstanceLoad
from infer_jax.calibration.server import (
    STEPS,
    TOLERANCE,
    Calibrated,
    RequestTimes,
    cautious_covariance,
    data_sheet_model,
    expected_spread,
)
from infer_jax.catalog.measurements import Run
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Deployment, Serving, Shape, shape
from infer_jax.estimators.serving.mixed import mixed, mixed_time
from infer_jax.replays import Requests, Rules, lanes, replay, retrace
from infer_jax.replays.server import checked, sizes_of
from infer_jax.specs import Architecture, Hardware

# typical log error of a request: TPOT, TTFT. Measured on the two servers of LLMServingSim's
# bench/examples (vLLM 0.19): 1.48 times the median |residual| of fits to 100 requests of each is
# 0.4 and 1.3 % of TPOT, 3 and 7 % of TTFT; these are wider, as other servers may be
SCALES = (0.02, 0.1)
BATCHES = 16  # batches of successive requests, whose errors are correlated
ELSEWHERE = ("usable_memory",)  # not fitted: no pass time depends on it


class Bench(NamedTuple):
    """A measured run and its server: the requests to replay, and the measured times of each.

    ``measured``: TPOT and TTFT in s, 2 x requests, NaN where there is none; ``used``: how many of
    the first are fitted; ``outside``: whether TTFT starts at the client, not at the queue.
    """

    run: Run
    load: InstanceLoad
    rules: Rules
    requests: Requests
    concurrency: int | None
    measured: np.ndarray
    used: int
    outside: bool


class _Lane(NamedTuple):
    """The numbers of one replay; lanes of equal shapes share a program."""

    plan: Deployment
    rules: Rules
    requests: Requests
    concurrency: Array
    outside: float


def calibrate_requests(
    serving: Serving,
    arch: Architecture,
    hardware: Hardware,
    benches: Sequence[Bench],
    names: Sequence[str] | None = None,
) -> Calibrated:
    """The coefficients of ``serving`` that fit the requests of one server's runs, with priors.

    Least squares of robust log residuals of each request's TPOT and TTFT, in units of ``SCALES``,
    and of the priors of ``calibrate_server``. Error bars are those of batches of successive
    requests, whose errors are correlated. ``names``: the coefficients; by default the factors and
    those of the ladder that pass times depend on.

    Raises:
        InputError: a request too large for the server's cache, fewer measured times than ``names``,
            an unknown name.
    """
    times = np.concatenate([bench.measured for bench in benches], axis=1)
    within = np.concatenate([np.arange(b.measured.shape[1]) < b.used for b in benches])
    known = np.isfinite(times) & within
    loads = tuple(bench.load for bench in benches)
    wanted = tuple(names or _ladder(serving, arch, loads, benches, known, times))
    if known.sum() < len(wanted):
        allowed = f"at least {len(wanted)}, the number of parameters ({', '.join(wanted)})"
        raise InputError("calibrate", "measured times", int(known.sum()), allowed)
    for bench in benches:
        checked(bench.rules, bench.requests, bench.concurrency)
    predict = Replays.of(arch, hardware, benches)
    evaluate = jax.jit(lambda model, predict=predict: predict.times(model))
    while not evaluate(serving)[1]:
        predict = predict._replace(turns=2 * predict.turns)  # preempted requests take more of them
        evaluate = jax.jit(lambda model, predict=predict: predict.times(model))
    problem = Linearised.of(
        predict,
        np.where(np.isfinite(times), times, 1.0).ravel(),
        serving,
        wanted,
        priors=priors(serving, wanted),
        scale=np.repeat(SCALES, times.shape[1]),
        tolerance=TOLERANCE,
    )
    ends, _ = problem.solve(problem.starts(1, 0.0, 0), known.astype(float).ravel(), STEPS)
    labels = _batches(benches)
    fit = dataclasses.replace(
        at(problem, ends[0], known.astype(float).ravel()), clusters=tuple(labels)
    )
    before, sheet = (np.asarray(evaluate(x)[0]) for x in (serving, data_sheet_model(serving)))
    return _calibrated(fit, benches, loads, serving, times, labels, before, sheet)


def _ladder(
    serving: Serving,
    arch: Architecture,
    loads: Sequence[InstanceLoad],
    benches: Sequence[Bench],
    known: np.ndarray,
    times: np.ndarray,
) -> list[str]:
    """The coefficients that are fitted by default, no more than there are times."""
    unseen = ELSEWHERE if any(b.outside for b in benches) else (*ELSEWHERE, "front")
    fitted = coefficients_to_fit(serving, arch, loads, np.where(known, times, np.nan))
    return [name for name in fitted if name.rpartition(".")[2] not in unseen]


def _batches(benches: Sequence[Bench]) -> list[int]:
    """Labels of rows with correlated errors: batches of successive requests of a run."""
    each = max(1, -(-BATCHES // len(benches)))
    labels: list[int] = []
    for i, bench in enumerate(benches):
        count = bench.measured.shape[1]
        batch = np.minimum(np.arange(count) * each // min(bench.used, count), each - 1)
        labels += (i * each + batch).tolist()
    return 2 * labels


def _calibrated(
    fit: Fit,
    benches: Sequence[Bench],
    loads: tuple[InstanceLoad, ...],
    serving: Serving,
    times: np.ndarray,
    labels: list[int],
    before: np.ndarray,
    sheet: np.ndarray,
) -> Calibrated:
    """The fit with its predicted times, of requests and as means of runs."""
    others = fit.measured * np.exp(left_out(fit, labels, fit.weights > 0))
    each = {
        "measured": times,
        "sheet": sheet,
        "before": before,
        "after": fit.predicted,
        "held": others,
    }
    there = np.isfinite(times)
    each = {name: np.where(there, x.reshape(times.shape), np.nan) for name, x in each.items()}
    fitted = fit.weights.reshape(times.shape) > 0
    ends = np.cumsum([bench.measured.shape[1] for bench in benches])[:-1]
    means = {name: _means(np.where(fitted, x, np.nan), ends) for name, x in each.items()}
    output = np.concatenate([b.requests.output[: b.measured.shape[1]] for b in benches])
    covered = cautious_covariance(fit, labels)
    spread, freedom = expected_spread(means["measured"], means["held"])
    return Calibrated(
        runs=tuple(bench.run for bench in benches),
        loads=loads,
        fit=fit,
        start=serving,
        **means,
        covered=covered,
        spread=spread,
        freedom=freedom,
        proposals=(),
        requests=RequestTimes(**each, fitted=np.any(fitted, axis=0), output=output),
    )


def _means(times: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Means over the requests of each run, 2 x runs."""
    runs = np.split(times, ends, axis=1)
    counts = [np.isfinite(x).sum(axis=1) for x in runs]
    sums = [np.nansum(x, axis=1) for x in runs]
    with np.errstate(invalid="ignore"):
        return np.stack([s / c for s, c in zip(sums, counts, strict=True)], axis=1)


class Replays(NamedTuple):
    """TPOT of all requests, then TTFT of all requests, in seconds, of a serving model.

    Runs with one kind of load (open or closed) are replayed one after the other by one program.
    ``turns``: room for the passes of a path.
    """

    model: Shape
    hardware: Hardware
    groups: tuple[_Lane, ...]
    closed: tuple[bool, ...]
    places: np.ndarray  # of every request among the entries of all lanes
    width: int
    turns: int

    @classmethod
    def of(cls, arch: Architecture, hardware: Hardware, benches: Sequence[Bench]) -> "Replays":
        """The replays of these runs."""
        order = sorted(range(len(benches)), key=lambda i: benches[i].concurrency is not None)
        size = max(bench.requests.arrival.shape[0] for bench in benches)
        groups, closed, places, begin = [], [], {}, 0
        for loop, members in groupby(order, lambda i: benches[i].concurrency is not None):
            each = list(members)
            one = (_lane(benches[i], size) for i in each)
            groups.append(jax.tree.map(lambda *x: np.stack(x), *one))
            closed.append(loop)
            for i in each:
                places[i] = begin + np.arange(benches[i].measured.shape[1])
                begin += size
        at = np.concatenate([places[i] for i in range(len(benches))])
        sizes = [sizes_of(bench.rules, bench.requests) for bench in benches]
        width, turns = (max(each) for each in zip(*sizes, strict=True))
        seen = jax.tree.map(np.asarray, shape(arch))
        return cls(seen, hardware, tuple(groups), tuple(closed), at, width, turns)

    def __call__(self, model: Serving) -> Array:
        times, complete = self.times(model)
        return jnp.where(complete, times, jnp.nan)

    def times(self, model: Serving) -> tuple[Array, Array]:
        """The times of all requests, and whether every path had room."""

        def one(lane: _Lane, closed: bool) -> tuple[Array, Array]:
            table = mixed(model.context(self.model, self.hardware, lane.plan))
            loop = lane.concurrency if closed else None
            held, sizes = Partial(mixed_time, lax.stop_gradient(table)), (self.width, self.turns)
            log = replay(held, lane.rules, lane.requests, loop, width=sizes[0], turns=sizes[1])
            step = Partial(mixed_time, table)
            again = retrace(step, log, lane.requests, loop, phase=not closed)
            front = model.front_time(lane.plan) * lane.outside
            return jnp.stack([again.tpot, again.ttft + front]), log.complete

        each = [
            lanes(partial(one, closed=closed), lane)
            for lane, closed in zip(self.groups, self.closed, strict=True)
        ]
        times, complete = (jnp.concatenate(x) for x in zip(*each, strict=True))
        times = jnp.moveaxis(times, 1, 0).reshape(2, -1)[:, self.places]
        # a request of one token has no TPOT; this number is not compared
        times = jnp.where(times > 0.0, times, 1.0)
        return times.ravel(), jnp.all(complete)


def _lane(bench: Bench, size: int) -> _Lane:
    """A run's numbers, its requests padded to ``size`` with requests that never arrive."""
    more = size - bench.requests.arrival.shape[0]

    def padded(x: Array) -> Array:
        return jnp.concatenate([jnp.asarray(x), jnp.repeat(jnp.asarray(x)[-1:], more)])

    given = bench.requests
    requests = Requests(
        arrival=padded(given.arrival),
        prompt=padded(given.prompt),
        output=padded(given.output),
        count=jnp.asarray(given.count),
        cached=padded(given.cached),
    )
    loop = int(given.count) if bench.concurrency is None else bench.concurrency
    rules = jax.tree.map(lambda x: np.asarray(x, float), bench.rules)
    plan = bench.load.plan
    return _Lane(plan, rules, requests, jnp.asarray(loop, jnp.int32), float(bench.outside))
