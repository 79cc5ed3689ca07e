"""Fits the serving model to one server, with intervals.

A server is one model on one system under one engine. It gets a factor on its time per output
token and one on its time to first token and, if there are enough runs, launch gaps, host time and
efficiencies of its own, each with the fit to many servers as its prior.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from infer_jax.calibration.error_bands import student
from infer_jax.calibration.fitting import Fit, at
from infer_jax.calibration.identified import Identifiability, identifiability
from infer_jax.calibration.ladder import SCALES, coefficients_to_fit, priors
from infer_jax.calibration.linearised import Linearised
from infer_jax.calibration.problem import FitProblem
from infer_jax.calibration.proposals import Proposal, candidates, proposed
from infer_jax.calibration.runs import OUTPUTS, InstanceLoad, load_of, measured, predictor
from infer_jax.calibration.uncertainty import QUANTILES, covariance, interval
from infer_jax.catalog.measurements import Run
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Serving
from infer_jax.specs import Architecture, Hardware

# weight, in runs, of the typical error beside a server's own errors: 80 % bands from 1, 3, 5 and 10
# rows of each of 37 servers of silicon_sample.csv then held 78 to 83 % of their other rows, with
# a Student quantile up to 4 % narrower than that of `bands`
BELIEVED = 3.0
STEPS, TOLERANCE, FOLDS = 60, 1e-6, 20
PATTERN = 5  # fewest runs whose residuals are checked for patterns


class RequestTimes(NamedTuple):
    """TPOT and TTFT of single requests in seconds, 2 x requests; NaN where not measured.

    Fields as in ``Calibrated``; ``held`` is without the batch of requests around each, to first
    order. ``fitted``: which requests were fitted; ``output``: output tokens of each.
    """

    measured: np.ndarray
    sheet: np.ndarray
    before: np.ndarray
    after: np.ndarray
    held: np.ndarray
    fitted: np.ndarray
    output: np.ndarray


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """A server's fit. Times are TPOT and TTFT in seconds, 2 x runs; NaN where not measured.

    ``sheet``: predicted at data-sheet rates; ``before``: with the profile as it was; ``after``:
    with the fit; ``held``: each run by a fit on the others, None with one run. ``covered``:
    covariance in free coordinates. ``spread``: deviation of log(measured / predicted) of a new run,
    of both times. ``requests``: the times of requests, of a fit to single requests; the times of
    runs are then means of them.
    """

    runs: tuple[Run, ...]
    loads: tuple[InstanceLoad, ...]
    fit: Fit
    start: Serving
    measured: np.ndarray
    sheet: np.ndarray
    before: np.ndarray
    after: np.ndarray
    held: np.ndarray | None
    covered: np.ndarray
    spread: np.ndarray
    freedom: float
    proposals: tuple[Proposal, ...]
    requests: RequestTimes | None = None

    @property
    def unseen(self) -> np.ndarray:
        """Times predicted by fits to the other runs; with a single run, by the fit to it."""
        return self.after if self.held is None else self.held

    @functools.cached_property
    def identified(self) -> Identifiability:
        """Which coefficients the runs determine."""
        return identifiability(self.fit)

    def interval(self, share: float = 0.8) -> dict[str, tuple[float, float]]:
        """The interval of each coefficient, by name."""
        return interval(self.fit, self.covered, share)

    def band(self, share: float = 0.8) -> np.ndarray:
        """Bounds of measured over predicted of a new run, outputs x 2."""
        reach = QUANTILES[share] * student(self.freedom, share) * self.spread
        return np.exp(np.stack([-reach, reach], axis=1))


def calibrate_server(
    serving: Serving,
    arch: Architecture,
    hardware: Hardware,
    runs: Sequence[Run],
    names: Sequence[str] | None = None,
) -> Calibrated:
    """The coefficients of ``serving`` that fit runs of one server best, with their priors.

    Least squares of robust log residuals of TPOT and TTFT, in units of ``SCALES``, and of the
    priors: a factor near 1, coefficients near those of ``serving`` within the scatter of servers.
    ``names`` chooses the coefficients; by default the factors and then as many of ``LADDER`` as
    there are measured times.

    Raises:
        InputError: no runs, a run without a needed fact, fewer measured times than ``names``, an
            unknown name.
    """
    if not runs:
        raise InputError("calibrate", "runs", "none", "at least one")
    loads = tuple(load_of(run) for run in runs)
    times = measured(runs)
    count = int(np.isfinite(times).sum())
    wanted = coefficients_to_fit(serving, arch, loads, times) if names is None else tuple(names)
    if count < len(wanted):
        allowed = f"at least {len(wanted)}, the number of parameters ({', '.join(wanted)})"
        raise InputError("calibrate", "measured times", count, allowed)
    possible = candidates(arch, loads)
    return _fitted(serving, arch, hardware, runs, loads, times, wanted, possible)


def _fitted(
    serving: Serving,
    arch: Architecture,
    hardware: Hardware,
    runs: Sequence[Run],
    loads: tuple[InstanceLoad, ...],
    times: np.ndarray,
    wanted: tuple[str, ...],
    possible: tuple[InstanceLoad, ...],
) -> Calibrated:
    """``wanted`` fitted to the ``times`` of ``runs``; proposals from the ``possible`` next runs."""
    # possible next runs are rows of weight 0, so that one program serves both
    everything = (*loads, *possible)
    rows = np.concatenate([times, np.full((2, len(possible)), np.nan)], axis=1)
    known = np.isfinite(rows)
    predict = predictor(arch, hardware, everything)
    problem = Linearised.of(
        predict,
        np.where(known, rows, 1.0).ravel(),
        serving,
        wanted,
        priors=priors(serving, wanted),
        scale=np.repeat(SCALES, rows.shape[1]),
        tolerance=TOLERANCE,
    )
    weights = known.astype(float).ravel()
    ends, _ = problem.solve(problem.starts(1, 0.0, 0), weights, STEPS)
    labels = clusters(rows.shape[1], len(runs))
    fit = dataclasses.replace(at(problem, ends[0], weights), clusters=tuple(labels))
    evaluate = jax.jit(predict)

    def of_runs(predicted: np.ndarray) -> np.ndarray:
        return np.asarray(predicted).reshape(rows.shape)[:, : len(runs)]

    left_out = held_out(problem, fit, len(runs))
    covered = cautious_covariance(fit, labels)
    spread, freedom = expected_spread(times, left_out)
    return Calibrated(
        runs=tuple(runs),
        loads=loads,
        fit=fit,
        start=serving,
        measured=times,
        sheet=of_runs(evaluate(data_sheet_model(serving))),
        before=of_runs(evaluate(serving)),
        after=of_runs(fit.predicted),
        held=left_out,
        covered=covered,
        spread=spread,
        freedom=freedom,
        proposals=proposed(fit, covered, possible, len(runs)),
    )


def data_sheet_model(serving: Serving) -> Serving:
    """The model with data-sheet rates alone, for the same engine and chip."""
    return Serving.roofline().replace(engine=serving.engine, generation=serving.generation)


def held_out(problem: FitProblem, fit: Fit, runs: int) -> np.ndarray | None:
    """Times of each run by a fit without it (without its fold from ``FOLDS`` runs on)."""
    if runs < 2:
        return None
    weights = fit.weights.reshape(2, -1)
    predicted = np.empty((2, runs))
    for k in range(min(runs, FOLDS)):
        inside = np.arange(k, runs, FOLDS)
        kept = weights.copy()
        kept[:, inside] = 0.0
        ends, _ = problem.solve(fit.free, kept.ravel(), STEPS)
        logs, _ = problem.derivatives(ends[0])
        predicted[:, inside] = np.exp(np.asarray(logs)).reshape(weights.shape)[:, inside]
    return predicted


def clusters(columns: int, runs: int) -> list[int]:
    """Labels of rows with correlated errors: both times of a run; possible runs join the first."""
    return np.tile(np.where(np.arange(columns) < runs, np.arange(columns), 0), 2).tolist()


def cautious_covariance(fit: Fit, labels: Sequence[int]) -> np.ndarray:
    """Covariance by the sandwich, for no parameter narrower than with errors of typical size.

    The sandwich is too narrow with few clusters, and undefined with one.
    """
    ordinary = np.linalg.pinv(fit.information)
    if len(set(labels)) < 2:
        return ordinary
    clustered = covariance(fit, labels)
    ratio = np.diag(ordinary) / np.maximum(np.diag(clustered), 1e-300)
    widen = np.sqrt(np.maximum(ratio, 1.0))
    return clustered * np.outer(widen, widen)


def expected_spread(times: np.ndarray, held: np.ndarray | None) -> tuple[np.ndarray, float]:
    """Deviation of log(measured / predicted) of a new run, of both times, and its freedom.

    (n0 s0^2 (1 + 1 / (k + 1/2)) + sum e^2) / (n0 + k) with the errors e of k held-out runs and
    the typical error s0 counted n0 times, widened by the uncertainty of the offset from k runs.
    """
    count = np.isfinite(times).sum(axis=1)
    ordinary = np.square(SCALES) * (1.0 + 1.0 / (count + 0.5))
    errors = np.zeros_like(times) if held is None else np.nan_to_num(np.log(times / held))
    seen = 0.0 if held is None else count
    pooled = BELIEVED * ordinary + np.sum(errors**2, axis=1)
    return np.sqrt(pooled / (BELIEVED + seen)), BELIEVED + float(np.min(seen))


def each_output(calibrated: Calibrated) -> Iterator[tuple[str, Fit, float, list[Run]]]:
    """TPOT alone and TTFT alone: the fit's rows of it, the spread of a new run, the runs.

    Left out are times of fewer than ``PATTERN`` runs, which show no pattern, and fits to single
    requests, whose errors are serially correlated.
    """
    if calibrated.requests is not None:
        return
    weights = calibrated.fit.weights.reshape(2, -1)
    for k, name in enumerate(OUTPUTS):
        seen = np.flatnonzero(weights[k])
        if len(seen) < PATTERN:
            continue
        rows = k * weights.shape[1] + seen
        each = {
            field: getattr(calibrated.fit, field)[rows]
            for field in ("predicted", "measured", "weights", "jacobian", "scale")
        }
        alone = dataclasses.replace(calibrated.fit, **each, clusters=None)
        yield name, alone, float(calibrated.spread[k]), [calibrated.runs[i] for i in seen]
