"""`infer-jax codesign`: a model and a layout that hardware likes, from a start, by gradients."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

from infer_jax.cli import options as opt, show
from infer_jax.cli.starting import prepare
from infer_jax.codesign.ascent import Progress
from infer_jax.codesign.design import Designed, codesign as design
from infer_jax.codesign.export import export, template
from infer_jax.codesign.toml import Spec, load_spec, spec_of
from infer_jax.errors import InputError
from infer_jax.sweep.terms import grows, unit_of

TERMS = ("ttft", "tpot", "speed", "throughput", "cost", "input_cost", "chips", "parameters",
         "active", "kv_bytes", "aspect", "energy", "loss", "training", "lifetime")  # fmt: skip


def codesign(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="SPEC.toml", help="What may change, an objective and limits."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="CONFIG", help="Without a file: the model to start from.")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Without a file: the system.")
    ] = None,
    estimator: opt.EstimatorName = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    target_throughput: Annotated[
        float | None,
        typer.Option(
            parser=opt.real("a rate above 0", 0.0),
            metavar="TOK/S",
            help="Without a file: least output tokens/s per GPU; less is refused.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write config.json, design.json and path.png here."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the random starts.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Which shape, split and batch would be better: least cost at a speed, within limits?"""
    prepare()
    asked = _asked(spec, model, hardware, estimator, isl, osl, ttft, tpot, target_throughput)
    search = {**asked.search, **({} if seed is None else {"seed": seed})}
    reports = []
    for i, keep in enumerate(asked.keeps):
        with _telling() as report:
            found = design(
                asked.estimator,
                asked.space,
                keep,
                start=asked.start,
                feasible=asked.feasible,
                progress=report,
                **search,
            )
        folder = out if out is None or len(asked.keeps) == 1 else out / str(i + 1)
        reports.append(_report(asked, found, keep, folder))
        if not as_json:
            _print(reports[-1])
    if as_json:
        show.as_json(reports[0] if len(reports) == 1 else {"frontier": reports})


def _asked(
    spec: Path | None,
    model: str | None,
    hardware: str | None,
    estimator: str | None,
    isl: float,
    osl: float,
    ttft: float | None,
    tpot: float | None,
    throughput: float | None,
) -> Spec:
    """The problem of a file, or InferSim's loop: a model's split and batch within limits."""
    options = {"--model": model, "--hardware": hardware, "--estimator": estimator}
    options |= {"--ttft": ttft, "--tpot": tpot, "--target-throughput": throughput}
    given = [name for name, value in options.items() if value is not None]
    if spec is not None:
        if given:
            raise opt.refuse(
                given[0], options[given[0]], "none with a SPEC.toml, which has its own"
            )
        return load_spec(spec)
    if model is None or hardware is None:
        raise opt.refuse("SPEC.toml", "missing", "a file, or --model and --hardware")
    limits = {"ttft": ttft, "tpot": tpot, "throughput": throughput}
    limits = {k: v for k, v in limits.items() if v is not None}
    if not limits:
        raise opt.refuse("--tpot", "missing", "a limit: --ttft, --tpot or --target-throughput")
    table: dict[str, Any] = {
        "estimator": estimator or "economics.planned",
        "arch": {"model": model},
        "hardware": {"system": hardware},
        "workload": {"isl": isl, "osl": osl},
        "objective": {"best": "cost"},
        "limits": limits,
    }
    return spec_of("infer-jax codesign", {**table, "free": _loop(table)} | _alike(table))


