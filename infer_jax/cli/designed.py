"""How is a design report? As a table beside its start, as JSON, and as files in a folder."""

import json
from pathlib import Path
from typing import Any

from infer_jax.catalog.files import write_text
from infer_jax.cli import show
from infer_jax.design.design import Design
from infer_jax.design.export import export, template
from infer_jax.design.quality_wrapper import QualityEstimate, QualityWrapper
from infer_jax.design.toml import DesignSpec
from infer_jax.design.violations import estimate_of
from infer_jax.errors import InputError
from infer_jax.results import numbers
from infer_jax.specs import outputs
from infer_jax.sweeps.paths import grows, look, unit_of
from infer_jax.verbs import limits

TERMS = tuple(output.name for output in outputs(QualityEstimate))


def report(asked: DesignSpec, found: Design, keep: Any, folder: Path | None) -> dict[str, Any]:
    """A design as JSON has it; with ``folder``, files and picture are written."""
    notes = list(found.notes)
    law = asked.estimator.law
    wrapper = found.point.estimator
    tokens = wrapper.tokens if isinstance(wrapper, QualityWrapper) else 0.0
    if law is not None:
        notes += [f"{w}." for w in law.warnings(found.point.arch, tokens)]
    config = None
    moved = any(name.startswith("arch.") for name in found.moving)
    if asked.model and (moved or folder is not None):
        try:
            config, _ = export(found.point.arch, template(asked.model), **asked.formats)
        except InputError as error:
            notes.append(f"No config.json: {error}.")
    second = _second(asked, found, keep)
    answer: dict[str, Any] = {
        "objective": keep.by,
        "limits": dict(keep.under),
        "gain": found.gain,
        "start_keeps_limits": found.start_met,
        "design": {k: v for k, v in found.values.items() if "vectors" not in k},
        "start": asked.start,
        "terms": found.terms,
        "start_terms": found.start_terms,
        "units": {name: unit_of(name, found.point, found.estimate) for name in found.terms},
        "better": {name: grows(name, found.point, found.estimate) for name in found.terms},
        "second_estimator": second,
        "searched": found.counts | {"seconds": found.seconds},
        "config": config,
        "estimator": asked.names[0],
        "trust": [known.fields() for known in asked.trusted],
        "notes": notes,
    }
    if folder is not None:
        _write(folder, answer, found)
    return answer


def _second(asked: DesignSpec, found: Design, keep: Any) -> dict[str, Any] | None:
    """The design and the start under the second estimator, where the file names one."""
    if asked.second is None:
        return None

    points = [p._replace(estimator=asked.second) for p in (found.start, found.point)]
    names = ("ttft", "tpot", "cost", "throughput")
    answers = []
    for point in points:
        estimate = estimate_of(point)
        broken = _broken(keep, point, estimate)
        answers.append({n: float(getattr(estimate, n)) for n in names} | {"broken": broken})
        answers[-1]["feasible"] = bool(estimate.feasible) and not broken
    return {"name": asked.names[1], "start": answers[0], "design": answers[1]}


def _broken(keep: Any, point: Any, estimate: Any) -> list[str]:
    """The limits that a point breaks: those asked for, and those of its estimator."""
    said = []
    for name, limit in dict(keep.under).items():
        try:
            value = float(look(name, point, estimate))
        except (AttributeError, InputError):  # a term of the first estimator alone
            continue
        least = grows(name, point, estimate)
        if value < limit if least else value > limit:
            word = "at least" if least else "at most"
            said.append(f"{name} is {value:.4g}, asked for {word} {limit:.4g}")
    for title, phase in (("prefill", estimate.prefill), ("decode", estimate.decode)):
        for name, limit in phase.limits.items():
            text = limits.broken(name, limit)
            if float(limit.need) > float(limit.capacity) and text not in " ".join(said):
                said.append(f"{title}: {text}")
    return said


def _write(folder: Path, report: dict[str, Any], found: Design) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), "--out", error.strerror, "a folder to write to") from None
    design = {k: v for k, v in report.items() if k != "config"}
    for name, table in (("design.json", design), ("config.json", report["config"])):
        if table is not None:
            write_text(folder / name, json.dumps(numbers.plain(table), indent=2) + "\n")
    report["notes"].append(f"Written to {folder}.")
    if found.paths:
        from importlib.util import find_spec

        if find_spec("matplotlib") is None:
            report["notes"].append("No picture: pip install 'infer_jax[plots]'.")
            return
        from infer_jax.plots.path import Track, plot_path

        caption = (
            "Left: all restarts, relaxed (no steps, kinks smoothed where the estimator can); a "
            "thin line breaks a limit. The design is rounded and priced by the exact model."
        )
        track = Track(**found.track())
        plot_path(
            track, folder / "path.png", title=f"Path to the design: {track.label}", caption=caption
        )


def show_all(report: dict[str, Any]) -> None:
    """Print the design, all terms beside the start's, the second estimator's, and notes."""
    limits = ", ".join(f"{k} {v:.6g}" for k, v in report["limits"].items()) or "none"
    show.say("", f"Objective: {report['objective']}; limits: {limits}.")
    show.say(*(known["says"] for known in report["trust"]))
    second = report["second_estimator"]
    for which in ("design", "start") if second else ():
        for text, name in ((x, second["name"]) for x in second[which]["broken"]):
            show.say(f"Not feasible by {name}, the second estimator: the {which}: {text}.")
    rows = [
        [
            name,
            _cell(report["start"].get(name)),
            _cell(value),
            _ratio(report["start"].get(name), value),
        ]
        for name, value in report["design"].items()
    ]
    columns = [
        show.Column("free", left=True),
        show.Column("start"),
        show.Column("design"),
        show.Column("ratio"),
    ]
    show.table(columns, rows)
    now, then, units = report["terms"], report["start_terms"], report["units"]
    named = [n for n in TERMS if n in now]
    named += [n for n in now if ".terms." in n or n.endswith(".need")]
    show.say("")
    show.table(
        [show.Column("term", left=True), show.Column("unit", left=True), *columns[1:]],
        [
            [
                n,
                "" if units[n] == "1" else units[n],
                _cell(then[n]),
                _cell(now[n]),
                _ratio(then[n], now[n]),
            ]
            for n in named
        ],
    )
    if second is not None:
        show.say("", "The same two under the second estimator")
        show.table(
            columns,
            [
                [n, _cell(second["start"][n]), _cell(second["design"][n]),
                 _ratio(second["start"][n], second["design"][n])]
                for n in second["start"] if n != "broken"
            ],
        )  # fmt: skip
    searched = report["searched"]
    show.say(
        "",
        f"{report['objective']} is better by a factor of {report['gain']:.3f}. "
        f"{searched['restarts']} restarts, {searched['gradients']:,} gradients, "
        f"{searched['lattice']:,} lattice points, {searched['seconds']:.1f} s.",
    )
    show.notes(report["notes"])


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str | bool):
        return "" if value is None else str(value)
    return numbers.digits(float(value), 5)


def _ratio(before: Any, after: Any) -> str:
    if any(x is None or isinstance(x, str | bool) for x in (before, after)) or not float(before):
        return ""
    return f"{float(after) / float(before):.3f}"
