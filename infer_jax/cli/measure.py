"""`infer-jax measure`: time this machine's own kernels and write them down as a profile."""

from pathlib import Path
from typing import Annotated

import typer

from infer_jax.cli import options as opt, show
from infer_jax.verbs.measure import measure as ask

Out = Annotated[Path, typer.Option(metavar="FILE.toml", help="Profile to write.")]
Base = Annotated[
    str | None,
    typer.Option(metavar="HARDWARE", help="Profile with this device's data sheet."),
]
Toy = Annotated[bool, typer.Option("--toy", help="Small shapes: a minute on a CPU.")]


def measure(
    out: Out,
    base: Base = None,
    toy: Toy = False,
    price: opt.Price = None,
    as_json: opt.Json = False,
) -> None:
    """How fast are this device's kernels? Times them through JAX, fits curves, writes a profile."""
    show.answer(ask, locals(), every_device=True)
