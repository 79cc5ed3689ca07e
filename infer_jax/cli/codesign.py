"""`infer-jax codesign`: a model and a layout that hardware likes, from a start, by gradients."""

from pathlib import Path
from typing import Annotated

import typer

from infer_jax.cli import options as opt, parsers, show
from infer_jax.verbs.codesign import codesign as ask

SpecFile = Annotated[
    Path | None,
    typer.Argument(metavar="SPEC.toml", help="What may change, an objective and limits."),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="CONFIG", help="Without a file: the model to start from."),
]
Hardware = Annotated[
    str | None, typer.Option(metavar="NAME|FILE", help="Without a file: the system.")
]
Throughput = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a rate above 0", 0.0),
        metavar="TOK/S",
        help="Without a file: least output tokens/s per GPU; less is refused.",
    ),
]
Out = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FOLDER|FILE",
        help="A folder for config.json and design.json; or a picture, .png, .svg, .pdf or .html; "
        "repeat for both.",
    ),
]
Seed = Annotated[int | None, typer.Option(help="Of the random starts.")]


def codesign(
    spec: SpecFile = None,
    config: Model = None,
    hardware: Hardware = None,
    estimator: opt.EstimatorName = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    target_throughput: Throughput = None,
    out: Out = None,
    seed: Seed = None,
    as_json: opt.Json = False,
) -> None:
    """Which shape, split and batch would be better: least cost at a speed, within limits?"""
    show.answer(ask, locals())
