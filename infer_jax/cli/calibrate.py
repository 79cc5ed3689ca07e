"""`infer-jax calibrate`: measured runs of a server become a profile that every verb accepts."""

from pathlib import Path
from typing import Annotated

import typer

from infer_jax.cli import options as opt, parsers, runs, show
from infer_jax.verbs.calibrate import calibrate as ask

Model = Annotated[
    str, typer.Option("--config", metavar="CONFIG", help="The model that was served.")
]
Out = Annotated[Path, typer.Option("--out", metavar="FILE.toml", help="Profile to write.")]
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
Picture = Annotated[
    str | None,
    typer.Option("--picture", metavar="FILE", help="Parity picture; beside --out if not given."),
]
NoPicture = Annotated[bool, typer.Option("--no-picture", help="Write no picture.")]


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
    picture: Picture = None,
    no_picture: NoPicture = False,
    as_json: opt.Json = False,
) -> None:
    """What do measured runs say of a server? Fits it, with intervals, and writes a profile."""
    options = locals()
    del options["no_picture"]
    options["picture"] = None if no_picture else picture or str(out.with_suffix(".png"))
    show.answer(ask, options)
