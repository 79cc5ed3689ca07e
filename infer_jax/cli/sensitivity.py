"""`infer-jax sensitivity`: what a per cent of each number is worth, here or on a frontier."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from infer_jax.cli import options as opt, parsers, show
from infer_jax.verbs import pictures
from infer_jax.verbs.sensitivity import MOST, TOP, sensitivity as ask
from infer_jax.verbs.sensitivity_result import SensitivityResult

Along = Annotated[
    int | None,
    typer.Option(
        parser=parsers.count(2, MOST, ": each is a column of the table"),
        metavar="N",
        help="At N points of the frontier, not at one.",
    ),
]
Top = Annotated[float, typer.Option(parser=parsers.count(1), metavar="N", help="Rows of a table.")]
Coefficients = Annotated[
    bool, typer.Option("--coefficients", help="Show those of the estimator, too.")
]
Out = Annotated[
    str | None, typer.Option(metavar="FILE", help="A tornado picture: .png, .svg, .pdf or .html.")
]


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
    along: Along = None,
    top: Top = TOP,
    coefficients: Coefficients = False,
    out: Out = None,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """What is 10 % more of anything worth: bandwidth, latency, heads, batch, the price?"""
    given = locals()
    if out is not None:
        pictures.check(out)
    del given["out"]
    show.answer(partial(_drawn, ask, out), given)


def _drawn(
    verb: Callable[..., SensitivityResult], out: str | None, **options: object
) -> SensitivityResult:
    """What the verb answers, with its picture in a file where one is asked for."""
    result = verb(**options)
    if out is None:
        return result
    result.plot(out)
    return replace(result, picture=out)
