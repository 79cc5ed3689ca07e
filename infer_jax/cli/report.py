"""`infer-jax report`: one page that answers which system and plan to take, and why."""

from typing import Annotated

import typer

from infer_jax.cli import options as opt, several, show
from infer_jax.verbs.report import report as ask

Out = Annotated[
    str,
    typer.Option(
        "--out", metavar="FILE", help="The page, .html, or its first chart: .png, .svg, .pdf."
    ),
]


def report(
    config: opt.Config,
    hardware: several.Systems,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,  # pyright: ignore[reportArgumentType]
    total_gpus: opt.TotalGpus = None,
    quant: several.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    batch: opt.Batch = None,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    out: Out = "report.html",
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """One HTML page: which plan to take, its cost, its commands, why, and what is unknown."""
    show.answer(ask, locals())
