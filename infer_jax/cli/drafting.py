"""Options of speculative decoding: a draft model or heads, and the acceptance."""

from typing import Annotated

import typer

from infer_jax.cli import parsers

Heads = Annotated[
    bool,
    typer.Option(
        "--heads",
        help="Prediction heads (EAGLE, MTP) were trained for the model, which brings none.",
    ),
]
AcceptanceOrFile = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        metavar="P|FILE",
        help="Try drafts: the probability that the first is accepted, or a YAML file of acceptance "
        "lengths; drafted by --draft or by the model's own heads.",
    ),
]
Drafts = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1, 64),
        metavar="N",
        help="Tokens drafted for each request in a pass (num_speculative_tokens).",
    ),
]
Draft = Annotated[
    str | None, typer.Option(metavar="CONFIG", help="A model that drafts (speculative decoding).")
]
Acceptance = Annotated[
    float | None,
    typer.Option(
        parser=parsers.probability,
        metavar="P",
        help="Probability that a drafted token is accepted.",
    ),
]
