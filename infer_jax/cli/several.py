"""Options that are repeated to compare systems or formats."""

from typing import Annotated

import typer

from infer_jax.catalog import list_systems
from infer_jax.cli import options as opt

Systems = Annotated[
    list[str],
    typer.Option(
        "--hardware",
        metavar="NAME|FILE",
        help="A shipped profile, or a .toml file; repeat to compare.",
        autocompletion=opt.begun(list_systems),
    ),
]
Quant = Annotated[
    list[str] | None, typer.Option(metavar="FORMAT", help=f"{opt.FORMATS}; repeat to compare.")
]
