"""`infer-jax compare`: two estimators, or a prediction and what was measured, term by term."""

from pathlib import Path
from typing import Annotated

import typer

from infer_jax.cli import options as opt, runs, several, show
from infer_jax.verbs.compare import compare as ask

Estimators = Annotated[
    list[str] | None,
    typer.Option(
        "--estimator",
        metavar="NAME",
        help="Two of them, one to set against serving; alone, with --measured or several systems.",
    ),
]
Measured = Annotated[
    list[Path] | None,
    typer.Option("--measured", metavar="FILE", help="Measured runs; repeat for several files."),
]


def compare(
    config: opt.Config,
    hardware: several.Systems,
    estimator: Estimators = None,
    measured: Measured = None,
    engine: runs.Engine = None,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: runs.Dp = None,
    total_gpus: opt.TotalGpus = None,
    isl: runs.Isl = None,
    osl: runs.Osl = None,
    batch: opt.Batch = None,
    concurrency: opt.Concurrency = None,
    request_rate: runs.Rate = None,
    sidecar: runs.Sidecar = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    price: opt.Price = None,
    out: opt.Picture = None,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """Where do systems, estimators, or prediction and measurement differ, term by term?"""
    show.pictured(ask, locals())
