"""`infer-jax calibrate`: measured runs of a server become a profile that every verb accepts."""

from typing import Annotated

import typer

from infer_jax.cli import options as opt, parsers, runs, show
from infer_jax.verbs.calibrate import calibrate as ask

Model = Annotated[
    str, typer.Option("--config", metavar="CONFIG", help="The model that was served.")
]
Out = Annotated[
    list[str],
    typer.Option(
        "--out",
        metavar="FILE",
        help="Profile to write, .toml; or a picture, .png, .svg, .pdf or .html; repeat for both.",
    ),
]
Parameter = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        metavar="NAME",
        help="Fit these alone, such as decode_factor or vllm.layer_gap; repeat for several.",
    ),
]
Prompts = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1),
        metavar="N",
        help="Fit the first N requests of each replayed run; the others are predicted.",
    ),
]


def calibrate(
    files: runs.Files,
    config: Model,
    hardware: opt.HardwareName,
    out: Out,
    engine: runs.Engine = None,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: runs.Dp = None,
    isl: runs.Isl = None,
    osl: runs.Osl = None,
    concurrency: opt.Concurrency = None,
    request_rate: runs.Rate = None,
    max_num_seqs: runs.PassSequences = None,
    max_num_batched_tokens: runs.PassTokens = None,
    prompts: Prompts = None,
    sidecar: runs.Sidecar = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    parameter: Parameter = None,
    as_json: opt.Json = False,
) -> None:
    """What do measured runs say of a server? Fits it, with intervals, and writes a profile."""
    show.answer(ask, locals())
