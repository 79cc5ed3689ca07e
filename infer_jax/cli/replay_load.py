"""Options of `replay`: its requests, and when they arrive."""

from typing import Annotated

import typer

from infer_jax.cli import parsers

Trace = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Requests as recorded, in place of drawn ones."),
]
Burstiness = Annotated[
    float,
    typer.Option(
        parser=parsers.real("a number above 0", 0.0),
        metavar="X",
        help="Shape of the gamma law of times between arrivals: 1 is Poisson, less is burstier.",
    ),
]
AT_ONCE = "a finite rate above 0; all N at once are --concurrency N --prompts N"
Rate = Annotated[
    float | None,
    typer.Option(
        "--request-rate",
        parser=parsers.real(AT_ONCE, 0.0),
        metavar="REQ/S",
        help="Requests per second, arriving at random (Poisson, or --burstiness).",
    ),
]
RampUp = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a finite rate above 0", 0.0),
        metavar="REQ/S",
        help="Rate of the first requests, which rises linearly to --request-rate.",
    ),
]
InFlight = Annotated[
    float | None,
    typer.Option(
        "--concurrency",
        "--max-concurrency",
        parser=parsers.count(1),
        metavar="N",
        help="Requests in flight in all dp copies; with --request-rate at most.",
    ),
]
Prompts = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1, 1e6),
        metavar="N",
        help="Requests of a run; all of a trace, 10 x --concurrency or 1000 where not given.",
    ),
]
Isl = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Tokens of a prompt; 1024 if not given."
    ),
]
Osl = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Tokens of an output; 128 if not given."
    ),
]
RangeRatio = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a share above 0, of 1 at most", 0.0, 1.0),
        metavar="SHARE",
        help="Lengths are drawn from this share of --isl and --osl up to them, as InferenceX does; "
        "`vllm bench serve` draws between 1 - X and 1 + X of them. 1 if not given.",
    ),
]
Warmup = Annotated[
    float,
    typer.Option(
        parser=parsers.count(0),
        metavar="N",
        help="First requests that are served, not counted, such as the burst of --concurrency N.",
    ),
]
Seed = Annotated[
    float,
    typer.Option(parser=parsers.count(0, 2**32 - 1), metavar="N", help="Of all random numbers."),
]
Seeds = Annotated[
    float,
    typer.Option(parser=parsers.count(1, 1000), metavar="N", help="Runs of other random numbers."),
]
