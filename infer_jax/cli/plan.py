"""`infer-jax plan`: which system, layout and concurrency serve a model within limits for least."""

import math
from typing import Annotated, Any

import numpy as np
import typer

from infer_jax.catalog import load_model, load_system
from infer_jax.cli import (
    launch_view,
    options as opt,
    parsers,
    picture,
    plan_picture,
    plan_search,
    plan_view,
    show,
)
from infer_jax.cli.plan_search import Found, Money, Question
from infer_jax.cli.runtime import prepare
from infer_jax.estimators import make
from infer_jax.estimators.serving import ENGINES, Deployment
from infer_jax.planning import MODES, USUAL_TTFT, Asked
from infer_jax.specs import UNBOUNDED
from infer_jax.verbs import inputs
from infer_jax.verbs.drafts import drafting
from infer_jax.verbs.requests import requested


def plan(
    config: opt.Config,
    hardware: Annotated[
        list[str],
        typer.Option(
            "--hardware", metavar="NAME|FILE", help="A profile to consider; repeat to compare."
        ),
    ],
    total_gpus: opt.TotalGpus = None,
    concurrency: opt.Concurrency = None,
    request_rate: Annotated[
        float | None,
        typer.Option(
            parser=parsers.real("a rate above 0", 0.0),
            metavar="REQ/S",
            help="Requests per second to carry: the fewest GPUs are found.",
        ),
    ] = None,
    decode_hardware: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="What the decoding pool of a disaggregated plan runs on."
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            parser=parsers.one_of(MODES),
            metavar="MODE",
            help="aggregated or disaggregated; both where not given.",
        ),
    ] = None,
    isl: opt.SpreadIsl = None,
    osl: opt.SpreadOsl = None,
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    trace: opt.Trace = None,
    ttft: Annotated[
        float | None,
        typer.Option(
            parser=parsers.duration_or_none,
            metavar="TIME|none",
            help=f"Limit of the time to first token: 300ms, 0.3s; {USUAL_TTFT:g} s where not "
            "given, if any plan meets it; none: no limit.",
        ),
    ] = None,
    tpot: opt.Tpot = None,
    p99_ttft: Annotated[
        float | None,
        typer.Option(
            parser=parsers.duration,
            metavar="TIME",
            help="Limit of the 99th percentile of TTFT, with --request-rate (Poisson arrivals).",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            parser=parsers.one_of(ENGINES),
            metavar="NAME",
            help="vllm, sglang or trtllm; the profile's, else vllm.",
        ),
    ] = None,
    quant: Annotated[
        list[str] | None,
        typer.Option(metavar="FORMAT", help=f"{opt.FORMATS}; repeat to compare."),
    ] = None,
    kv_dtype: opt.KvDtype = None,
    chunk: Annotated[
        list[float] | None,
        typer.Option(
            parser=parsers.count(1),
            metavar="TOKENS",
            help="Prompt tokens of one pass at most, of an aggregated plan; repeat to compare; "
            "whole prompts where not given.",
        ),
    ] = None,
    acceptance: opt.Accepted = None,
    heads: opt.Heads = False,
    draft: opt.Draft = None,
    max_num_seqs: Annotated[
        float | None,
        typer.Option(parser=parsers.count(1), metavar="N", help="Requests a group runs at most."),
    ] = None,
    price: opt.Price = None,
    currency: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="What --price is in, such as EUR; USD where not given."),
    ] = None,
    region_factor: Annotated[
        float,
        typer.Option(
            parser=parsers.real("a factor above 0", 0.0),
            metavar="X",
            help="Rents of your region over those of the profile or of --price.",
        ),
    ] = 1.0,  # pyright: ignore[reportArgumentType]
    pue: Annotated[
        float | None,
        typer.Option(
            parser=parsers.real("a number of at least 1", math.nextafter(1.0, 0.0)),
            metavar="X",
            help="Power of the building over power of its machines; 1.56 where not given.",
        ),
    ] = None,
    top: Annotated[
        float,
        typer.Option(parser=parsers.count(1), metavar="N", help="Plans shown of each system."),
    ] = 3,
    frontier: Annotated[
        bool,
        typer.Option(
            "--frontier",
            help="Every plan within the limits that no other beats in both speed and dollars.",
        ),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A picture of the plans: .png, .svg or .pdf."),
    ] = None,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """Which plans meet TTFT and TPOT for the fewest dollars per million tokens?"""
    prepare()
    if out is not None:
        picture.check(out, otherwise="")
    load_model(config)  # a wrong name is refused before a question is asked
    for name in [*hardware, decode_hardware or hardware[0]]:
        load_system(name)
    _one_of(total_gpus, concurrency, request_rate)
    _agree(mode, p99_ttft, request_rate, decode_hardware, chunk)
    if currency is not None and price is None:
        raise opt.refuse("--currency", currency, "with --price: rents of profiles are in USD")
    alone = p99_ttft is not None and mode is None
    modes = (mode,) if mode else MODES[:1] if alone else MODES
    asked = Asked(
        ttft=ttft or np.inf,
        usual_ttft=ttft is None,
        tpot=tpot or np.inf,
        p99_ttft=p99_ttft or np.inf,
        chips=total_gpus or np.inf,
        concurrency=concurrency,
        rate=request_rate,
        frontier=frontier,
    )
    requests = requested(isl, osl, prefix, request_rate, trace)
    question = Question(
        config=config,
        systems=list(dict.fromkeys(hardware)),
        decoding=decode_hardware,
        formats=list(dict.fromkeys(quant or [None])),
        kv_dtype=kv_dtype,
        money=Money(price, region_factor, pue),
        total=total_gpus,
        requests=requests,
        asked=asked,
        estimator=f"serving.{engine}" if engine else inputs.BEST,
        common=Deployment.of(**({} if max_num_seqs is None else {"max_sequences": max_num_seqs})),
        modes=modes,
        chunks=list(dict.fromkeys(chunk or [UNBOUNDED])),
        drafts=drafting(load_model(config), draft, acceptance, heads=heads),
        count=int(top),
        pictured=out is not None,
        set=set,
    )
    found = plan_search.plans(question)
    met, missed, best = found.met, found.missed, found.best
    money = (currency or "USD").upper()
    report = plan_view.report(question, found, money)
    rows = report["near_misses"] or report["frontier" if frontier else "plans"]
    most = None if request_rate is None else max_num_seqs or math.inf
    started = [] if best is None else launch_view.of_choice(best, question, found, draft, most)
    notes = _notes(question, found, rows, money, alone=alone)
    if out is not None:
        notes.append(plan_picture.plans(out, found.series, best, asked, report, money))
        report["picture"] = out
    if as_json:
        starts = {launch.engine: launch.to_dict() for launch in started}
        show.as_json({**report, "launch": starts, "notes": notes})
        _end(found)
        return
    shown = plan_view.spread(met) if frontier else range(len(met))
    shown = range(min(len(missed), int(top))) if missed else shown
    if frontier and met:
        notes.insert(1, f"{len(shown)} of {len(met)} points of the frontier; --json has all.")
    every, sign = met or missed, "$" if money == "USD" else money
    plan_view.tables(report, [every[i] for i in shown], [rows[i] for i in shown], sign)
    if best is not None:
        served = found.systems[best.system.partition(" > ")[0]]
        own = inputs.engine(make(question.estimator, served.coefficients))
        notes += launch_view.printed(started, best.layout, own)
    show.notes(notes)
    _end(found)


