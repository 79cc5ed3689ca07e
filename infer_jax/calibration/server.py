"""Fits an estimator to runs of one server, with intervals.

A server is one model on one system under one engine. The coefficients that an estimator says differ
from server to server (``Estimator.server_coefficients``) are fitted with the estimator's own values
as priors: of the serving model a factor on the time per output token, one on the time to first
token and, if there are enough runs, launch gaps, host time and efficiencies.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from infer_jax.calibration.cross_validation import cross_validate
from infer_jax.calibration.error_bands import FREEDOM, student
from infer_jax.calibration.linearised import Linearised
from infer_jax.calibration.problem import FitProblem, Predict, Prior, at
from infer_jax.calibration.proposals import Proposal, next_runs, possible_runs
from infer_jax.calibration.runs import OUTPUTS, InstanceLoad, LoadPredictor, load_of, measured
from infer_jax.calibration.times import MeasuredTimes, RequestTimes
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
from infer_jax.estimators.serving.server_coefficients import RUN_ERRORS
from infer_jax.replays.prefixes import power_of_two
from infer_jax.results import Row
from infer_jax.specs import Architecture, Hardware, leaves

SCALES = tuple(RUN_ERRORS[name] for name in OUTPUTS)  # typical log error of a run
# weight, in runs, of the typical error beside a server's own errors: 80 % bands from 1, 3, 5 and 10
# rows of each of 37 servers of silicon_sample.csv then held 78 to 83 % of their other rows, with
# a Student quantile up to 4 % narrower than that of `bands`
TYPICAL_RUNS = 3.0
SHARES = (0.5, 0.8, 0.95)  # of the intervals of coefficients
STEPS, TOLERANCE, FOLDS = 60, 1e-6, 20
FEWEST_ROWS = 64  # of a program of slopes
STEP_SHARES = (0.0, 0.5, 1.0)  # shares of the step to the fit that may be taken, shortest first
OUTLIER_ERRORS = 4.0  # usual errors from the fit beyond which a run disagrees with the others


@dataclass(frozen=True)
class Calibrated:
    """The fit of one server.

    ``times``: of the runs; ``requests``: of their requests, where single requests were fitted, of
    which ``times`` are means. ``covered``: covariance in free coordinates. ``spread``: deviation of
    log(measured / predicted) of a new run, of both times, and its degrees of ``freedom``.
    ``share``: of the step from the coefficients before to those that fit best, how much was taken;
    ``outliers``: indices of the runs that disagree with the others.
    """

    runs: tuple[Run, ...]
    loads: tuple[InstanceLoad, ...]
    fit: Fit
    start: Estimator
    times: MeasuredTimes
    covered: np.ndarray
    spread: np.ndarray
    freedom: float
    proposals: tuple[Proposal, ...] = ()
    requests: RequestTimes | None = None
    share: float = 1.0
    outliers: tuple[int, ...] = ()

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
        reach = QUANTILES[share] * student(self.freedom, share) * self.spread
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


def calibrate_server(
    estimator: Estimator,
    arch: Architecture,
    hardware: Hardware,
    runs: Sequence[Run],
    names: Sequence[str] | None = None,
) -> Calibrated:
    """The coefficients of an estimator that fit runs of one server best, with their priors.

    Least squares of robust log residuals of TPOT and TTFT, in units of ``SCALES``, and of the
    priors: coefficients near those of ``estimator`` within the scatter of servers. ``names``
    chooses the coefficients; by default as many of the estimator's own list as there are measured
    times. The step to them is shortened where runs left out demand it (``step_index``).

    Raises:
        InputError: no runs, a run without a needed fact, fewer measured times than ``names``, an
            unknown name.
    """
    if not runs:
        raise InputError("calibrate", "runs", "none", "at least one")
    loads, times = tuple(load_of(run) for run in runs), measured(runs)
    names = tuple(names or coefficients_to_fit(estimator, arch, loads, times))
    # possible next runs are rows of weight 0, so that one program serves both
    possible = possible_runs(arch, loads)
    predict, more = padded_predictor(arch, hardware, loads, possible)
    rows = np.concatenate([times, np.full((2, more), np.nan)], axis=1)
    # both times of a run have correlated errors; possible runs join the first
    columns = np.arange(rows.shape[1])
    clusters = np.tile(np.where(columns < len(runs), columns, 0), 2)
    problem, fit = solve(predict, rows, np.isfinite(rows), estimator, names, clusters.tolist())
    sheet = estimator.at_data_sheet()
    apart = outlier_runs(times, fit.predicted.reshape(2, -1)[:, : len(runs)])
    fit, share, left_out = _shortened_fit(problem, fit, times)
    predictions = {
        "sheet": None if sheet is None else problem.predictions(sheet),
        "before": problem.predictions(estimator),
        "after": fit.predicted,
        "held_out": left_out,
    }
    covered, (spread, freedom) = cautious_covariance(fit), expected_spread(times, left_out)
    return Calibrated(
        runs=tuple(runs),
        loads=loads,
        fit=fit,
        start=estimator,
        times=MeasuredTimes(
            times,
            {
                name: np.asarray(x).reshape(2, -1)[:, : len(runs)]
                for name, x in predictions.items()
                if x is not None
            },
        ),
        covered=covered,
        spread=spread,
        freedom=freedom,
        proposals=next_runs(fit, covered, possible, np.asarray(SCALES)),
        share=share,
        outliers=apart,
    )


def padded_predictor(
    arch: Architecture, hardware: Hardware, loads: Sequence[InstanceLoad],
    possible: Sequence[InstanceLoad],
) -> tuple[LoadPredictor, int]:  # fmt: skip
    """Times of loads, of some that nobody asks for, and of ``possible`` ones; those after loads.

    As many in all as those of most servers, whose slopes are then one program.
    """
    count = len(loads) + len(possible)
    more = power_of_two(max(count, FEWEST_ROWS)) - len(loads)
    spare = [*loads, *possible][:1] * (more - len(possible))
    return LoadPredictor.of(arch, hardware, [*loads, *spare, *possible]), more


def coefficients_to_fit(
    estimator: Estimator, arch: Architecture, loads: Sequence[InstanceLoad], times: np.ndarray
) -> tuple[str, ...]:
    """The estimator's own list of coefficients to fit, no more than ``times`` has.

    ``times``: TPOT and TTFT, 2 x runs, NaN where not measured.
    """
    known = np.isfinite(times)
    outputs = [name for name, row in zip(OUTPUTS, known, strict=True) if row.any()]
    plans = [load.plan for load in loads]
    return estimator.server_coefficients(arch, plans, outputs)[: int(known.sum())]


def priors(estimator: Estimator, names: Sequence[str]) -> dict[str, Prior]:
    """The prior of each coefficient of a server: its value in ``estimator`` and its scatter.

    Raises:
        InputError: a name of which nothing is known.
    """
    spreads: Mapping[str, float] = estimator.server_spreads
    values = {path: float(x) for path, _, x in leaves(estimator)}
    for name in names:
        if name not in spreads:
            raise InputError("calibrate", "parameter", name, ", ".join(spreads))
    return {name: Prior(values[name], spreads[name]) for name in names}


def check_times(fitted: np.ndarray, names: Sequence[str]) -> None:
    """Raise InputError where fewer times are fitted than coefficients."""
    if fitted.sum() < len(names):
        allowed = f"at least {len(names)}, the number of parameters ({', '.join(names)})"
        raise InputError("calibrate", "measured times", int(fitted.sum()), allowed)


def solve(
    predict: Predict,
    times: np.ndarray,
    fitted: np.ndarray,
    estimator: Estimator,
    names: tuple[str, ...],
    clusters: Sequence[int],
    scales: Sequence[float] = SCALES,
) -> tuple[FitProblem, Fit]:
    """``names`` of an estimator fitted to those of the ``times``, 2 x rows, that are ``fitted``.

    ``scales``: typical log errors of TPOT and TTFT; ``clusters``: labels of rows, whose errors are
    correlated where they are equal.

    Raises:
        InputError: fewer times than coefficients.
    """
    check_times(fitted, names)
    weights = fitted.astype(float).ravel()
    problem = Linearised.of(
        predict,
        np.where(np.isfinite(times), times, 1.0).ravel(),
        estimator,
        names,
        priors=priors(estimator, names),
        scale=np.repeat(scales, times.shape[1]),
        tolerance=TOLERANCE,
    )
    ends, _ = problem.solve(problem.starts(1, 0.0, 0), weights, STEPS)
    return problem, at(problem, ends[0], weights, clusters=clusters)


def times_left_out(
    problem: FitProblem, free: np.ndarray, weights: np.ndarray, runs: int
) -> np.ndarray | None:
    """Times of each run by a fit without it (without its fold from ``FOLDS`` runs on).

    By each of the steps ``STEP_SHARES`` to that fit: steps x 2 x runs; None of one run.
    """
    if runs < 2:
        return None
    fold = np.tile(np.arange(weights.size // 2) % FOLDS, 2)
    folds = {str(k): fold == k for k in range(min(runs, FOLDS))}
    predicted = np.empty((len(STEP_SHARES), weights.size))
    for refit in cross_validate(problem, folds, weights=weights, starts=free, steps=STEPS):
        for row, share in zip(predicted, STEP_SHARES, strict=True):
            logs, _ = problem.derivatives(partial_step(problem, refit.free, share))
            row[refit.inside] = np.exp(np.asarray(logs))[refit.inside]
    return predicted.reshape(len(STEP_SHARES), 2, -1)[:, :, :runs]


def _shortened_fit(
    problem: FitProblem, fit: Fit, times: np.ndarray
) -> tuple[Fit, float, np.ndarray | None]:
    """The fit, shortened as runs left out demand: it, its step's share, and their times by it."""
    left_out = times_left_out(problem, fit.free, fit.weights, times.shape[1])
    if left_out is None:
        return fit, 1.0, None
    kept = step_index(times, left_out)
    share = STEP_SHARES[kept]
    if share < 1.0:
        fit = at(
            problem, partial_step(problem, fit.free, share), fit.weights, clusters=fit.clusters
        )
    return fit, share, left_out[kept]


