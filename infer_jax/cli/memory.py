"""`infer-jax memory`: what one GPU holds, and how many tokens and requests its cache takes."""

import math
from typing import Annotated, Any

import typer

from infer_jax.cli import inputs, options as opt, parsers, show
from infer_jax.cli.estimate import check_split
from infer_jax.cli.runtime import busy, prepare
from infer_jax.compiling import once
from infer_jax.footprint import Engine, Memory, memory as held_by
from infer_jax.specs import UNBOUNDED, Plan

DEFAULTS = Engine.of()


def memory(
    config: opt.Config,
    hardware: opt.HardwareName,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    gpu_memory_utilization: Annotated[
        float,
        typer.Option(
            parser=parsers.real("a share above 0, of 1 at most", 0.0, 1.0),
            metavar="SHARE",
            help="Share of the memory the server may use.",
        ),
    ] = float(DEFAULTS.utilization),
    max_model_len: Annotated[
        float | None,
        typer.Option(
            parser=parsers.count(1),
            metavar="TOKENS",
            help="Longest request; the model's longest context where not given.",
        ),
    ] = None,
    max_num_batched_tokens: Annotated[
        float,
        typer.Option(parser=parsers.count(1), metavar="TOKENS", help="Tokens of one pass at most."),
    ] = int(DEFAULTS.batched_tokens),
    max_num_seqs: Annotated[
        float,
        typer.Option(parser=parsers.count(1), metavar="N", help="Sequences of one pass at most."),
    ] = int(DEFAULTS.sequences),
    block_size: Annotated[
        float,
        typer.Option(parser=parsers.count(1), metavar="TOKENS", help="Tokens of a cache block."),
    ] = int(DEFAULTS.block),
    batch: opt.Batch = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    as_json: opt.Json = False,
) -> None:
    """Does it fit: weights, KV cache, its tokens and requests, as a vLLM server prints them."""
    prepare()
    asked = inputs.given(config, hardware, quant, kv_dtype, None)
    arch = asked.model.architecture
    check_split(arch, tp or 1.0, pp or 1.0, ep or 1.0)
    longest = float(arch.max_positions)
    if max_model_len is None and longest >= UNBOUNDED:
        raise opt.refuse("--max-model-len", "missing", "the tokens of the longest request")
    context = max_model_len or longest
    engine = Engine.of(
        utilization=gpu_memory_utilization,
        context=context,
        batched_tokens=max_num_batched_tokens,
        sequences=max_num_seqs,
        block=block_size,
    )
    plan = Plan.of(tp=tp or 1.0, pp=pp or 1.0, ep=ep or 1.0)
    with busy("compiling and evaluating"):
        lengths = engine.with_(context=isl + osl)
        held, fits, one = once(_memory, arch, asked.hardware, plan, engine, lengths)
    report = {
        **asked.names,
        "tp": tp or 1.0,
        "pp": pp or 1.0,
        "ep": ep or 1.0,
        "gpu_memory_utilization": gpu_memory_utilization,
        "max_model_len_tokens": context,
        "fits": bool(fits),
        "slack_bytes": held.slack,
        "weights": {f"{kind}_bytes": x for kind, x in held.weights.items()},
        "weights_bytes": sum(held.weights.values()),
        "visible_bytes": held.visible,
        "budget_bytes": held.budget,
        "activations_bytes": held.activations,
        "reserve_bytes": held.reserve,
        "available_bytes": held.available,
        "kv_per_token_bytes": held.token_bytes,
        "kv_per_request_bytes": held.request_bytes,
        "kv_blocks": held.blocks,
        "kv_cache_size_tokens": held.tokens,
        "maximum_concurrency": held.concurrency,
        **_filled(held, one, batch, ep or 1.0, isl, osl),
    }
    notes = [
        "Per GPU; cache tokens and concurrency are of one group of tp x pp GPUs.",
        *[note for note in asked.notes if "USD/h" not in note],
    ]
    if max_model_len is not None and max_model_len > longest:
        notes.append(f"--max-model-len is beyond the model's longest context, {longest:.12g}.")
    if as_json:
        show.as_json({**report, "notes": notes})
        return
    _print(report, held, notes, "" if tp is not None else " (no --tp is given)")


def _memory(arch: Any, hardware: Any, plan: Any, engine: Any, lengths: Any) -> Any:
    held = held_by(arch, hardware, plan, engine)
    return held, held.fits, held_by(arch, hardware, plan, lengths).request_bytes


def _filled(
    held: Memory, each: Any, batch: float | None, groups: float, isl: float, osl: float
) -> dict[str, Any]:
    """What a batch fills: the cache of the requests of a group, as long as at their ends."""
    if batch is None:
        return {}
    cache = math.ceil(batch / groups) * float(each)
    used = float(held.budget - held.available) + cache
    return {
        "batch": batch,
        "isl_tokens": isl,
        "osl_tokens": osl,
        "batch_cache_bytes": cache,
        "used_bytes": used,
        "batch_fits": bool(used <= float(held.budget)),
    }


def _print(report: dict[str, Any], held: Memory, notes: list[str], why: str) -> None:
    split = f"tp {report['tp']:g}{why}, pp {report['pp']:g}, ep {report['ep']:g}"
    context = f"{report['max_model_len_tokens']:,.0f}"
    show.say(f"{report['model']} on {report['hardware']}, {split}", "")
    if report["fits"]:
        show.say(
            f"GPU KV cache size: {float(held.tokens):,.0f} tokens",
            f"Maximum concurrency for {context} tokens per request: {float(held.concurrency):.2f}x",
        )
    else:
        short = show.size(-float(held.slack))
        show.say(f"Does not fit: one request of {context} tokens is {short} a GPU short.")
    rows = [(f"weights: {kind}", x) for kind, x in held.weights.items() if float(x)]
    if "batch" in report:
        lengths = f"{report['isl_tokens']:g} + {report['osl_tokens']:g}"
        used, budget = report["used_bytes"], float(held.budget)
        word = "fill" if report["batch_fits"] else "do not fit:"
        show.say(
            f"{report['batch']:g} requests of {lengths} tokens {word} {show.size(used)} of "
            f"{show.size(budget)} ({used / budget:.0%})."
        )
    rows += [
        ("weights", report["weights_bytes"]),
        ("peak of activations", held.activations),
        ("reserve outside the cache", held.reserve),
        *(
            [
                (f"cache of {report['batch']:g} requests", report["batch_cache_bytes"]),
                (f"filled with {report['batch']:g} requests", report["used_bytes"]),
            ]
            if "batch" in report
            else []
        ),
        ("left for the cache", held.available),
        ("budget", held.budget),
        ("cache of one token", held.token_bytes),
        ("cache of one request", held.request_bytes),
        ("slack beside one request", held.slack),
    ]
    show.say("")
    show.table(
        (show.Column("one GPU", left=True), show.Column("size", "bytes"), show.Column("", "")),
        [[name, f"{float(x):,.0f}", show.size(x)] for name, x in rows],
    )
    show.notes(notes)
