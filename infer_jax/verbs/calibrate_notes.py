"""Notes of a calibration: how it was fitted, and what the runs do not determine."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from infer_jax.calibration import predictive_checks
from infer_jax.calibration.runs import OUTPUTS, trends
from infer_jax.calibration.server import Calibrated
from infer_jax.calibration.uncertainty import Fit
from infer_jax.catalog.measurements import Run

PATTERN = 5  # fewest runs whose residuals are checked for patterns
FAR = 2.0  # deviations of a prior that a coefficient seldom moves


def how(why_not: str | None) -> list[str]:
    """Whether requests were replayed, or why the closed form was fitted."""
    if why_not is not None:
        return [f"Fitted by the closed form of means: {why_not}."]
    return [
        "Requests were replayed one by one by the engine's scheduler; those of one run are not "
        "independent, so that intervals are of batches of successive ones."
    ]


def caveats(server: Calibrated) -> list[str]:
    """Sentences on coefficients that the runs do not determine, and on unexplained errors."""
    unsure = [one.name for one in server.identified.parameters if one.verdict != "identified"]
    pulled = _pulled(server)
    silent = [name for name in unsure if name not in pulled]
    notes = [
        s for s in server.identified.sentences if not s.startswith(tuple(f"{n}:" for n in unsure))
    ]
    if silent:
        notes.append(
            f"Of {', '.join(silent)} these runs say little: what was believed before stands."
        )
    notes += [
        f"{name} is {far:.1f} deviations from what was believed before: this server differs from "
        "others, or spends time on what the estimator does not have."
        for name, far in pulled.items()
    ]
    if server.requests is None and any(run.loop == "open" for run in server.runs):
        notes.append(
            "Runs with arrivals: their TPOT is compared at the requests that were in flight, rate "
            "x latency; their TTFT is left out, as waits of arrivals follow another law."
        )
    if server.times.left_out is None:
        notes.append("One run cannot be left out: the errors are of the run that was fitted.")
    for name, one, scale, runs in _by_output(server):
        checks = predictive_checks(one, server.covered, scale, trends(runs))
        notes += [
            f"{name.upper()}: the residuals' {c.name} is {c.measured:.2g}; it would be {c.low:.2g} "
            f"to {c.high:.2g} if the model were right and the errors ordinary."
            for c in checks
            # errors smaller than typical ones need no note
            if not c.passes and (c.measured > c.high or c.name.startswith("trend"))
        ]
    return notes


def _pulled(server: Calibrated) -> dict[str, float]:
    """Coefficients far from their prior, with the distance in its standard deviations."""
    fit = server.fit
    far = np.abs(fit.free - np.asarray(fit.parameters.free(server.start))) * np.sqrt(fit.precision)
    return {name: x for name, x in zip(fit.parameters.names, far, strict=True) if x > FAR}


def _by_output(server: Calibrated) -> Iterator[tuple[str, Fit, float, list[Run]]]:
    """TPOT alone and TTFT alone: the fit's rows of it, the spread of a new run, the runs.

    Left out are times of fewer than ``PATTERN`` runs, which show no pattern, and fits to single
    requests, whose errors are serially correlated.
    """
    if server.requests is not None:
        return
    weights = server.fit.weights.reshape(2, -1)
    for k, name in enumerate(OUTPUTS):
        fitted = np.flatnonzero(weights[k])
        if len(fitted) < PATTERN:
            continue
        rows = k * weights.shape[1] + fitted
        fields = ("predicted", "measured", "weights", "jacobian", "scale")
        arrays = {field: getattr(server.fit, field)[rows] for field in fields}
        fit = dataclasses.replace(server.fit, **arrays, clusters=None)
        yield name, fit, float(server.spread[k]), [server.runs[i] for i in fitted]