def partial_step(problem: FitProblem, free: np.ndarray, share: float) -> np.ndarray:
    """Free coordinates after a ``share`` of the step from the coefficients before to a fit."""
    start = np.asarray(problem.chosen.free(problem.tree))
    return start + share * (np.asarray(free) - start)


def step_index(times: np.ndarray, left_out: np.ndarray) -> int:
    """Index in ``STEP_SHARES`` of the least step that predicts runs left out as well as the best.

    As well as: its loss, that of Student's t of log(measured / predicted) in units of ``SCALES``,
    exceeds the least loss by at most one standard error of the difference over the runs, so that
    noise alone changes no coefficient. Source: the one-standard-error rule of Breiman, Friedman,
    Olshen and Stone 1984, Classification and Regression Trees, 3.4.3.

    Args:
        times: measured, 2 x runs.
        left_out: predicted by fits without each run, shares x 2 x runs.
    """
    score = np.log(times / left_out) / np.asarray(SCALES)[:, None]
    known = np.where(np.isfinite(score), score, 0.0)
    loss = np.sum((FREEDOM + 1.0) / 2.0 * np.log1p(known**2 / FREEDOM), axis=1)
    excess = loss - loss[np.argmin(loss.sum(axis=1))]
    error = np.sqrt(loss.shape[1]) * np.std(excess, axis=1, ddof=1)
    return int(np.argmax(excess.sum(axis=1) <= error))


