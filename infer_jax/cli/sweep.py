"""`infer-jax sweep`: all points of a SPACE.toml, what it keeps of them, in a file."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import jax
import typer

from infer_jax.cli import options as opt, show
from infer_jax.cli.runtime import prepare
from infer_jax.sweeps.interrupt import Stopped
from infer_jax.verbs.sweep import explain, sweep as ask

SpaceFile = Annotated[Path, typer.Argument(metavar="SPACE.toml", help="Axes, and what to keep.")]
Out = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="The result, .parquet, .csv or .json; or its picture, .png, .svg, .pdf or .html; "
        "repeat for both.",
    ),
]
Precision = Annotated[
    str, typer.Option(help="float32, decided in float64 where it is close; or float64.")
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Where to carry on from; beside --out if not given."),
]
At = Annotated[
    str | None,
    typer.Option(metavar="INDEX", help="Sweep nothing: one point in full, by its index."),
]


def sweep(
    space: SpaceFile,
    out: Out = None,
    precision: Precision = "float32",
    checkpoint: Checkpoint = None,
    at: At = None,
    as_json: opt.Json = False,
) -> None:
    """Which of millions of configurations are worth choosing? The same command carries on."""
    options: dict[str, object] = {"space": space, "precision": precision, "as_json": as_json}
    _all_cores()
    if at is not None:
        show.answer(explain, {**options, "at": at}, every_device=True)
        return
    options |= {"out": out, "checkpoint": checkpoint}
    try:
        show.answer(ask, options, every_device=True)
    except Stopped as stopped:
        print(f"infer-jax: {stopped}", file=sys.stderr)
        raise typer.Exit(128 + stopped.number) from None


def _all_cores() -> None:
    """Each core of a CPU is a device."""
    prepare(every_device=True)
    with suppress(RuntimeError):  # devices are in use already, in a program that embeds this
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
