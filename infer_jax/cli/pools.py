"""Options of two pools, which prefill and decode."""

from typing import Annotated

import typer

from infer_jax.cli import parsers

PrefillTp = Annotated[
    float | None,
    typer.Option(parser=parsers.count(1), metavar="N", help="GPUs of an instance that prefills."),
]
PrefillInstances = Annotated[
    float | None,
    typer.Option(parser=parsers.count(1), metavar="N", help="Instances that prefill; or 1."),
]
DecodeTp = Annotated[
    float | None,
    typer.Option(parser=parsers.count(1), metavar="N", help="GPUs of an instance that decodes."),
]
DecodeInstances = Annotated[
    float | None,
    typer.Option(parser=parsers.count(1), metavar="N", help="Instances that decode; or 1."),
]