def outlier_runs(times: np.ndarray, fitted: np.ndarray) -> tuple[int, ...]:
    """The runs that even the fit to all misses by ``OUTLIER_ERRORS`` usual errors or more."""
    score = np.abs(np.log(times / fitted)) / np.asarray(SCALES)[:, None]
    return tuple(np.flatnonzero(np.any(score > OUTLIER_ERRORS, axis=0)).tolist())


def cautious_covariance(fit: Fit) -> np.ndarray:
    """Covariance by the sandwich, for no parameter narrower than with errors of typical size.

    The sandwich is too narrow with few clusters.
    """
    typical = np.diag(np.linalg.pinv(fit.information))
    ratio = typical / np.maximum(np.diag(fit.covariance), 1e-300)
    widen = np.sqrt(np.maximum(ratio, 1.0))
    return fit.covariance * np.outer(widen, widen)


def expected_spread(times: np.ndarray, left_out: np.ndarray | None) -> tuple[np.ndarray, float]:
    """Deviation of log(measured / predicted) of a new run, of both times, and its freedom.

    (n0 s0^2 (1 + 1 / (k + 1/2)) + sum e^2) / (n0 + k) with the errors e of k runs left out and
    the typical error s0 counted n0 times, widened by the uncertainty of the offset from k runs.
    """
    count = np.isfinite(times).sum(axis=1)
    typical = np.square(SCALES) * (1.0 + 1.0 / (count + 0.5))
    errors = np.zeros_like(times) if left_out is None else np.nan_to_num(np.log(times / left_out))
    runs = 0.0 if left_out is None else count
    pooled = TYPICAL_RUNS * typical + np.sum(errors**2, axis=1)
    return np.sqrt(pooled / (TYPICAL_RUNS + runs)), TYPICAL_RUNS + float(np.min(runs))


def first_runs(
    estimator: Estimator, arch: Architecture, hardware: Hardware, load: InstanceLoad, most: float
) -> tuple[Proposal, ...]:
    """The runs that would narrow predictions most, by what is believed of all servers.

    As ``proposals.next_runs`` after a fit to no run, whose covariance is that of the priors.
    ``load``: an instance with the longest requests that it takes; ``most``: as many run at most.
    """
    work = load.workload
    loads = (InstanceLoad(work.with_(prefix=0.0), load.plan), *possible_runs(arch, [load]))
    runs = [(x, x.workload) for x in loads]
    longest = float(work.isl + work.osl)
    possible = [x for x, w in runs if float(w.isl + w.osl) <= longest and float(w.batch) <= most]
    names = estimator.server_coefficients(arch, [load.plan], list(OUTPUTS))
    predict, count = padded_predictor(arch, hardware, (), possible)
    problem = FitProblem.of(
        predict,
        np.ones(2 * count),
        estimator,
        names,
        priors=priors(estimator, names),
        scale=np.repeat(SCALES, count),
    )
    fit = at(problem, problem.chosen.free(estimator), np.zeros(2 * count))
    return next_runs(fit, np.diag(1.0 / fit.precision), possible, np.asarray(SCALES))
