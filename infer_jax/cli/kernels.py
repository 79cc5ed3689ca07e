"""`infer-jax kernels`: a pass as a sum of kernels, each with its time, work and bound."""

from typing import Annotated, Any

import jax.numpy as jnp
import typer

from infer_jax.cli import options as opt, parsers, show
from infer_jax.cli.runtime import prepare
from infer_jax.compiling import once
from infer_jax.estimators import Limit
from infer_jax.estimators.estimate import decode_context
from infer_jax.estimators.kernels import Kernels, Serving
from infer_jax.results import numbers
from infer_jax.specs import ForwardPass, Workload
from infer_jax.verbs import inputs, limits
from infer_jax.verbs.progress import busy
from infer_jax.verbs.split import check_split

Yes = Annotated[bool, typer.Option("--deepep", help="Dispatch and combine by DeepEP.")]
Two = Annotated[bool, typer.Option("--two-batch", help="Two micro-batches that overlap.")]
SmShare = Annotated[
    float,
    typer.Option(
        parser=parsers.real("a share above 0, of 1 at most", 0.0, 1.0),
        metavar="SHARE",
        help="SMs that compute while prefill dispatches.",
    ),
]
PrefillTokens = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Tokens of a prefill pass a group."
    ),
]
Nodes = Annotated[
    float | None, typer.Option(parser=parsers.count(1), metavar="N", help="Nodes of the instance.")
]
Published = Annotated[
    bool, typer.Option("--as-published", help="The authors' assembly, with its quirks.")
]


def kernels(
    config: opt.Config,
    hardware: opt.HardwareName,
    tp: opt.Tp = 1,  # pyright: ignore[reportArgumentType]
    ep: opt.Ep = 1,  # pyright: ignore[reportArgumentType]
    nodes: Nodes = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    batch: opt.Batch = None,
    prefill_tokens: PrefillTokens = None,
    deepep: Yes = False,
    two_batch: Two = False,
    sm_share: SmShare = 1.0,
    price: opt.Price = None,
    as_published: Published = False,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """What is each kernel's time, FLOP, bytes and bound; TTFT, TPOT and tokens/s per GPU?"""
    prepare()
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set)
    arch = asked.model.architecture
    tp, ep = tp or 1.0, ep or 1.0
    check_split(arch, tp, 1.0, ep)
    name = "kernels.published" if as_published else "kernels"
    theory = inputs.estimator(name, asked)
    plan = Serving.of(
        tp=tp,
        ep=ep,
        nodes=nodes or 0.0,
        deepep=float(deepep),
        two_batch=float(two_batch),
        sm_share=sm_share,
        prefill_tokens=prefill_tokens or 0.0,
    )
    work = inputs.workload(isl, osl, 0.0, batch or ep)
    with busy("compiling and evaluating"):
        life, tokens, largest, profiles = once(_answer, theory, arch, asked.hardware, work, plan)
    limit = life.decode.limits["memory"]
    fits = bool(limit.need <= limit.capacity)
    chip = asked.hardware.chip
    report = {
        **asked.names,
        "estimator": name,
        "gpus": life.chips,
        "batch": float(work.batch),
        "feasible": bool(life.feasible),
        "ttft_ms": 1e3 * life.ttft,
        "tpot_ms": 1e3 * life.tpot,
        "prefill_tokens_per_s_per_gpu": tokens / life.ttft / life.chips,
        "decode_tokens_per_s_per_gpu": life.throughput,
        "largest_batch": largest,
        "memory": limits.limit_of("memory", limit),
        "balance_flop_per_byte": {
            f"{bits}_bit": rate / chip.memory_bandwidth
            for bits, rate in ((16, chip.flops_16), (8, chip.flops_8))
        },
        **{stage: rows(arch, profiles[stage]) for stage in ("prefill", "decode")},
    }
    notes = [
        *_notes(theory, work, plan, tokens),
        *([] if fits else [_too_large(limit)]),
        *asked.notes,
        *inputs.too_long(asked.model, work),
    ]
    if as_json:
        show.as_json({**report, "notes": notes})
        return
    _print(report, notes)


def _answer(theory: Kernels, arch: Any, hardware: Any, work: Workload, plan: Serving) -> Any:
    """The request's life, tokens of a prefill, the largest batch, kernels of both phases."""
    life = theory.estimate(arch, hardware, work, plan)
    prompts = _prompts(work, plan)
    passes = {
        "prefill": ForwardPass(
            sequences=prompts, new_tokens=work.isl, cached_tokens=0.0 * work.isl
        ),
        "decode": ForwardPass(
            sequences=work.batch,
            new_tokens=jnp.ones_like(work.batch),
            cached_tokens=decode_context(work),
        ),
    }
    return (
        life,
        prompts * work.isl,
        theory.largest_batch(arch, hardware, work, plan),
        {stage: profiled(theory, arch, hardware, f, plan) for stage, f in passes.items()},
    )


