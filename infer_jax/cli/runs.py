"""Options that describe measured runs, for files that do not."""

from pathlib import Path
from typing import Annotated

import typer

from infer_jax.cli import parsers
from infer_jax.estimators.serving import ENGINES

Files = Annotated[
    list[Path],
    typer.Argument(metavar="RUNS...", help="Benchmark files (docs/formats.md), or folders."),
]
Engine = Annotated[
    str | None,
    typer.Option(
        parser=parsers.one_of(ENGINES),
        metavar="NAME",
        help="vllm, sglang or trtllm, where files do not say.",
    ),
]
Dp = Annotated[
    float | None,
    typer.Option(parser=parsers.count(1), metavar="N", help="Groups of data-parallel attention."),
]
Isl = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Mean prompt, where not in files."
    ),
]
Osl = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Mean output, where not in files."
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a rate above 0", 0.0),
        metavar="REQ/S",
        help="Arrivals per second, where not in files.",
    ),
]
PassSequences = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1),
        metavar="N",
        help="Sequences that run at once at most, where not in files.",
    ),
]
PassTokens = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1),
        metavar="TOKENS",
        help="Tokens of one pass at most, where not in files.",
    ),
]
Sidecar = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Facts by file, TOML or JSON (docs/formats.md)."),
]
