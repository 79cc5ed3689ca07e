"""Fits an estimator to runs of one server, with intervals.

A server is one model on one system under one engine. The coefficients that an estimator says differ
from server to server (``Estimator.server_coefficients``) are fitted with the estimator's own values
as priors: of the serving model a factor on the time per output token, one on the time to first
token and, if there are enough runs, launch gaps, host time and efficiencies.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jax.typing import ArrayLike

from infer_jax.calibration.cross_validation import cross_validate
from infer_jax.calibration.linearised import Linearised
from infer_jax.calibration.problem import FitProblem, Predict, Prior, at
from infer_jax.calibration.runs import (
    OUTPUTS,
    SCALES,
    InstanceLoad,
    LoadPredictor,
    check_times,
    load_of,
    measured,
)
from infer_jax.calibration.server_fit import (
    Calibrated,
    MeasuredTimes,
    Proposal,
    next_runs,
    possible_runs,
)
from infer_jax.calibration.statistics import FREEDOM
from infer_jax.calibration.uncertainty import Fit
from infer_jax.catalog.measurements import Run
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.replays.requests import power_of_two
from infer_jax.specs import Architecture, Hardware, leaves

STEPS, TOLERANCE, FOLDS = 60, 1e-6, 20
FEWEST_ROWS = 64  # of a program of slopes
STEP_SHARES = (0.0, 0.5, 1.0)  # shares of the step to the fit that may be taken, shortest first
OUTLIER_ERRORS = 4.0  # usual errors from the fit beyond which a run disagrees with the others


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
    count, loads, times = len(runs), tuple(load_of(run) for run in runs), measured(runs)
    names = tuple(names or coefficients_to_fit(estimator, arch, loads, times))
    check_times(np.isfinite(times), names)
    # possible next runs are rows of weight 0, so that one program serves both
    possible = possible_runs(arch, loads)
    predict, more = padded_predictor(arch, hardware, loads, possible)
    rows = np.pad(times, ((0, 0), (0, more)), constant_values=np.nan)
    # both times of a run have correlated errors; possible runs join the first
    clusters = 2 * [*range(count), *(0 for _ in range(more))]
    problem, fit = solve(predict, rows, np.isfinite(rows), estimator, names, clusters)

    def of_runs(x: ArrayLike) -> np.ndarray:
        return np.reshape(np.asarray(x), (2, -1))[:, :count]

    score = np.abs(np.log(times / of_runs(fit.predicted))) / np.asarray(SCALES)[:, None]
    share, sheet = 1.0, estimator.at_data_sheet()
    left_out = times_left_out(problem, fit.free, fit.weights, count)
    if left_out is not None:
        index = step_index(times, left_out)
        share, left_out = STEP_SHARES[index], left_out[index]
    if share < 1.0:
        part = partial_step(problem, fit.free, share)
        fit = at(problem, part, fit.weights, clusters=fit.clusters)
    predictions = {
        "sheet": None if sheet is None else problem.predictions(sheet),
        "before": problem.predictions(estimator),
        "after": fit.predicted,
        "held_out": left_out,
    }
    predictions = {name: of_runs(x) for name, x in predictions.items() if x is not None}
    return Calibrated(
        runs=tuple(runs),
        loads=loads,
        fit=fit,
        start=estimator,
        times=MeasuredTimes(times, predictions),
        possible=possible,
        share=share,
        outliers=tuple(np.flatnonzero(np.any(score > OUTLIER_ERRORS, axis=0)).tolist()),
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
    """
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
    ends, _ = problem.solve(problem.starts(), weights, STEPS)
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


def first_runs(
    estimator: Estimator, arch: Architecture, hardware: Hardware, load: InstanceLoad, most: float
) -> tuple[Proposal, ...]:
    """The runs that would narrow predictions most, by what is believed of all servers.

    As ``next_runs`` after a fit to no run, whose covariance is that of the priors.
    ``load``: an instance with the longest requests that it takes; ``most``: as many run at most.
    """

    def is_possible(run: InstanceLoad) -> bool:
        work, longest = run.workload, load.workload.isl + load.workload.osl
        return bool(work.isl + work.osl <= longest and work.batch <= most)

    own = load._replace(workload=load.workload.with_(prefix=0.0), median=0.0)
    possible = [*filter(is_possible, (own, *possible_runs(arch, [load])))]
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
    return next_runs(fit, np.diag(1.0 / fit.precision), possible)
