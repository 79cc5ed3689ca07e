"""`infer-jax sensitivity`: what a per cent of each number is worth, here or on a frontier."""

import dataclasses
import re
from typing import Annotated, Any

import numpy as np
import typer

from infer_jax.cli import (
    options as opt,
    parsers,
    picture,
    show,
)
from infer_jax.cli.runtime import prepare
from infer_jax.design.sensitivity import (
    Elasticity,
    analyser,
    changed,
    known_outputs,
    outputs,
    what_if,
)
from infer_jax.estimators import Economics
from infer_jax.plots.names import named
from infer_jax.specs import Architecture, Experts, Hierarchy, Plan, leaves
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import changes, frontier_points as points, inputs
from infer_jax.verbs.progress import busy
from infer_jax.verbs.split import plan_of

DARK = "J/Mtok is unknown: the profile of {} has no power."
AXES = ("tpot", "cost")  # of the frontier
TABLE = 12  # rows of each output's table
BARS = 12  # of each output in the picture


def sensitivity(
    config: opt.Config,
    hardware: opt.HardwareName,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    total_gpus: opt.TotalGpus = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    batch: opt.Batch = None,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    along: Annotated[
        int | None,
        typer.Option(
            parser=parsers.count(2, 1000, ": each is a column of the table"),
            metavar="N",
            help="At N points of the frontier, not at one.",
        ),
    ] = None,
    top: Annotated[
        float, typer.Option(parser=parsers.count(1), metavar="N", help="Rows of a table.")
    ] = TABLE,
    coefficients: Annotated[
        bool, typer.Option("--coefficients", help="Show those of the estimator, too.")
    ] = False,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="A tornado picture: .png, .svg or .pdf.")
    ] = None,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """What is 10 % more of anything worth: bandwidth, latency, heads, batch, the price?"""
    prepare()
    if out is not None:
        picture.check(out)
    heads = (*changes.HEADS, "workload", "plan")
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set, heads)
    arch = asked.model.architecture
    if along is None:
        plan, name = plan_of(arch, tp, pp, ep, 1.0, total_gpus, estimator)
    else:
        if any(x is not None for x in (tp, pp, ep, total_gpus, batch)):
            raise opt.refuse("--along", along, "no --tp, --pp, --ep, --total-gpus or --batch")
        plan, name = Plan.of(), estimator or inputs.SEARCHING
    theory = inputs.estimator(name, asked)
    trusted = inputs.trust(name, theory, asked)
    work = inputs.workload(isl, osl, prefix, batch or 1.0)
    point = Point(theory, arch, asked.hardware, work, plan)
    point = changed(point, asked.changes.values("workload", "plan"), "--set")
    with busy("compiling and evaluating"):
        rows = [point] if along is None else _frontier(point, asked, int(along))
        analyse = analyser(outputs, point)
        found = [analyse(row) for row in rows]
        ifs = what_if(outputs, rows[0], _questions(point)) if along is None else {}
    report = {
        **asked.names,
        "estimator": name,
        "trust": trusted.fields(),
        "points": [_report(row, slopes) for row, slopes in zip(rows, found, strict=True)],
        "what_if": ifs,
    }
    shown = [worth(slopes, arch, coefficients) for slopes in found]
    notes = [
        "Everything else is held, the layout found by a search included.",
        "Slope: the elasticity e; 1 % more of the number gives e % more of the output. +10 % and "
        "x2 are evaluated, so they tell how far it carries; '-' where a bound is passed.",
        "Below and above: slopes at the two sides, shown where a maximum or a whole number makes "
        "them differ; a step is a jump of the output at the point itself.",
        "J/Mtok is the estimator's own where it tells energy, else board power x chips x time, an "
        "upper bound.",
        "The paths that --set takes are in --json"
        + ("." if coefficients else ", as are the estimator's coefficients (--coefficients)."),
        *([] if float(point.hardware.power) else [DARK.format(asked.system.name)]),
        *asked.notes,
    ]
    if out is not None:
        notes.append(f"Drawn to {_draw(out, report, worth(found[0], arch))}.")
    if as_json:
        show.as_json({**report, "notes": notes})
        return
    show.say(f"{report['model']} on {report['hardware']}", trusted.says)
    if along is None:
        _print(shown[0], int(top))
        _print_ifs(ifs)
    else:
        _print_along(rows, shown, int(top))
    show.notes(notes)


def worth(
    slopes: list[Elasticity], arch: Architecture, coefficients: bool = False
) -> list[Elasticity]:
    """The numbers that this model, its hardware or its plan has, and an estimator's if asked."""
    mixed = any(isinstance(block.feedforward, Experts) for block in arch.blocks)
    left_out = () if mixed else ("plan.ep", "plan.attention_dp")
    return [
        e
        for e in slopes
        if e.path not in left_out and (coefficients or not e.path.startswith("estimator."))
    ]


def _questions(point: Point) -> dict[str, Any]:
    """What is asked besides: half the weights' bytes, a rack-wide fast domain, shorter launches."""
    asked: dict[str, Any] = {
        "weights at half the bytes": {f"arch.{path}.bytes": _half for path in _formats(point.arch)}
    }
    if isinstance(point.hardware.network, Hierarchy):
        asked["fast domain of 72 chips"] = {"hardware.network.domain": 72.0}
    if isinstance(point.estimator, Economics):
        asked["kernel launch half as long"] = {"estimator.launch": _half}
    asked["1.5 times the memory bandwidth"] = {"hardware.chip.memory_bandwidth": lambda x: 1.5 * x}
    return asked