def _end(found: Found) -> None:
    """Exit with 1 where no plan meets every limit, for scripts."""
    if not found.met:
        raise typer.Exit(1)


def _agree(
    mode: str | None,
    p99_ttft: float | None,
    request_rate: float | None,
    decode_hardware: str | None,
    chunk: list[float] | None,
) -> None:
    """Raise InputError where an option is of another mode than the one asked for."""
    if p99_ttft is not None and request_rate is None:
        raise opt.refuse("--p99-ttft", p99_ttft, "with --request-rate: arrivals make waits random")
    if p99_ttft is not None and mode == "disaggregated":
        raise opt.refuse("--p99-ttft", p99_ttft, "--mode aggregated: pools know the mean wait only")
    if decode_hardware is not None and mode == "aggregated":
        raise opt.refuse("--decode-hardware", decode_hardware, "--mode disaggregated, or no mode")
    if chunk and mode == "disaggregated":
        raise opt.refuse("--chunk", chunk[0], "--mode aggregated, or no mode: pools take it whole")


def _one_of(total: float | None, concurrency: float | None, rate: float | None) -> None:
    if concurrency is not None and rate is not None:
        raise opt.refuse("--request-rate", rate, "--concurrency or --request-rate, not both")
    if total is None and concurrency is None and rate is None:
        question = "How many GPUs are there, or how much traffic is to be served?"
        raise opt.ask("--total-gpus", question, "--total-gpus, --concurrency or --request-rate")


def _notes(
    question: Question, found: Found, rows: list[dict[str, Any]], money: str, *, alone: bool
) -> list[str]:
    """What the plans were searched among and what is assumed; ``alone``: pools are left out."""
    asked, work, modes = question.asked, question.requests.work, question.modes
    chunked = list(question.chunks) != [UNBOUNDED]
    return [
        *(plan_view.free(found.best, asked) if found.best else []),
        f"Every legal layout and batch, {found.configurations} configurations, "
        f"{' and '.join(modes)}.",
        *(
            ["In brackets: what 80 % of measured runs are in, by the calibration of the profile."]
            if any("tpot_interval80_ms" in row for row in rows)
            else []
        ),
        *(_usual(found) if asked.usual_ttft else []),
        *question.requests.notes,
        *(["Pools take all requests at the mean lengths."] if work.lengths and not alone else []),
        *(["Pools prefill a prompt in one pass."] if chunked and len(modes) > 1 else []),
        *(question.drafts.notes if question.drafts else []),
        *(["Pools are left out: only the mean of their wait is known."] if alone else []),
        f"{money} and joules are per million tokens: of both sides, blended, where not of input or "
        "output; a GPU is paid while it is rented.",
        *dict.fromkeys(note.replace(" USD/h", f" {money}/h") for note in found.notes),
    ]


def _usual(found: Found) -> list[str]:
    if found.usual:
        said = f"TTFT is kept within {USUAL_TTFT:g} s, a usual limit; --ttft sets another, --ttft "
        return [said + "none takes it away."]
    if found.met:
        said = f"No plan that meets the other limits keeps TTFT within {USUAL_TTFT:g} s, the usual "
        return [said + "limit: none is set."]
    return []  # other limits are in the way, which the near misses name