def _loop(table: dict[str, Any]) -> dict[str, Any]:
    """What InferSim's loop turns: attention and feedforward of the model, the split, the batch."""
    from infer_jax.catalog import load_model
    from infer_jax.codesign.names import paths
    from infer_jax.sweep.space import dotted

    arch = load_model(table["arch"]["model"]).architecture
    flat = {f"arch.{dotted(k)}": float(v) for k, v in jax.tree_util.tree_flatten_with_path(arch)[0]}
    known = paths(arch)
    free: dict[str, Any] = {"tp": [1, 16], "batch": [1, 8192]}
    if "experts" in known:
        free["ep"] = [1, 256]
    for name in ("heads", "kv_heads", "kv_rank", "experts", "active", "expert_width"):
        if name in known:
            now = flat[known[name][0]]
            free[name] = [max(1.0, now // 4), 2 * now]
    if "experts" not in known:
        now = flat[known["feedforward_width"][0]]
        free["feedforward_width"] = [now // 4, 2 * now]
    return free


def _alike(table: dict[str, Any]) -> dict[str, Any]:
    """Total and active parameters within 2 % of the model's: a design of the same class."""
    from infer_jax.catalog import load_model
    from infer_jax.physics import decoder

    arch = load_model(table["arch"]["model"]).architecture
    sizes = {
        "parameters": float(decoder.total(decoder.parameters(arch).values())),
        "active": float(decoder.active_parameters(arch)),
    }
    bands = [{"value": k, "at_least": 0.98 * v, "at_most": 1.02 * v} for k, v in sizes.items()]
    return {"where": bands}


@contextmanager
def _telling() -> Iterator[Callable[[Progress], None] | None]:
    """A line that says how the search goes, where somebody watches a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("compiling") as status:

        def report(p: Progress) -> None:
            best = "no design keeps the limits yet"
            if np.isfinite(p.objective):
                best = f"best {np.exp(abs(p.objective)):.4g}"
            status.update(f"round {p.round} of {p.rounds}, {best}, {p.seconds:.0f} s")

        yield report


def _report(asked: Spec, found: Designed, keep: Any, folder: Path | None) -> dict[str, Any]:
    notes = list(found.notes)
    law = asked.estimator.law
    tokens = getattr(found.point.estimator, "tokens", 0.0)
    if law is not None:
        notes += [f"{w}." for w in law.warnings(found.point.arch, tokens)]
    config = None
    moved = any(name.startswith("arch.") for name in found.moving)
    if asked.model and (moved or folder is not None):
        try:
            config, _ = export(found.point.arch, template(asked.model), **asked.formats)
        except InputError as error:
            notes.append(f"No config.json: {error}.")
    second = _second(asked, found)
    report: dict[str, Any] = {
        "objective": keep.by,
        "limits": dict(keep.under),
        "gain": found.gain,
        "start_keeps_limits": found.start_met,
        "design": {k: v for k, v in found.values.items() if "vectors" not in k},
        "start": asked.start,
        "terms": found.terms,
        "start_terms": found.start_terms,
        "units": {name: unit_of(name, found.point, found.life) for name in found.terms},
        "better": {name: grows(name, found.point, found.life) for name in found.terms},
        "second_estimator": second,
        "searched": found.counts | {"seconds": found.seconds},
        "config": config,
        "notes": notes,
    }
    if folder is not None:
        _write(folder, report, found)
    return report


def _second(asked: Spec, found: Designed) -> dict[str, Any] | None:
    """The design and the start under the second estimator, where the file names one."""
    if asked.second is None:
        return None

    def run(point: Any) -> Any:
        return asked.second.estimate(point.arch, point.hardware, point.workload, point.plan)

    with jax.enable_x64(True):
        lives = [jax.jit(run)(p) for p in (found.start, found.point)]
    names = ("ttft", "tpot", "cost", "throughput")
    told = [
        {n: float(getattr(x, n)) for n in names} | {"feasible": bool(x.feasible)} for x in lives
    ]
    return {"start": told[0], "design": told[1]}


def _write(folder: Path, report: dict[str, Any], found: Designed) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(show.plain({k: v for k, v in report.items() if k != "config"}), indent=2)
        (folder / "design.json").write_text(text + "\n")
        if report["config"] is not None:
            (folder / "config.json").write_text(json.dumps(report["config"], indent=2) + "\n")
    except OSError as error:
        raise InputError(str(folder), "--out", error.strerror, "a folder to write to") from None
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


def _print(report: dict[str, Any]) -> None:
    limits = ", ".join(f"{k} {v:.6g}" for k, v in report["limits"].items()) or "none"
    show.say("", f"Objective: {report['objective']}; limits: {limits}.")
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
    second = report["second_estimator"]
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
            columns[:1] + columns[1:],
            [
                [n, _cell(second["start"][n]), _cell(second["design"][n]),
                 _ratio(second["start"][n], second["design"][n])]
                for n in second["start"]
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
    return show.digits(float(value), 5)


def _ratio(before: Any, after: Any) -> str:
    if any(x is None or isinstance(x, str | bool) for x in (before, after)) or not float(before):
        return ""
    return f"{float(after) / float(before):.3f}"
