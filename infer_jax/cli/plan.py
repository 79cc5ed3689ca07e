"""`infer-jax plan`: which system, layout and concurrency serve a model within limits for least."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from infer_jax.cli import drafting, options as opt, parsers, several, show
from infer_jax.errors import InputError
from infer_jax.estimators.serving import ENGINES
from infer_jax.planning import MODES, USUAL_TTFT
from infer_jax.verbs import pictures
from infer_jax.verbs.plan import plan as ask
from infer_jax.verbs.plan_result import PlanResult

Rate = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a rate above 0", 0.0),
        metavar="REQ/S",
        help="Requests per second to carry: the fewest GPUs are found.",
    ),
]
Decoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE", help="What the decoding pool of a disaggregated plan runs on."
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        parser=parsers.one_of(MODES),
        metavar="MODE",
        help="aggregated or disaggregated; both where not given.",
    ),
]
Ttft = Annotated[
    float | None,
    typer.Option(
        parser=parsers.duration_or_none,
        metavar="TIME|none",
        help=f"Limit of the time to first token: 300ms, 0.3s; {USUAL_TTFT:g} s where not "
        "given, if any plan meets it; none: no limit.",
    ),
]
P99 = Annotated[
    float | None,
    typer.Option(
        parser=parsers.duration,
        metavar="TIME",
        help="Limit of the 99th percentile of TTFT, with --request-rate (Poisson arrivals).",
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        parser=parsers.one_of(ENGINES),
        metavar="NAME",
        help="vllm, sglang or trtllm; the profile's, else vllm.",
    ),
]
Chunk = Annotated[
    list[float] | None,
    typer.Option(
        parser=parsers.count(1),
        metavar="TOKENS",
        help="Prompt tokens of one pass at most, of an aggregated plan; repeat to compare; "
        "whole prompts where not given.",
    ),
]
Places = Annotated[
    float | None,
    typer.Option(parser=parsers.count(1), metavar="N", help="Requests a group runs at most."),
]
Currency = Annotated[
    str | None,
    typer.Option(metavar="LABEL", help="What --price is in, such as EUR; USD where not given."),
]
Region = Annotated[
    float,
    typer.Option(
        parser=parsers.real("a factor above 0", 0.0),
        metavar="X",
        help="Rents of your region over those of the profile or of --price.",
    ),
]
Pue = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a number of at least 1", math.nextafter(1.0, 0.0)),
        metavar="X",
        help="Power of the building over that of its machines: energy is then of the site.",
    ),
]
Top = Annotated[
    float, typer.Option(parser=parsers.count(1), metavar="N", help="Plans shown of each system.")
]
Frontier = Annotated[
    bool,
    typer.Option(
        "--frontier",
        help="Every plan within the limits that no other beats in both speed and dollars.",
    ),
]
Confidence = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a probability from 0.5 to 0.999", math.nextafter(0.5, 0.0), 0.999),
        metavar="P",
        help="Choose the cheapest plan whose limits hold with that probability, such as 0.9.",
    ),
]
Replay = Annotated[
    bool,
    typer.Option(
        "--replay/--no-replay",
        help="Replay the first five plans by their engine's scheduler: means and p99 by both.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A picture of the plans: .png, .svg, .pdf or .html."),
]


def plan(
    config: opt.Config,
    hardware: several.Systems,
    total_gpus: opt.TotalGpus = None,
    concurrency: opt.Concurrency = None,
    request_rate: Rate = None,
    decode_hardware: Decoding = None,
    mode: Mode = None,
    isl: opt.SpreadIsl = None,
    osl: opt.SpreadOsl = None,
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    trace: opt.Trace = None,
    ttft: Ttft = None,
    tpot: opt.Tpot = None,
    p99_ttft: P99 = None,
    engine: EngineName = None,
    quant: several.Quant = None,
    kv_dtype: opt.KvDtype = None,
    chunk: Chunk = None,
    acceptance: drafting.AcceptanceOrFile = None,
    heads: drafting.Heads = False,
    draft: drafting.Draft = None,
    max_num_seqs: Places = None,
    price: opt.Price = None,
    currency: Currency = None,
    region_factor: Region = 1.0,  # pyright: ignore[reportArgumentType]
    pue: Pue = None,
    confidence: Confidence = None,
    top: Top = 3,
    frontier: Frontier = False,
    replay: Replay = False,
    out: Out = None,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """Which plans meet TTFT and TPOT for the fewest dollars per million tokens?"""
    given = locals()
    if out is not None:
        pictures.check(out, otherwise="", page=True)
        if not out.lower().endswith(".html") and (lacks := pictures.missing()):
            raise InputError("command line", "--out", out, lacks)
    del given["out"]
    result = show.answer(partial(_drawn, ask, out), given)
    if isinstance(result, PlanResult) and not result.feasible:
        raise typer.Exit(1)  # no plan meets every limit, for scripts


def _drawn(verb: Callable[..., PlanResult], out: str | None, **options: object) -> PlanResult:
    """What the verb answers, with its picture in a file where one is asked for."""
    result = verb(**options)
    if out is None:
        return result
    result.draw(out)
    return replace(result, picture=out, picture_note=f"Picture: {out}.")
