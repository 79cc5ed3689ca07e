"""`infer-jax layout`: which layout to serve a dense model with, by chips, batch and phase."""

from typing import Annotated, Any

import jax
import numpy as np
import typer

from infer_jax.cli import options as opt, show
from infer_jax.cli.runtime import prepare
from infer_jax.compiling import once
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator, Slice
from infer_jax.estimators.partitioning import (
    ATTENTION,
    LAYOUTS,
    TRIED,
    arrangements,
    factorisations,
)
from infer_jax.results import numbers
from infer_jax.specs import Architecture, Dense, ForwardPass, Torus
from infer_jax.verbs import inputs
from infer_jax.verbs.progress import busy

PHASES = ("prefill", "decode")
BATCHES = tuple(2.0**i for i in range(11))
STATIONARY = LAYOUTS[:2]  # layouts of decode: the paper gathers weights in prefill alone


def layout(
    config: opt.Config,
    hardware: opt.HardwareName,
    total_gpus: opt.TotalGpus = None,
    batch: opt.Batch = 1,  # pyright: ignore[reportArgumentType]
    phase: Annotated[
        str, typer.Option(metavar="PHASE", help="prefill: the prompt; decode: one token.")
    ] = "prefill",
    isl: opt.Isl = 2048,  # pyright: ignore[reportArgumentType]
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    weights: Annotated[
        str | None,
        typer.Option(
            "--layout", metavar="NAME", help=f"One of {', '.join(LAYOUTS)}; all where not given."
        ),
    ] = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """Which weight and attention layout is fastest on a slice, and where that changes."""
    prepare()
    if phase not in PHASES:
        raise opt.refuse("--phase", phase, " or ".join(PHASES))
    if total_gpus is None:
        raise opt.ask("--total-gpus", "How many chips has one instance?", "--total-gpus")
    if batch is None:
        raise opt.refuse("--batch", "missing", "sequences of one pass")
    codes = _codes(weights, phase)
    asked = inputs.given(config, hardware, quant, kv_dtype, None, set)
    arch = asked.model.architecture
    _dense(arch)
    if phase == "prefill" and prefix >= isl:
        raise opt.refuse("--prefix", prefix, f"below --isl, {isl:.12g} tokens")
    new, cached = (isl - prefix, prefix) if phase == "prefill" else (1.0, isl)
    theory = inputs.estimator("partitioning.planned", asked)
    network = asked.hardware.network
    axes = int(network.axes) if isinstance(network, Torus) else None

    sizes = _sizes(int(total_gpus), axes)
    wanted = [(total_gpus, b) for b in sorted({*BATCHES, batch})]
    wanted += [(float(n), batch) for n in sizes if n != total_gpus]
    rows = [
        (chips, sequences, *shape, code, by)
        for chips, sequences in wanted
        for code in codes
        for shape in _axes(int(chips), axes)
        for by in (1.0, 0.0)
    ]
    table = np.asarray(rows)
    with busy("compiling and evaluating"):
        answer = once(
            _evaluate, theory, arch, asked.hardware, table, new, cached, points=len(table)
        )
    here = [(c, b) == (total_gpus, batch) for c, b in table[:, :2]]
    found = _best(table, answer, np.flatnonzero(here))
    report = {
        **asked.names,
        "phase": phase,
        "gpus": total_gpus,
        "batch": batch,
        "new_tokens": new,
        "cached_tokens": cached,
        "layouts": found,
        "fastest": next((row for row in found if row["feasible"]), None),
        "by_batch": _changes(table, answer, 1, total_gpus, batch),
        "by_gpus": _changes(table, answer, 0, total_gpus, batch),
    }
    _print(report, _notes(asked, axes is not None), as_json)


def _codes(name: str | None, phase: str) -> list[float]:
    """The codes of the layouts to try, the first of equals first.

    Raises:
        InputError: no such layout, or one that the phase cannot use.
    """
    usable = LAYOUTS if phase == "prefill" else STATIONARY
    if name is not None and name not in usable:
        allowed = f"in {phase} {', '.join(usable)}"
        raise opt.refuse("--layout", name, allowed if name in LAYOUTS else ", ".join(LAYOUTS))
    wanted = usable if name is None else (name,)
    return [code for code in TRIED if LAYOUTS[int(code)] in wanted]


def _dense(arch: Architecture) -> None:
    if not all(isinstance(b.feedforward, Dense) and b.attention for b in arch.blocks):
        allowed = "a dense model: every layer attention and a feedforward without experts"
        raise InputError("infer-jax layout", "CONFIG", "not dense", allowed)


def _sizes(chips: int, axes: int | None) -> list[int]:
    """Numbers of chips to compare: doublings around ``chips``, where there are such slices."""
    near = [chips * 2**i // 8 for i in range(6) if chips * 2**i % 8 == 0]
    return [n for n in near if n == chips or axes is None or _exists(n, axes)]


def _exists(chips: int, axes: int) -> bool:
    try:
        return bool(factorisations(chips, axes))
    except InputError:
        return False


def _axes(chips: int, axes: int | None) -> tuple[tuple[float, float, float], ...]:
    """All x, y, z that the slices of ``chips`` chips give; of GPUs, every divisor as x."""
    if axes is not None:
        shapes = factorisations(chips, axes)
        return tuple(dict.fromkeys(a for shape in shapes for a in arrangements(shape)))
    return tuple((float(d), 1.0, chips / d) for d in range(1, chips + 1) if chips % d == 0)


def _evaluate(
    theory: Estimator, arch: Any, hardware: Any, table: Any, new: Any, cached: Any
) -> Any:
    def one(row: Any) -> Any:
        _, batch, x, y, z, code, by = row
        plan = Slice.of().replace(x=x, y=y, z=z, layout=code, attention=by)
        forward = ForwardPass(
            sequences=batch, new_tokens=new + 0.0 * batch, cached_tokens=cached + 0.0 * batch
        )
        found = theory.step(arch, hardware, forward, plan)
        return found, found.feasible, found.shortfall

    return jax.vmap(one)(table)


def _best(table: np.ndarray, answer: Any, chosen: np.ndarray) -> list[dict[str, Any]]:
    """The best axes of every layout, the fastest feasible layout first."""
    phase, feasible, shortfall = answer
    order = chosen[np.lexsort((phase.time[chosen], shortfall[chosen]))]
    rows: dict[tuple[float, float], dict[str, Any]] = {}
    for i in order:
        _, _, x, y, z, code, by = table[i]
        if (code, by) in rows:
            continue
        broken = [n for n, limit in phase.limits.items() if limit.need[i] > limit.capacity[i]]
        rows[code, by] = {
            "layout": LAYOUTS[int(code)],
            "attention": ATTENTION[int(by)],
            "x": x,
            "y": y,
            "z": z,
            "time_ms": 1e3 * phase.time[i],
            "mfu": phase.mfu[i],
            "terms": {f"{name}_ms": 1e3 * t[i] for name, t in phase.terms.items()},
            "memory_bytes": phase.limits["memory"].need[i],
            "memory_capacity_bytes": phase.limits["memory"].capacity[i],
            "feasible": bool(feasible[i]),
            "breaks": broken,
        }
    return list(rows.values())


def _changes(
    table: np.ndarray, answer: Any, column: int, chips: float, batch: float
) -> list[dict[str, Any]]:
    """The fastest layout at every batch (column 1) or chip count (column 0), runs merged."""
    held = table[:, 1 - column] == (chips, batch)[1 - column]
    runs: list[dict[str, Any]] = []
    for value in np.unique(table[held, column]):
        rows = _best(table, answer, np.flatnonzero(held & (table[:, column] == value)))
        first = rows[0]
        fits = first["feasible"]
        name = f"{first['layout']}, attention by {first['attention']}" if fits else "nothing fits"
        if runs and runs[-1]["fastest"] == name:
            runs[-1]["to"], runs[-1]["time_ms"] = value, first["time_ms"]
        else:
            runs.append({"from": value, "to": value, "fastest": name, "time_ms": first["time_ms"]})
    return runs


def _notes(asked: inputs.Given, torus: bool) -> list[str]:
    fitted = asked.system.coefficients.get("partitioning")
    said = asked.system.sources.get("partitioning.memory_cap", "")
    return [
        f"Coefficients: {said.split(' (')[0]}."
        if fitted
        else "No coefficients of this system: data-sheet rates, perfect overlap, no latency.",
        "x cuts the model width, y and z the hidden width; ws: weights stay, wg: gathered.",
        *([] if torus else ["GPUs have no torus: x is any divisor of their number."]),
        *[note for note in asked.notes if not note.startswith("Price")],
    ]


def _print(report: dict[str, Any], notes: list[str], as_json: bool) -> None:
    if as_json:
        show.as_json({**report, "notes": notes})
        return
    tokens = f"{report['new_tokens']:g} new tokens over {report['cached_tokens']:g} cached"
    show.say(
        f"{report['model']} on {report['gpus']:g} of {report['hardware']}: {report['phase']} of "
        f"{report['batch']:g} sequences, {tokens}",
        "",
    )
    names = list(report["layouts"][0]["terms"])
    columns = [
        show.Column("layout", left=True),
        show.Column("attention", left=True),
        show.Column("x, y, z"),
        show.Column("time", "ms"),
        *(show.Column(name.removesuffix("_ms"), "ms") for name in names),
        show.Column("MFU", "%"),
        show.Column("memory", "per chip"),
        show.Column("fits", left=True),
    ]
    cells = [
        [
            row["layout"],
            row["attention"],
            ", ".join(numbers.digits(row[axis]) for axis in "xyz"),
            numbers.digits(row["time_ms"]),
            *(numbers.digits(row["terms"][name]) for name in names),
            numbers.digits(100 * row["mfu"]),
            numbers.size(row["memory_bytes"]),
            "yes" if row["feasible"] else f"no: {', '.join(row['breaks'])}",
        ]
        for row in report["layouts"]
    ]
    show.table(columns, cells, 0 if report["fastest"] else -1)
    for kind, runs in (("batch", report["by_batch"]), ("GPUs", report["by_gpus"])):
        show.say("", f"Fastest by {kind}:")
        for run in runs:
            span = f"{run['from']:g}" + (f" to {run['to']:g}" if run["to"] > run["from"] else "")
            show.say(f"  {span}: {run['fastest']}")
    show.notes(notes)
