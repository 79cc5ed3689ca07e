"""`infer-jax offload`: the best way to run a model that is larger than its GPU."""

from dataclasses import replace
from typing import Annotated

import typer

from infer_jax.cli import options as opt, parsers, show
from infer_jax.estimators.offloading.plan import SCHEDULES
from infer_jax.verbs import pictures
from infer_jax.verbs.offload import COMPRESSIONS, OffloadResult, offload as ask

Latency = Annotated[
    float | None,
    typer.Option(
        parser=parsers.duration,
        metavar="TIME",
        help="Limit of a block's time: 600s; bare is ms.",
    ),
]
Compress = Annotated[
    str,
    typer.Option(
        parser=parsers.one_of(COMPRESSIONS),
        metavar="WHAT",
        help="Store in 4 bits: none, weights, cache or both.",
    ),
]
Schedule = Annotated[
    str,
    typer.Option(
        parser=parsers.one_of(SCHEDULES),
        metavar="ORDER",
        help="row-by-row, zig-zag or diagonal.",
    ),
]
GpuAttention = Annotated[
    bool, typer.Option("--gpu-attention", help="Decode attends on the GPU, not on the CPU.")
]
NoOverlap = Annotated[
    bool, typer.Option("--no-overlap", help="Transfers wait for the computation.")
]
ValuesRead = Annotated[
    float,
    typer.Option(
        parser=parsers.real("a share above 0, of 1 at most", 0.0, 1.0),
        metavar="SHARE",
        help="Values that sparse attention reads; 1: dense.",
    ),
]
Gpus = Annotated[
    float, typer.Option(parser=parsers.count(1), metavar="N", help="Machines in a pipeline.")
]
Out = Annotated[
    str, typer.Option(metavar="FILE", help="Where the picture goes: .png, .svg, .pdf or .html.")
]
NoPicture = Annotated[bool, typer.Option("--no-picture", help="Draw nothing.")]


def offload(
    config: opt.Config,
    hardware: opt.HardwareName = "t4_host",
    isl: opt.Isl = 512,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 32,  # pyright: ignore[reportArgumentType]
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    latency: Latency = None,
    compress: Compress = "none",
    schedule: Schedule = "zig-zag",
    gpu_attention: GpuAttention = False,
    no_overlap: NoOverlap = False,
    values_read: ValuesRead = 1.0,
    gpus: Gpus = 1,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    out: Out = "offload.png",
    no_picture: NoPicture = False,
    set: opt.Set = None,
    as_json: opt.Json = False,
) -> None:
    """Which block, and where do weights, KV cache and hidden states live, for most tokens/s?"""
    options = {k: v for k, v in locals().items() if k not in ("out", "no_picture")}
    if no_picture:
        show.answer(ask, options)
        return
    pictures.check(out)

    def drawn(**given: object) -> OffloadResult:
        result = ask(**given)  # pyright: ignore[reportArgumentType]
        lacks = result.block is None or pictures.missing()
        if not lacks:
            result.plot(out)
        return replace(result, pictured=True, picture=None if lacks else out)

    show.answer(drawn, options)
