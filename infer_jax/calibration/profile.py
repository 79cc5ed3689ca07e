"""The profile of a calibrated server, over that which the fit started from, and its caveats."""

import dataclasses
import datetime
import json
import math
import os
from pathlib import Path

import numpy as np

from infer_jax.calibration.runs import OUTPUTS, drafting_runs, in_flight, load_of, measured
from infer_jax.calibration.server import OUTLIER_ERRORS
from infer_jax.calibration.server_fit import Calibrated
from infer_jax.calibration.statistics import predictive_checks
from infer_jax.catalog import Model, System, list_systems
from infer_jax.catalog.measured_points import MeasuredPoint, entry as entry_of
from infer_jax.catalog.measurements import Run
from infer_jax.catalog.systems import entry
from infer_jax.errors import printable
from infer_jax.specs import leaves

SUFFIX = {"s": ("_us", 1e6), "bytes": ("_bytes", 1.0), "tokens": ("_tokens", 1.0)}
SOURCE = "calibrated"


def profile_text(
    model: Model, system: System, server: Calibrated, counted: str, errors: str, out: Path
) -> str:
    """The TOML text of a profile: the base's facts, the fitted coefficients, the bands.

    ``counted``: how many times were fitted, in words; ``errors``: how good the fit is, in words.
    """
    start = server.start
    tables: dict[str, list[str]] = {
        start.table: [
            entry(path, float(x), SOURCE, meta["choices"][int(x)])
            for path, meta, x in leaves(start)
            if meta["kind"] == "choice" and "." not in path
        ]
    }
    for row in server.parameters():
        part, _, field = row["name"].rpartition(".")
        suffix, factor = SUFFIX.get(row["unit"], ("", 1.0))
        interval = [factor * x for x in row["interval80"] if math.isfinite(x)]
        line = entry(field + suffix, factor * row["value"], SOURCE, row["verdict"], interval)
        tables.setdefault(f"{start.table}.{part}" if part else start.table, []).append(line)
    note = "measured over predicted of 80 % of new runs"
    tables[f"{start.table}_bands"] = [
        entry(f"{name}_{side}", x, SOURCE, note)
        for name, band in zip(OUTPUTS, server.band(0.8), strict=True)
        for side, x in zip(("low", "high"), band, strict=True)
    ]
    under = f" under {start.engine_name}" if start.engine_name else ""
    files = sorted({Path(run.file).name for run in server.runs})
    named = ", ".join(files[:6]) + (f" and {len(files) - 6} more" if len(files) > 6 else "")
    source = (
        f"infer-jax calibrate, {datetime.date.today().isoformat()}, {counted} of "
        f"{model.name}{under} ({named}): {errors}"
    )
    lines = [
        f"title = {_quoted(f'{system.title}, calibrated to {model.name}')}",
        f"base = {_quoted(_base(system, out))}",
    ]
    layouts = dict.fromkeys(load.plan.label for load in server.loads)
    lines += [
        *("", "[calibrated]", f"model = {_quoted(model.name)}"),
        f"formats = {_quoted(model.quantisation)}",
        f"layouts = [{', '.join(map(_quoted, layouts))}]",
    ]
    for name, entries in tables.items():
        lines += ["", f"[{name}]", *entries]
    for run in server.runs:
        if (known := _measured(model, run)) is not None:
            lines += ["", "[[measured]]", f"model = {_quoted(known.model)}", *entry_of(known)]
    return "\n".join([*lines, "", "[sources]", f"{SOURCE} = {_quoted(source)}", ""])


def _measured(model: Model, run: Run) -> MeasuredPoint | None:
    """A run as a point of a chart; None if a time is missing, or it is an open loop."""
    tpot, ttft = (float(x) for x in measured([run])[:, 0])
    if not (math.isfinite(tpot) and math.isfinite(ttft)):
        return None
    work, plan, _ = load_of(run)
    gpus = run.chips or float(plan.instance)
    isl, osl = float(work.isl), float(work.osl)
    return MeasuredPoint(model.name, gpus, in_flight(run), isl, osl, ttft, tpot)


def _base(system: System, out: Path) -> str:
    """The new file's path to its base profile."""
    path = system.path
    if system.name in list_systems() and path.parent.name == "hw_profiles":
        return system.name
    return Path(os.path.relpath(path.resolve(), out.resolve().parent)).as_posix()


def _quoted(text: str) -> str:
    return json.dumps(printable(text), ensure_ascii=False)


