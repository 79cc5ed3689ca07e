"""The profile of a calibrated server, over the profile that the fit started from."""

import datetime
import json
import math
import os
from pathlib import Path

from infer_jax.calibration.runs import OUTPUTS, in_flight, load_of, measured
from infer_jax.calibration.server import Calibrated
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
    start, ends = server.start, server.interval(0.8)
    declared = {path: (meta, float(x)) for path, meta, x in leaves(start)}
    verdicts = {one.name: one.verdict for one in server.identified.parameters}
    tables: dict[str, list[str]] = {
        start.table: [
            entry(name, value, SOURCE, meta["choices"][int(value)])
            for name, (meta, value) in declared.items()
            if meta["kind"] == "choice" and "." not in name
        ]
    }
    for name, value in server.fit.values.items():
        part, _, field = name.rpartition(".")
        suffix, factor = SUFFIX.get(declared[name][0]["unit"], ("", 1.0))
        interval = [factor * x for x in ends[name] if math.isfinite(x)]
        line = entry(field + suffix, factor * value, SOURCE, verdicts[name], interval)
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
