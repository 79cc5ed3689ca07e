"""Measured and predicted times of runs and of requests, and the errors of predictions."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from infer_jax.calibration.runs import OUTPUTS
from infer_jax.replays.runs import statistic
from infer_jax.results import Row

KEYS = ("ttft_ms", "tpot_ms", "latency_ms")  # of the statistics of requests


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

    @cached_property
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
