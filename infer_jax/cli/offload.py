"""`infer-jax offload`: the best way to run a model that is larger than its GPU."""

from typing import Annotated, Any

import numpy as np
import typer

from infer_jax.cli import options as opt, parsers, picture, show
from infer_jax.cli.runtime import prepare
from infer_jax.compiling import once
from infer_jax.estimators import JobEstimate, Offload, Offloading, make
from infer_jax.estimators.offloading.flags import rounded
from infer_jax.estimators.offloading.plan import SCHEDULES
from infer_jax.estimators.offloading.search import Grid, search
from infer_jax.results import numbers
from infer_jax.verbs import inputs, limits
from infer_jax.verbs.progress import busy

COMPRESSIONS = ("none", "weights", "cache", "both")
TIERS = ("gpu", "cpu", "disk")


def offload(
    config: opt.Config,
    hardware: opt.HardwareName = "t4_host",
    isl: opt.Isl = 512,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 32,  # pyright: ignore[reportArgumentType]
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    latency: Annotated[
        float | None,
        typer.Option(
            parser=parsers.duration,
            metavar="TIME",
            help="Limit of a block's time: 600s; bare is ms.",
        ),
    ] = None,
    compress: Annotated[
        str,
        typer.Option(
            parser=parsers.one_of(COMPRESSIONS),
            metavar="WHAT",
            help="Store in 4 bits: none, weights, cache or both.",
        ),
    ] = "none",
    schedule: Annotated[
        str,
        typer.Option(
            parser=parsers.one_of(SCHEDULES),
            metavar="ORDER",
            help="row-by-row, zig-zag or diagonal.",
        ),
    ] = "zig-zag",
    gpu_attention: Annotated[
        bool, typer.Option("--gpu-attention", help="Decode attends on the GPU, not on the CPU.")
    ] = False,
    no_overlap: Annotated[
        bool, typer.Option("--no-overlap", help="Transfers wait for the computation.")
    ] = False,
    values_read: Annotated[
        float,
        typer.Option(
            parser=parsers.real("a share above 0, of 1 at most", 0.0, 1.0),
            metavar="SHARE",
            help="Values that sparse attention reads; 1: dense.",
        ),
    ] = 1.0,
    gpus: Annotated[
        float, typer.Option(parser=parsers.count(1), metavar="N", help="Machines in a pipeline.")
    ] = 1,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    out: Annotated[
        str, typer.Option(metavar="FILE", help="Where the picture goes: .png, .svg or .pdf.")
    ] = "offload.png",
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw nothing.")] = False,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """Which block, and where do weights, KV cache and hidden states live, for most tokens/s?"""
    if not no_picture:
        picture.check(out)
    prepare()
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set)
    name = estimator or "offloading"
    theory = _theory(name, asked)
    arch = asked.model.architecture
    layers = sum(float(b.count) for b in arch.blocks)
    if gpus > layers:
        raise opt.refuse("--gpus", gpus, f"at most the {layers:g} layers")
    work = inputs.workload(isl, osl, 0.0)
    plan = Offload.of(
        pp=gpus,
        schedule=schedule,
        overlap=float(not no_overlap),
        cpu_attention=float(not gpu_attention),
        compress_weights=float(compress in ("weights", "both")),
        compress_cache=float(compress in ("cache", "both")),
        values_read=values_read,
    )
    with busy("compiling and searching"):
        grid = search(theory, arch, asked.hardware, work, plan)
    best = grid.best(latency)
    notes = [
        f"Estimator: {name}; {len(grid.time)} blocks, each with its exact best placement.",
        *asked.notes,
        *inputs.too_long(asked.model, work),
    ]
    report: dict[str, Any] = {
        **asked.names, "estimator": name, "isl_tokens": isl, "osl_tokens": osl, "gpus": gpus,
        "blocks": len(grid.time), "feasible": best is not None,
    }  # fmt: skip
    if best is None:
        report["why"] = why = _why(grid, latency)
        if as_json:
            show.as_json({**report, "notes": notes})
        else:
            show.say(f"{asked.model.name} on {asked.system.name}", "", why)
            show.notes(notes)
        return
    plan = plan.replace(
        gpu_batch=np.asarray(grid.gpu_batch[best]), batches=np.asarray(grid.batches[best])
    )
    with busy("pricing the best block"):
        life: JobEstimate = once(_life, theory, arch, asked.hardware, work, plan)
        placed = plan.replace(
            **{
                f"{kind}_{tier}": life.decode.layout[f"{kind}_{tier}"]
                for kind in ("weights", "cache", "hidden")
                for tier in ("gpu", "cpu")
            }
        )
        flags = rounded(theory, arch, asked.hardware, work, placed, float(life.throughput))
    report |= _answer(life, flags, grid)
    if not no_picture:
        report["picture"], said = _draw(grid, out, asked.model.name, asked.system.name)
        notes.append(said)
    if as_json:
        show.as_json({**report, "notes": notes})
        return
    _print(report, life, notes)


def _life(theory: Offloading, arch: Any, hardware: Any, work: Any, plan: Offload) -> JobEstimate:
    return theory.estimate(arch, hardware, work, plan)


def _theory(name: str, asked: inputs.Given) -> Offloading:
    known = ("offloading", "offloading.paper", "offloading.released")
    if name not in known:
        raise opt.refuse("--estimator", name, ", ".join(known))
    return make(name, asked.system.coefficients)


def _why(grid: Grid, latency: float | None) -> str:
    """Why no block is left."""
    if not grid.feasible.any():
        return f"Nothing fits: {grid.why}."
    least = float(grid.time[grid.feasible].min())
    return f"No block takes at most {latency:g} s: the fastest takes {least:.4g} s."


def _answer(life: JobEstimate, flags: Any, grid: Grid) -> dict[str, Any]:
    layout = life.decode.layout
    front = grid.frontier()
    return {
        "gpu_batch": layout["gpu_batch"],
        "batches": layout["batches"],
        "placement": {
            kind: {tier: layout[f"{kind}_{tier}"] for tier in TIERS}
            for kind in ("weights", "cache", "hidden")
        },
        "throughput_tokens_per_s": life.throughput * life.chips,
        "decode_throughput_tokens_per_s": life.decode_throughput * life.chips,
        "latency_s": life.time,
        "prefill_s": life.ttft,
        "step_s": life.tpot,
        "tokens_per_usd": 1e6 / life.cost,
        "terms": {
            phase: {f"{k}_s": x for k, x in getattr(life, phase).terms.items()}
            for phase in ("prefill", "decode")
        },
        "peaks": {
            phase: {k: limits.limit_of(k, x) for k, x in getattr(life, phase).limits.items()}
            for phase in ("prefill", "decode")
        },
        "flexgen": None
        if flags is None
        else {
            "flags": flags.text,
            "weights_settle_at": dict(zip(TIERS, flags.weights, strict=True)),
            "throughput_tokens_per_s": flags.throughput * life.chips,
            "lost_to_rounding": flags.loss,
        },
        "frontier": [
            {"latency_s": grid.time[i], "throughput_tokens_per_s": grid.throughput[i],
             "gpu_batch": grid.gpu_batch[i], "batches": grid.batches[i]}
            for i in front
        ],
    }  # fmt: skip


def _draw(grid: Grid, out: str, model: str, system: str) -> tuple[str | None, str]:
    """Save the frontier: (its path or None, a sentence about it)."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        return None, "No picture: matplotlib is not installed (pip install 'infer_jax[plots]')."
    from infer_jax.plots.tradeoff import plot_tradeoff

    front = grid.frontier()
    curve = {"": {"best blocks": (grid.time[front], grid.throughput[front])}}
    plot_tradeoff(curve, out, title=f"{model} on {system}".replace("$", r"\$"))
    return out, f"Picture: {out}."


def _print(report: dict[str, Any], life: JobEstimate, notes: list[str]) -> None:
    show.say(f"{report['model']} on {report['gpus']:g} {report['hardware']}", "")
    show.table(
        (show.Column("answer", left=True), show.Column("value"), show.Column("unit", left=True)),
        [
            ["block", f"{report['gpu_batch']:g} x {report['batches']:g}", "samples"],
            ["throughput", numbers.digits(report["throughput_tokens_per_s"], 4), "tokens/s"],
            ["of decoding alone", numbers.digits(report["decode_throughput_tokens_per_s"], 4),
             "tokens/s"],
            ["latency of the block", numbers.digits(life.time, 4), "s"],
            ["its prefill", numbers.digits(life.ttft, 4), "s"],
            ["a token of each sample", numbers.digits(life.tpot, 4), "s"],
            ["tokens per dollar", numbers.digits(report["tokens_per_usd"], 4), "tokens/$"],
        ],
    )  # fmt: skip
    show.say("")
    show.table(
        (show.Column("kept on", left=True), *(show.Column(t, "%") for t in ("GPU", "CPU", "disk"))),
        [
            [kind, *(numbers.digits(100 * float(at[tier])) for tier in TIERS)]
            for kind, at in report["placement"].items()
        ],
    )
    show.say("")
    show.table(
        (show.Column("spent on", left=True), show.Column("prefill", "s"),
         show.Column("one token", "s")),
        [
            [k.replace("_", " "), numbers.digits(life.prefill.terms[k]),
             numbers.digits(life.decode.terms[k])]
            for k in life.decode.terms
        ],
    )  # fmt: skip
    show.say("")
    rows = []
    for k, limit in life.decode.limits.items():
        if k.endswith("memory"):
            sizes = [life.prefill.limits[k].need, limit.need, limit.capacity]
            rows.append([k, *(numbers.size(x) for x in sizes)])
    show.table(
        (show.Column("peak of", left=True), show.Column("prefill"), show.Column("decode"),
         show.Column("capacity")),
        rows,
    )  # fmt: skip
    flags = report["flexgen"]
    if flags is None:
        show.say("", "No rounding to whole tensors and percentages fits this block.")
    else:
        lost = 100 * flags["lost_to_rounding"]
        show.say("", f"FlexGen: {flags['flags']}", f"Rounding to whole tensors loses {lost:.2g} %.")
    show.notes(notes)