OUTLIERS = 5  # runs named that disagree most
PATTERN_RUNS = 5  # fewest runs whose residuals are checked for patterns
# fields of a run, by whose logarithms residuals may have a trend
ALONG = {"concurrency": "concurrency", "prompt length": "isl", "output length": "osl"}
FAR = 2.0  # deviations of a prior that a coefficient seldom moves
ARRIVALS = (
    "Runs with arrivals: their TPOT is compared at the requests that were in flight, rate "
    "x latency; their TTFT is left out, as waits of arrivals follow another law."
)
DRAFTING = (
    "ITL is much longer than TPOT: several tokens came at once. If these are drafts, the factors "
    "hold their acceptance, and are of no server without them."
)
MEDIANS = (
    "TTFT of {} is a median, as {} no mean, and is fitted to predicted medians; of others a mean."
)


def caveats(server: Calibrated) -> list[str]:
    """Sentences on coefficients that the runs do not determine, and on unexplained errors."""
    fit, identified = server.fit, server.identified
    moved = np.abs(fit.free - np.asarray(fit.parameters.free(server.start)))
    moved = dict(zip(fit.parameters.names, moved * np.sqrt(fit.precision), strict=True))
    far = {name: deviations for name, deviations in moved.items() if deviations > FAR}
    unknown = [one.name for one in identified.parameters if one.verdict != "identified"]
    own = tuple(f"{name}:" for name in unknown)
    notes = [sentence for sentence in identified.sentences if not sentence.startswith(own)]
    if silent := [name for name in unknown if name not in far]:
        notes.append(
            f"Of {', '.join(silent)} these runs say little: what was believed before stands."
        )
    notes += [
        f"{name} is {deviations:.1f} deviations from what was believed before: this server differs "
        "from others, or spends time on what the estimator does not have."
        for name, deviations in far.items()
    ]
    if 0.0 < server.share < 1.0:
        notes.append(
            "Runs left out are predicted as well, within the error of the comparison, by "
            f"coefficients that go {100.0 * server.share:g} % of the way to the best fit: no more "
            "of it is believed."
        )
    if server.outliers and len(server.runs) > 1:
        places = ", ".join(server.runs[i].place for i in server.outliers[:OUTLIERS])
        notes.append(
            f"Runs disagree: {len(server.outliers)} of {len(server.runs)} are {OUTLIER_ERRORS:g} "
            f"usual errors or more from the fit to all of them, as runs of different builds are: "
            f"{places}."
        )
    if server.requests is None and any(run.loop == "open" for run in server.runs):
        notes.append(ARRIVALS)
    if drafting_runs(server.runs):
        notes.append(DRAFTING)
    if by_median := sum(load.median > 0.0 for load in server.loads):
        runs = ("a run", "it has") if by_median == 1 else (f"{by_median} runs", "they have")
        notes.append(MEDIANS.format(*runs))
    if server.times.left_out is None:
        notes.append("One run cannot be left out: the errors are of the run that was fitted.")
    return notes + ([] if server.requests is not None else _patterns(server))


def _patterns(server: Calibrated) -> list[str]:
    """Patterns in the residuals of TPOT alone and of TTFT alone that the fit does not explain.

    Left out are times of fewer than ``PATTERN_RUNS`` runs, which show none. Fits to single requests
    are not checked, as their errors are serially correlated.
    """
    notes, spread = list[str](), server.spread[0]
    weights = server.fit.weights.reshape(2, -1)
    # a run with arrivals has no concurrency
    columns = {title: np.asarray([getattr(run, name) or 0.0 for run in server.runs])
               for title, name in ALONG.items()}  # fmt: skip
    for k, name in enumerate(OUTPUTS):
        fitted = np.flatnonzero(weights[k])
        if len(fitted) < PATTERN_RUNS:
            continue
        rows = k * weights.shape[1] + fitted
        fields = ("predicted", "measured", "weights", "jacobian", "scale")
        arrays = {field: getattr(server.fit, field)[rows] for field in fields}
        fit = dataclasses.replace(server.fit, **arrays, clusters=None)
        along = {title: np.log(np.maximum(x[fitted], 1.0)) for title, x in columns.items()
                 if all(x[fitted]) and len(set(x[fitted])) > 1}  # fmt: skip
        notes += [
            f"{name.upper()}: the residuals' {c.name} is {c.measured:.2g}; it would be {c.low:.2g} "
            f"to {c.high:.2g} if the model were right and the errors ordinary."
            for c in predictive_checks(fit, server.covered, float(spread[k]), along)
            # errors smaller than typical ones need no note
            if not c.passes and (c.measured > c.high or c.name.startswith("trend"))
        ]
    return notes
