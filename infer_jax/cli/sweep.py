"""`infer-jax sweep`: all points of a SPACE.toml, what it keeps of them, in a file."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
import typer

from infer_jax.catalog.published import serving_measured
from infer_jax.cli import options as opt, parsers, picture, show
from infer_jax.cli.runtime import prepare as prepare_jax
from infer_jax.estimators import Trust, trust
from infer_jax.estimators.trust import BORROWED
from infer_jax.results import numbers
from infer_jax.sweeps import Result, explain, prepare, start, tables
from infer_jax.sweeps.interrupt import Stopped
from infer_jax.sweeps.stream import Progress
from infer_jax.sweeps.toml import Asked, load_space
from infer_jax.verbs.progress import busy, watched

SHOWN = 10  # rows of the printed table
MOST = 10**15  # points
SAID = 4  # systems and estimators of whose errors a sentence is printed


def sweep(
    space: Annotated[Path, typer.Argument(metavar="SPACE.toml", help="Axes, and what to keep.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The result: .parquet, .csv or .json."),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(help="float32, decided in float64 where it is close; or float64."),
    ] = "float32",
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to carry on from; beside --out if not given."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="INDEX", help="Sweep nothing: one point in full, by its index."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A picture of what was kept: .png, .svg or .pdf."),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Which of millions of configurations are worth choosing? The same command carries on."""
    _all_cores()
    asked = load_space(space)
    if plot is not None:
        _drawable(asked, plot)
    with busy("reading the space"):
        ready = prepare(
            asked.estimator, asked.space, asked.keep, precision=precision, feasible=asked.feasible
        )
    if ready.size > MOST and at is None:
        said = f"{ready.size:.3g} points"
        raise opt.refuse("SPACE.toml", said, f"at most {MOST:.1g}, days at 10^10 points a second")
    if at is not None:
        if not (at.isascii() and at.isdigit() and len(at) < 100):
            raise opt.refuse("--at", parsers.short(at), "an index, a whole number from 0")
        _explain(explain(ready, int(at), str(space)), as_json)
        return
    if out is not None:
        tables.check(out, ready.mark)
        checkpoint = checkpoint or out.with_name(f".{out.name}.checkpoint.npz")
    try:
        with _bar() as report:
            result = start(ready, checkpoint=checkpoint, progress=report)
    except Stopped as stopped:
        print(f"infer-jax: {stopped}", file=sys.stderr)
        raise typer.Exit(128 + stopped.number) from None
    result.source = str(space)
    trusted = _trusted(asked)
    if out is not None:
        result.write(out)
    if plot is not None:
        _draw(result, plot)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    _print(result, str(out) if out else None, as_json, trusted)


def _drawable(asked: Asked, plot: Path) -> None:
    """Raise InputError unless the frontier is one of speed and cost, and the picture writable."""
    picture.check(str(plot))
    if not {"speed", "cost"} <= set(getattr(asked.keep, "terms", ())):
        raise opt.refuse("--plot", plot, 'a file that keeps pareto = ["speed", "cost"]')


class _Front(NamedTuple):
    """What a curve is drawn through."""

    speed: np.ndarray
    cost: np.ndarray


def _draw(result: Result, plot: Path) -> None:
    """Speed against cost of the rows, a curve for each system."""
    from infer_jax.plots import Curve, plot_frontier

    columns = result.columns
    names = columns.get("hardware", np.full(len(result), "kept"))
    curves = {}
    for name in dict.fromkeys(names.tolist()):
        mine = names == name
        curves[str(name)] = Curve(_Front(columns["speed"][mine], columns["cost"][mine]))
    points = int(result.provenance["points"])
    title = f"The frontier of {points:,} configurations"
    estimators = ", ".join(result.provenance["estimator"])
    plot_frontier(
        curves, plot, title=title, caption=f"{len(result):,} rows. Estimator: {estimators}."
    )


def _trusted(asked: Asked) -> list[Trust]:
    """How far each estimator is trusted on each system, and for a model that was not measured."""
    given = asked.estimator if isinstance(asked.estimator, list) else [asked.estimator]
    systems, models = (
        list(x) if isinstance(x, list | tuple) else [x]
        for x in (asked.space.hardware, asked.space.arch)
    )
    measured = serving_measured().models
    names = sorted((one.name for one in models), key=lambda name: name in measured)
    return [
        trust(name, estimator.fitted_to(system.coefficients), system, names[0])
        for name, estimator in zip(asked.names, given, strict=True)
        for system in systems
    ]


def _all_cores() -> None:
    prepare_jax(every_device=True)
    with suppress(RuntimeError):  # devices are in use already, in a program that embeds this
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None] | None]:
    """A bar with points per second and the time left, where somebody watches a terminal."""
    if not watched():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress as Bar,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    text = TextColumn("{task.fields[rate]:.3g} points/s, {task.fields[left]:.0f} s left")
    columns = (BarColumn(), TaskProgressColumn(), text, TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=1.0, rate=0.0, left=0.0)

        def report(p: Progress) -> None:
            bar.update(task, completed=p.done / p.total, rate=p.rate, left=p.seconds_left)

        yield report


def _explain(told: Any, as_json: bool) -> None:
    if as_json:
        terms = {name: {"value": x, "unit": unit} for name, (x, unit) in told.terms.items()}
        show.as_json({"index": str(told.index), "axes": told.axes, "terms": terms})
        return
    show.say(str(told))


def _print(result: Any, out: str | None, as_json: bool, trusted: list[Trust]) -> None:
    columns = result.columns
    facts = {**result.provenance, "notes": result.notes, "out": out}
    if as_json:
        rows = [
            {name: column[i].item() for name, column in columns.items()} for i in range(len(result))
        ]
        known = [{"estimator": one.estimator, **one.fields()} for one in trusted]
        show.as_json(
            {**facts, "trust": known, "met": result.met, "rows": rows, "answer": result.answer}
        )
        return
    show.say(
        f"{int(facts['points']):,} points, {int(facts['counts']['feasible']):,} feasible, "
        f"{facts['seconds']:.1f} s: {len(result):,} kept.",
        *dict.fromkeys(one.says for one in trusted[:SAID]),
        *([f"{len(trusted) - SAID} more: --json says all."] if len(trusted) > SAID else []),
    )
    marks = {one.system: BORROWED for one in trusted if one.borrowed_from}
    alone = "hardware" not in columns and marks
    if result.answer is not None:
        show.say("", str(result.answer))
    elif len(result):
        asked = [n for n in ("speed", "cost", "ttft", "chips") if n in columns]
        axes = list(result.axes(0))
        if not result.met:
            show.say("", "Nothing meets the limits; these come nearest.")
            asked.append("violates")
        heads = [
            show.Column(n.rpartition(".")[2], result.units.get(n, ""), left=n == "violates")
            for n in axes + asked
        ]
        rows = range(min(len(result), SHOWN))
        cells = [[_cell(columns[n][i], marks) for n in axes + asked] for i in rows]
        if alone:
            heads.insert(0, show.Column("", left=True))
            cells = [[BORROWED, *row] for row in cells]
        show.table(tuple(heads), cells)
        if len(result) > SHOWN:
            show.say("", f"The first {SHOWN} of {len(result)} rows.")
    show.notes([*result.notes, *([f"Written to {out}."] if out else [])])


def _cell(value: Any, marks: dict[str, str]) -> str:
    if value in marks:
        return f"{marks[value]} {value}"
    return str(value) if isinstance(value, str) else numbers.digits(float(value), 4)
