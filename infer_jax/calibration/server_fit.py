"""The fit of one server: times, errors, coefficients, bands, and which runs to measure next."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from infer_jax.calibration.runs import OUTPUTS, SCALES, InstanceLoad
from infer_jax.calibration.statistics import student
from infer_jax.calibration.uncertainty import (
    QUANTILES,
    Fit,
    Identifiability,
    identifiability,
    interval,
)
from infer_jax.catalog.measurements import Run
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.replays.runs import statistic
from infer_jax.results import Row
from infer_jax.specs import Architecture, leaves

LENGTHS = ((1024.0, 1024.0), (8192.0, 1024.0), (1024.0, 8192.0))  # prompts and outputs proposed
PROPOSALS = 3
KEYS = ("ttft_ms", "tpot_ms", "latency_ms")  # of the statistics of requests
# weight, in runs, of the typical error beside a server's own errors: 80 % bands from 1, 3, 5 and 10
# rows of each of 37 servers of silicon_sample.csv then held 78 to 83 % of their other rows, with
# a Student quantile up to 4 % narrower than that of `bands`
TYPICAL_RUNS = 3.0
SHARES = (0.5, 0.8, 0.95)  # of the intervals of coefficients


class Worth(NamedTuple):
    """A candidate: its index in the list, and the bits it adds beyond the ones chosen before.

    ``narrows`` is the share by which the deviation of the wanted predictions falls.
    """

    index: int
    bits: float
    narrows: float


class Proposal(NamedTuple):
    """A run worth measuring: bits it adds, and by which share it narrows the predictions."""

    load: InstanceLoad
    bits: float
    narrows: float


def next_measurements(
    fit: Fit,
    candidates: np.ndarray,
    scale: float | Sequence[float],
    *,
    wanted: np.ndarray | None = None,
    covered: np.ndarray | None = None,
    count: int = 3,
) -> tuple[Worth, ...]:
    """The best next runs, one after the other (each assumed done before the next is chosen).

    A run with Jacobian j and noise s adds log2(1 + j C j^T / s^2) / 2 bits of information on the
    parameters, with C their covariance. With ``wanted``, the run that narrows these predictions
    most is chosen. Source: Lindley 1956; MacKay 1992 for the second.

    Args:
        fit: the fit so far.
        candidates: Jacobian of the log predictions of possible runs, runs x parameters.
        scale: noise of one run in log.
        wanted: Jacobian of the log predictions to narrow; None: the parameters.
        covered: covariance of the parameters; None: that of the fit's information.
        count: how many runs.

    Raises:
        InputError: candidates of another number of parameters, or none.
    """
    candidates = np.atleast_2d(np.asarray(candidates, float))
    if not candidates.size or candidates.shape[1] != len(fit.free):
        allowed = f"at least one row of {len(fit.free)} numbers"
        raise InputError("fit", "candidates", f"of shape {candidates.shape}", allowed)
    noise = np.broadcast_to(np.asarray(scale, float) ** 2, len(candidates))
    spread = np.linalg.pinv(fit.information) if covered is None else np.asarray(covered)
    goal = np.eye(len(fit.free)) if wanted is None else np.atleast_2d(wanted)
    chosen: list[Worth] = []
    for _ in range(min(count, len(candidates))):
        towards = candidates @ spread
        variance = np.sum(towards * candidates, axis=1)
        bits = 0.5 * np.log2(1.0 + variance / noise)
        before = np.sum((goal @ spread) * goal, axis=1)
        # by how much each candidate reduces the variance of every goal, by the rank-one update
        falls = (towards @ goal.T) ** 2 / (variance + noise)[:, None]
        best = int(np.argmax(bits if wanted is None else falls.sum(axis=1)))
        remaining = np.sqrt(np.maximum(before - falls[best], 0.0).sum() / before.sum())
        chosen.append(Worth(best, float(bits[best]), float(1.0 - remaining)))
        spread = spread - np.outer(towards[best], towards[best]) / (variance[best] + noise[best])
    return tuple(chosen)


def possible_runs(arch: Architecture, loads: Sequence[InstanceLoad]) -> tuple[InstanceLoad, ...]:
    """Closed-loop runs that could be measured: layouts of the runs, lengths, concurrencies."""

    def key(load: InstanceLoad) -> tuple[float, ...]:
        work, plan = load.workload, load.plan
        return tuple(map(float, (work.isl, work.osl, work.batch, plan.tp, plan.attention_dp)))

    first = loads[0].workload
    plans = {tuple(map(float, jax.tree.leaves(x.plan))): x.plan for x in loads}
    lengths = {(float(x.workload.isl), float(x.workload.osl)): None for x in loads}
    lengths |= dict.fromkeys(LENGTHS)
    longest, largest = float(arch.max_positions), max(float(x.workload.batch) for x in loads)
    batches = 2.0 ** np.arange(math.ceil(math.log2(max(largest, 1.0))) + 3)
    known = {key(load) for load in loads}
    possible = [
        InstanceLoad(first.with_(isl=i, osl=o, prefix=0.0, batch=b), plan)
        for plan in list(plans.values())[:2]
        for i, o in list(lengths)[-6:]
        for b in batches
        if i + o <= longest
    ]
    return tuple(load for load in possible if key(load) not in known)


def next_runs(
    fit: Fit, covered: np.ndarray, possible: Sequence[InstanceLoad]
) -> tuple[Proposal, ...]:
    """The possible runs that would narrow the predictions of all possible runs most.

    They are the last rows of TPOT and of TTFT in the fit, of typical errors.
    """
    if not possible:
        return ()
    slope = fit.jacobian.reshape(2, -1, len(fit.free))
    flat = slope[:, slope.shape[1] - len(possible) :].reshape(2 * len(possible), -1)
    noise = np.repeat(SCALES, len(possible))
    worth = next_measurements(
        fit,
        flat,
        noise.tolist(),
        wanted=flat / noise[:, None],
        covered=covered,
        count=2 * PROPOSALS,
    )
    proposals: dict[int, Proposal] = {}
    for one in worth:
        i = one.index % len(possible)
        proposals.setdefault(i, Proposal(possible[i], one.bits, one.narrows))
    return tuple(proposals.values())[:PROPOSALS]


class OutputErrors(NamedTuple):
    """Median and worst |predicted / measured - 1| of one output, in percent; NaN: not measured."""

    median: float
    worst: float

    @classmethod
    def of(cls, wrong: np.ndarray) -> "OutputErrors":
        """Of the errors of every run, some NaN."""
        known = wrong[np.isfinite(wrong)]
        return (
            cls(float(np.median(known)), float(known.max())) if len(known) else cls(np.nan, np.nan)
        )


@dataclass(frozen=True)
class MeasuredTimes:
    """TPOT and TTFT of runs or requests in seconds, 2 x runs; NaN where not measured.

    ``predictions``, by name in JSON: ``sheet``, at data-sheet rates, where the estimator has them;
    ``before``, with the coefficients as they were; ``after``, with the fit; ``held_out``, each by a
    fit without it (of requests without the batch around each, to first order), from two runs on.
    """

    measured: np.ndarray
    predictions: Mapping[str, np.ndarray]

    @property
    def left_out(self) -> np.ndarray | None:
        """Times predicted by fits to the other runs; None where there is one run."""
        return self.predictions.get("held_out")

    @property
    def unseen(self) -> np.ndarray:
        """Times predicted by fits to the other runs; of a single run by the fit to it."""
        return self.predictions.get("held_out", self.predictions["after"])

    @functools.cached_property
    def errors(self) -> dict[str, dict[str, OutputErrors]]:
        """Errors of every prediction by output."""
        wrong = {k: 100.0 * np.abs(x / self.measured - 1.0) for k, x in self.predictions.items()}
        return {
            kind: dict(zip(OUTPUTS, map(OutputErrors.of, rows), strict=True))
            for kind, rows in wrong.items()
        }


@dataclass(frozen=True)
class RequestTimes(MeasuredTimes):
    """Times of single requests; which were ``fitted``, and the ``output`` tokens of each."""

    fitted: np.ndarray
    output: np.ndarray

    def statistics(self) -> Row:
        """Means and percentiles of TTFT, TPOT and latency in ms, as measured and by prediction.

        Of the requests that were not fitted if there are any, else of all.
        """
        fitted = bool(self.fitted.all())
        which = self.fitted if fitted else ~self.fitted
        times: dict[str, dict[str, Mapping[str, float]]] = {key: {} for key in KEYS}
        for source, seconds in {"measured": self.measured, **self.predictions}.items():
            if source == "held_out" and not fitted:
                continue
            tpot, ttft = seconds[:, which]
            latency = ttft + np.nan_to_num(tpot) * (self.output[which] - 1)
            for key, x in zip(KEYS, (ttft, tpot, latency), strict=True):
                values = statistic([x[np.isfinite(x)]]).values
                times[key][source] = {name: 1e3 * value for name, value in values.items()}
        return {"count": int(which.sum()), "fitted": fitted, **times}


@dataclass(frozen=True)
class Calibrated:
    """The fit of one server.

    ``times``: of the runs; ``requests``: of their requests, where single requests were fitted, of
    which ``times`` are means. ``possible``: runs that could be measured next, the last rows of each
    time in the fit. ``share``: of the step from the coefficients before to those that fit best, how
    much was taken; ``outliers``: indices of the runs that disagree with the others.
    """

    runs: tuple[Run, ...]
    loads: tuple[InstanceLoad, ...]
    fit: Fit
    start: Estimator
    times: MeasuredTimes
    possible: tuple[InstanceLoad, ...] = ()
    requests: RequestTimes | None = None
    share: float = 1.0
    outliers: tuple[int, ...] = ()

    @functools.cached_property
    def covered(self) -> np.ndarray:
        """Covariance of the free coordinates by the sandwich, parameters x parameters.

        The sandwich is too narrow with few clusters: for no parameter it is narrower than with
        errors of typical size.
        """
        typical, own = np.diag(np.linalg.pinv(self.fit.information)), self.fit.covariance
        widen = np.sqrt(np.maximum(typical / np.maximum(np.diag(own), 1e-300), 1.0))
        return own * np.outer(widen, widen)

    @functools.cached_property
    def spread(self) -> tuple[np.ndarray, float]:
        """Deviation of log(measured / predicted) of a new run, of both times, and its freedom.

        (n0 s0^2 (1 + 1 / (k + 1/2)) + sum e^2) / (n0 + k) with the errors e of k runs left out and
        the typical error s0 counted n0 times, widened by the uncertainty of the offset from k runs.
        """
        times, left_out = self.times.measured, self.times.left_out
        count = np.isfinite(times).sum(axis=1)
        typical = np.square(SCALES) * (1.0 + 1.0 / (count + 0.5))
        if left_out is None:
            return np.sqrt(typical), TYPICAL_RUNS
        errors = np.nan_to_num(np.log(times / left_out))
        pooled = TYPICAL_RUNS * typical + np.sum(errors**2, axis=1)
        return np.sqrt(pooled / (TYPICAL_RUNS + count)), TYPICAL_RUNS + float(np.min(count))

    @functools.cached_property
    def proposals(self) -> tuple[Proposal, ...]:
        """The possible runs that would narrow the predictions of all of them most."""
        return next_runs(self.fit, self.covered, self.possible)

    @functools.cached_property
    def identified(self) -> Identifiability:
        """Which coefficients the runs determine."""
        return identifiability(self.fit)

    @property
    def estimator(self) -> Estimator:
        """The fitted estimator."""
        return self.fit.tree

    def interval(self, share: float = 0.8) -> dict[str, tuple[float, float]]:
        """The interval of each coefficient, by name."""
        return interval(self.fit, self.covered, share)

    def band(self, share: float = 0.8) -> np.ndarray:
        """Bounds of measured over predicted of a new run, outputs x 2."""
        spread, freedom = self.spread
        reach = QUANTILES[share] * student(freedom, share) * spread
        return np.exp(np.stack([-reach, reach], axis=1))

    @property
    def fitted_times(self) -> int:
        """Measured times that were fitted."""
        measured, requests = self.times.measured, self.requests
        if requests is not None:
            measured = requests.measured[:, requests.fitted]
        return int(np.isfinite(measured).sum())

    @property
    def fitted_in_words(self) -> str:
        """The numbers of fitted times and runs, in words."""
        runs, requests = len(self.runs), self.requests
        of = "" if requests is None else f"{int(requests.fitted.sum()):,} requests of "
        return f"{self.fitted_times:,} times of {of}{runs} run{'s' if runs > 1 else ''}"

    def parameters(self) -> list[Row]:
        """The coefficients for JSON, with their intervals, in SI units."""
        start = {path: (meta["unit"], float(x)) for path, meta, x in leaves(self.start)}
        ends = {share: self.interval(share) for share in SHARES}
        return [
            {
                "name": one.name,
                "unit": start[one.name][0],
                "before": start[one.name][1],
                "value": self.fit.values[one.name],
                **{f"interval{100 * s:.0f}": list(e[one.name]) for s, e in ends.items()},
                "learnt": one.learnt,
                "verdict": one.verdict,
            }
            for one in self.identified.parameters
        ]

    def worst_predicted(self, count: int) -> list[Row]:
        """The runs that fits to the others (or to all, if there is one) predict worst, for JSON."""
        both = {"measured": self.times.measured, "predicted": self.times.unseen}
        ratios, rows = both["predicted"] / both["measured"], list[Row]()
        for i in np.argsort(-np.nan_to_num(np.abs(np.log(ratios))).max(axis=0))[:count]:
            run = self.runs[i]
            load = {"concurrency": run.concurrency, "isl_tokens": run.isl, "osl_tokens": run.osl}
            times = {
                f"{name}_{kind}_ms": 1e3 * x[k, i]
                for k, name in enumerate(OUTPUTS)
                for kind, x in both.items()
            }
            errors = list(100.0 * (ratios[:, i] - 1.0))
            rows.append({"run": run.place, **load, **times, "error_percent": errors})
        return rows