def _half(x: float) -> float:
    return 0.5 * x


def _formats(arch: Any) -> list[str]:
    """Paths of the weights' formats, those of all blocks as one."""
    paths = [path for path, _, _ in leaves(arch) if path.endswith("weights.bytes")]
    return sorted({re.sub(r"\.\d+\.", ".*.", p).removesuffix(".bytes") for p in paths})


def _frontier(point: Point, asked: inputs.Given, count: int) -> list[Point]:
    """Points of the frontier of speed and cost of what was overridden, evenly spaced in speed."""
    theory = point.estimator
    if not theory.searches:
        raise opt.refuse("--along", count, "an estimator that searches the split: economics")
    model = dataclasses.replace(asked.model, architecture=point.arch)
    given = dataclasses.replace(asked, model=model, hardware=point.hardware)
    chips, batches = points.whole_axes(given, None)
    layouts = points.searched_layouts(chips)
    front = points.evaluate(theory, given, point.workload, layouts, batches).frontier()
    if not len(front):
        raise opt.refuse("--along", count, "a model that fits on some number of these chips")
    wanted = np.linspace(front.speed[-1], front.speed[0], count)
    at = dict.fromkeys(int(np.argmin(np.abs(front.speed - x))) for x in wanted)
    return [
        point._replace(
            workload=point.workload.with_(batch=front.batch[i]), plan=Plan.of(tp=front.chips[i])
        )
        for i in at
    ]


def _report(point: Point, slopes: list[Elasticity]) -> dict[str, Any]:
    return {
        "gpus": point.plan.tp * point.plan.pp * point.plan.ep,
        "batch": point.workload.batch,
        "elasticities": [vars(e) | {"kinked": e.kinked} for e in slopes],
    }


def _print(slopes: list[Elasticity], top: int) -> None:
    columns = [
        show.Column("number", left=True),
        show.Column("value"),
        show.Column("slope"),
        show.Column("below, above"),
        show.Column("step", "%"),
        show.Column("+10 %", "%"),
        show.Column("x2", "%"),
    ]
    seen = {e.output for e in slopes}
    for output in (x for x in known_outputs().values() if x.name in seen):
        rows = [e for e in slopes if e.output == output.name][:top]
        unit = "" if output.per or output.unit == "1" else f" ({output.unit})"
        show.say("", f"{output.short}{unit}")
        show.table(
            columns,
            [
                [
                    named(e.path),
                    f"{e.value:.4g}",
                    f"{e.slope:+.3f}",
                    f"{e.below:+.2f}, {e.above:+.2f}" if e.kinked else "",
                    f"{100 * e.jump:+.1f}" if abs(e.jump) > 1e-4 else "",
                    _change(e.tenth),
                    _change(e.double),
                ]
                for e in rows
            ],
        )


def _change(x: float) -> str:
    return "-" if np.isnan(x) else f"{100 * x:+.2f}"


def _print_ifs(ifs: dict[str, dict[str, float]]) -> None:
    if not ifs:
        return
    names, heads = list(next(iter(ifs.values()))), known_outputs()
    show.say("", "What if")
    show.table(
        (show.Column("change", left=True), *(show.Column(heads[n].short, "%") for n in names)),
        [[label, *(f"{100 * change[n]:+.1f}" for n in names)] for label, change in ifs.items()],
    )


def _print_along(rows: list[Point], found: list[list[Elasticity]], top: int) -> None:
    for name in AXES:
        at = [{e.path: e for e in slopes if e.output == name} for slopes in found]
        weights = {
            p: max(t[p].weight for t in at if p in t)
            for p in dict.fromkeys(p for t in at for p in t)
        }
        paths = sorted(weights, key=lambda p: -weights[p])[:top]
        show.say(
            "", f"Elasticities of {known_outputs()[name].short} along the frontier, cheapest first"
        )
        heads = [
            show.Column(f"{float(r.plan.tp):.3g} GPUs", f"batch {float(r.workload.batch):.3g}")
            for r in rows
        ]
        show.table(
            (show.Column("number", left=True), *heads),
            [[named(p), *(f"{t[p].slope:+.3f}" if p in t else "0" for t in at)] for p in paths],
        )


def _draw(out: str, report: dict[str, Any], slopes: list[Elasticity]) -> str:
    from infer_jax.plots.tornado import Bar, plot_tornado

    panels, seen = {}, {e.output for e in slopes}
    for output in known_outputs().values():
        if output.name in seen and not output.drawn:
            rows = [e for e in slopes if e.output == output.name and e.weight > 1e-3][:BARS]
            panels[output.short] = [
                Bar(named(e.path), e.slope, 100 * e.tenth, e.kinked) for e in rows
            ]
    title = f"{report['model']} on {report['hardware']}: 10 % more of each number"
    caption = (
        "Bars: 10 times the elasticity at the point; diamonds: 10 % more, evaluated; hatched: a "
        f"maximum or a whole number at the point itself. Estimator: {report['estimator']}, "
        "whose own coefficients are left out."
    )
    plot_tornado(panels, out, title=title, caption=caption)
    return out
