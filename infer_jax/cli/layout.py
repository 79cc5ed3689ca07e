"""`infer-jax layout`: which layout to serve a dense model with, by chips, batch and phase."""

from typing import Annotated

import typer

from infer_jax.cli import options as opt, show
from infer_jax.estimators.partitioning import LAYOUTS
from infer_jax.verbs.layout import layout as ask

Phase = Annotated[
    str, typer.Option(metavar="PHASE", help="prefill: the prompt; decode: one token.")
]
Layout = Annotated[
    str | None,
    typer.Option(
        "--layout", metavar="NAME", help=f"One of {', '.join(LAYOUTS)}; all where not given."
    ),
]


def layout(
    config: opt.Config,
    hardware: opt.HardwareName,
    total_gpus: opt.TotalGpus = None,
    batch: opt.Batch = 1,  # pyright: ignore[reportArgumentType]
    phase: Phase = "prefill",
    isl: opt.Isl = 2048,  # pyright: ignore[reportArgumentType]
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    layout: Layout = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    out: opt.Picture = None,
    set: opt.Set = None,
    as_json: opt.Json = False,
) -> None:
    """Which weight and attention layout is fastest on a slice, and where that changes."""
    show.pictured(ask, locals())
