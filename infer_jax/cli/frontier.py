"""`infer-jax frontier`: speed of a request against dollars per million tokens."""

from typing import Annotated

import typer

from infer_jax.cli import drafting, options as opt, parsers, several, show
from infer_jax.verbs.frontier import frontier as ask

PICTURE = "frontier.png"  # where the picture goes if no other name is given
Demand = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a rate above 0", 0.0),
        metavar="TOK/S",
        help="Keep points that serve at most this many tokens/s over all requests.",
    ),
]
Preference = Annotated[
    float,
    typer.Option(
        parser=parsers.real("an exponent above 0, of 100 at most", 0.0, 100.0),
        metavar="X",
        help="The preferred point has the largest speed^X / cost.",
    ),
]
Paper = Annotated[
    bool,
    typer.Option(
        "--paper",
        help="As the economics paper does it: economics.level4 (where --estimator is not "
        "given), its grid of 400 x 400 real numbers, its 1000 latency thresholds.",
    ),
]
RealDegrees = Annotated[
    bool,
    typer.Option(
        "--real-degrees",
        help="TP, PP and EP as real numbers, the best that the estimator's search finds.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="Print every row of the frontier.")]
Out = Annotated[
    str, typer.Option("--out", metavar="FILE", help="The picture: .png, .svg, .pdf or .html.")
]
NoPicture = Annotated[bool, typer.Option("--no-picture", help="Write no picture.")]
Context = Annotated[
    float,
    typer.Option(
        "--isl",
        parser=parsers.count(0),
        metavar="TOKENS",
        help="Input sequence length of a request; 0: decode passes attend to its output alone.",
    ),
]


def frontier(
    config: opt.Config,
    hardware: several.Systems,
    quant: several.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: Context = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    total_gpus: opt.TotalGpus = None,
    price: opt.Price = None,
    tpot: opt.Tpot = None,
    demand: Demand = None,
    preference: Preference = 3,
    estimator: opt.EstimatorName = None,
    draft: drafting.Draft = None,
    acceptance: drafting.Acceptance = None,
    paper: Paper = False,
    real_degrees: RealDegrees = False,
    all: All = False,
    out: Out = PICTURE,
    no_picture: NoPicture = False,
    set: opt.Set = None,
    as_json: opt.Json = False,
) -> None:
    """Which GPU counts and batches are worth choosing: tokens/s per request against $/Mtok."""
    given = locals()
    del given["no_picture"]
    show.answer(ask, {**given, "out": None if no_picture else out})
