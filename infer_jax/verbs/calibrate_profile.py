"""The profile of a calibrated server, over the profile that the fit started from."""

import datetime
import json
import math
import os
from pathlib import Path

from infer_jax.calibration.runs import OUTPUTS, in_flight, load_of, measured
from infer_jax.calibration.server import Calibrated
from infer_jax.catalog import System, list_systems
from infer_jax.catalog.measured_points import MeasuredPoint, entry as entry_of
from infer_jax.catalog.measurements import Run
from infer_jax.errors import printable
from infer_jax.estimators import Estimator
from infer_jax.kernel_timing.profile import entry
from infer_jax.results import option
from infer_jax.specs import Hardware, leaves
from infer_jax.verbs.inputs import HardwareLike, Setup
from infer_jax.verbs.problems import refuse

SUFFIX = {"s": ("_us", 1e6), "bytes": ("_bytes", 1.0), "tokens": ("_tokens", 1.0)}
SOURCE = "calibrated"


def check_target(path: Path, hardware: HardwareLike, start: Estimator) -> None:
    """Check, before anything is computed, that the profile can be written.

    Raises:
        InputError: a file that cannot be written, or the profile that the fit starts from; an
            estimator whose coefficients stand in no table of a profile.
    """
    allowed, folder = "", path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        allowed = "a .toml file in a folder that can be written"
    elif isinstance(hardware, Hardware):
        allowed = "with a system by name or file, over whose profile the new one stands"
    elif not start.table:
        allowed = "with an estimator that has a table of a profile"
    else:
        base = hardware.path if isinstance(hardware, System) else Path(hardware)
        if base.exists() and path.exists() and path.samefile(base):
            allowed = f"another file than {option('hardware')}, which it starts from"
    if allowed:
        raise refuse("out", str(path), allowed)


def text(setup: Setup, server: Calibrated, counted: str, errors: str, out: Path) -> str:
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
        f"{setup.model.name}{under} ({named}): {errors}"
    )
    lines = [
        f"title = {_quoted(f'{setup.system.title}, calibrated to {setup.model.name}')}",
        f"base = {_quoted(_base(setup, out))}",
    ]
    layouts = dict.fromkeys(load.plan.label for load in server.loads)
    lines += [
        *("", "[calibrated]", f"model = {_quoted(setup.model.name)}"),
        f"formats = {_quoted(setup.model.quantisation)}",
        f"layouts = [{', '.join(map(_quoted, layouts))}]",
    ]
    for name, entries in tables.items():
        lines += ["", f"[{name}]", *entries]
    for run in server.runs:
        if (known := _measured(setup, run)) is not None:
            lines += ["", "[[measured]]", f"model = {_quoted(known.model)}", *entry_of(known)]
    return "\n".join([*lines, "", "[sources]", f"{SOURCE} = {_quoted(source)}", ""])


def _measured(setup: Setup, run: Run) -> MeasuredPoint | None:
    """A run as a point of a chart; None if a time is missing, or it is an open loop."""
    tpot, ttft = (float(x) for x in measured([run])[:, 0])
    if not (math.isfinite(tpot) and math.isfinite(ttft)):
        return None
    work, plan, _ = load_of(run)
    gpus = run.chips or float(plan.instance)
    isl, osl = float(work.isl), float(work.osl)
    return MeasuredPoint(setup.model.name, gpus, in_flight(run), isl, osl, ttft, tpot)


def _base(setup: Setup, out: Path) -> str:
    """The new file's path to its base profile."""
    path = setup.system.path
    if setup.system.name in list_systems() and path.parent.name == "hw_profiles":
        return setup.system.name
    return Path(os.path.relpath(path.resolve(), out.resolve().parent)).as_posix()


def _quoted(text: str) -> str:
    return json.dumps(printable(text), ensure_ascii=False)