def profiled(theory: Kernels, arch: Any, hardware: Any, forward: ForwardPass, plan: Any) -> Any:
    """Each kernel of each block, with its intensity and whether arithmetic binds it."""
    return [
        {name: (k, k.intensity, k.compute_bound(hardware.chip)) for name, k in kernels.items()}
        for kernels in theory.profile(arch, hardware, forward, plan)
    ]


def _too_large(limit: Limit) -> str:
    """By how many bytes a batch does not fit."""
    short = float(limit.need - limit.capacity)
    return f"Not feasible: {limits.broken('memory', limit)}, {short:,.0f} bytes on each GPU."


def _prompts(work: Workload, plan: Serving) -> Any:
    """Prompts of a prefill pass in all groups, as ``Kernels.estimate`` has them."""
    each = jnp.maximum(plan.prefill_tokens / jnp.maximum(work.isl, 1.0), 1.0)
    return each * plan.ep * (1.0 + plan.two_batch)


def rows(arch: Any, profile: Any) -> list[dict[str, Any]]:
    """One row a kernel of ``profiled``; the last profile beside the blocks' is the head's."""
    counts = [float(b.count) for b in arch.blocks]
    counts += [1.0] * (len(profile) - len(counts))
    return [
        {
            "block": i if i < len(arch.blocks) else None,
            "layers": count,
            "kernel": name,
            "time_us": 1e6 * k.seconds,
            "flop": k.flops,
            "bytes": k.bytes,
            "intensity_flop_per_byte": intensity,
            "mfu": k.flops / k.peak / k.seconds if k.seconds > 0 else 0.0,
            "bound": "compute" if bool(computing) else "memory",
        }
        for i, (count, kernels) in enumerate(zip(counts, profile, strict=False))
        for name, (k, intensity, computing) in kernels.items()
        if k.seconds > 0
    ]


def _notes(theory: Kernels, work: Workload, plan: Serving, tokens: Any) -> list[str]:
    return [
        f"Prefill of {float(tokens / plan.ep):.6g} tokens in each of {float(plan.ep):g} groups of "
        f"{float(plan.tp):g} GPUs; decode of {float(work.batch):.6g} requests in all, at "
        f"{float(decode_context(work)):.6g} tokens of context.",
        "A kernel's row is one layer on one GPU for one micro-batch; its bound compares FLOP per "
        "byte with the chip's peak over its bandwidth.",
        "Efficiencies are fitted curves; their errors stand in the profile.",
        *(
            ["As published: units, reserves and quirks of the authors' program."]
            if theory.published
            else []
        ),
    ]


def _print(report: dict[str, Any], notes: list[str]) -> None:
    show.say(f"{report['model']} on {float(report['gpus']):g} {report['hardware']}", "")
    answers = (
        ("time to first token", "ttft_ms", "ms"),
        ("time per output token", "tpot_ms", "ms"),
        ("prefill per GPU", "prefill_tokens_per_s_per_gpu", "tokens/s"),
        ("decode per GPU", "decode_tokens_per_s_per_gpu", "tokens/s"),
        ("largest batch that fits", "largest_batch", "requests"),
    )
    show.table(
        (show.Column("answer", left=True), show.Column("value"), show.Column("unit", left=True)),
        [[title, numbers.digits(report[key], 4), unit] for title, key, unit in answers],
    )
    for stage in ("prefill", "decode"):
        show.say("")
        show.table(
            (
                show.Column(stage, left=True),
                show.Column("layers"),
                show.Column("time", "us"),
                show.Column("work", "GFLOP"),
                show.Column("moved", "MB"),
                show.Column("intensity", "FLOP/B"),
                show.Column("MFU", "%"),
                show.Column("bound", left=True),
            ),
            [
                [
                    row["kernel"],
                    numbers.digits(row["layers"]),
                    numbers.digits(row["time_us"]),
                    numbers.digits(row["flop"] / 1e9),
                    numbers.digits(row["bytes"] / 1e6),
                    numbers.digits(row["intensity_flop_per_byte"]),
                    numbers.digits(100 * row["mfu"]),
                    row["bound"],
                ]
                for row in report[stage]
            ],
        )
    balance = report["balance_flop_per_byte"]
    said = ", ".join(f"{float(x):.4g} at {k.split('_')[0]} bits" for k, x in balance.items())
    show.notes([f"Balance of the chip, FLOP per byte: {said}.", *notes])
