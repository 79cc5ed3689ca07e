"""`infer-jax plan`: which system, layout and concurrency serve a model within limits for least."""

import math
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Annotated, NamedTuple

import numpy as np
import typer

from infer_jax.catalog import System, load_model
from infer_jax.cli import drawn, inputs, launched, options as opt, picture, planned, show
from infer_jax.cli.drafting import Drafting, drafting
from infer_jax.cli.requested import requested
from infer_jax.cli.starting import busy, prepare
from infer_jax.estimators import Trust
from infer_jax.estimators.serving import ENGINES, Deployment
from infer_jax.planning import MODES, USUAL_TTFT, Asked, Choice, Side, front, search
from infer_jax.planning.search import largest
from infer_jax.specs import UNBOUNDED


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
            parser=opt.real("a rate above 0", 0.0),
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
            parser=opt.one_of(MODES),
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
            parser=opt.duration_or_none,
            metavar="TIME|none",
            help=f"Limit of the time to first token: 300ms, 0.3s; {USUAL_TTFT:g} s where not "
            "given, if any plan meets it; none: no limit.",
        ),
    ] = None,
    tpot: opt.Tpot = None,
    p99_ttft: Annotated[
        float | None,
        typer.Option(
            parser=opt.duration,
            metavar="TIME",
            help="Limit of the 99th percentile of TTFT, with --request-rate (Poisson arrivals).",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            parser=opt.one_of(ENGINES),
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
            parser=opt.count(1),
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
        typer.Option(parser=opt.count(1), metavar="N", help="Requests a group runs at most."),
    ] = None,
    price: opt.Price = None,
    currency: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="What --price is in, such as EUR; USD where not given."),
    ] = None,
    region_factor: Annotated[
        float,
        typer.Option(
            parser=opt.real("a factor above 0", 0.0),
            metavar="X",
            help="Rents of your region over those of the profile or of --price.",
        ),
    ] = 1.0,  # pyright: ignore[reportArgumentType]
    pue: Annotated[
        float | None,
        typer.Option(
            parser=opt.real("a number of at least 1", math.nextafter(1.0, 0.0)),
            metavar="X",
            help="Power of the building over power of its machines; 1.56 where not given.",
        ),
    ] = None,
    top: Annotated[
        float, typer.Option(parser=opt.count(1), metavar="N", help="Plans shown of each system.")
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
    as_json: opt.Json = False,
) -> None:
    """Which plans meet TTFT and TPOT for the fewest dollars per million tokens?"""
    prepare()
    if out is not None:
        picture.check(out, otherwise="")
    _one_of(total_gpus, concurrency, request_rate)
    if p99_ttft is not None and request_rate is None:
        raise opt.refuse("--p99-ttft", p99_ttft, "with --request-rate: arrivals make waits random")
    if p99_ttft is not None and mode == "disaggregated":
        raise opt.refuse("--p99-ttft", p99_ttft, "--mode aggregated: pools know the mean wait only")
    if decode_hardware is not None and mode == "aggregated":
        raise opt.refuse("--decode-hardware", decode_hardware, "--mode disaggregated, or no mode")
    if chunk and mode == "disaggregated":
        raise opt.refuse("--chunk", chunk[0], "--mode aggregated, or no mode: pools take it whole")
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
    work, drafts = requests.work, drafting(load_model(config), draft, acceptance, heads=heads)
    name = f"serving.{engine}" if engine else inputs.BEST
    common = Deployment.of(**({} if max_num_seqs is None else {"max_sequences": max_num_seqs}))
    usual: dict[bool, list[Choice]] = {True: [], False: []}
    missed: list[Choice] = []
    notes: list[str] = []
    known: dict[str, System] = {}
    trusted: dict[str, Trust] = {}
    searched: dict[str, str | None] = {}
    drawings: dict[str, list[Choice]] = {}
    looked = 0
    paid = _Paid(price, region_factor, pue)
    for system, form in product(dict.fromkeys(hardware), dict.fromkeys(quant or [None])):
        asked_of = (name, form, kv_dtype, paid, total_gpus, drafts)
        pools = [_pool(config, system, *asked_of)]
        if decode_hardware is not None:
            pools.append(_pool(config, decode_hardware, *asked_of))
        for pool in pools:
            notes += pool.notes + inputs.too_long(pool.given.model, work)
            known[pool.side.name] = pool.given.system
            trusted[pool.side.name] = pool.trusted
        first = pools[0]
        ask = partial(
            search,
            [pool.side for pool in pools],
            first.given.model.architecture,
            work,
            common=common,
            modes=modes,
            chunks=list(dict.fromkeys(chunk or [UNBOUNDED])),
            drafts=drafts.counts if drafts else (0.0,),
            draft=drafts.draft if drafts else None,
            count=int(top),
        )
        with busy(f"evaluating every layout on {first.side.name}"):
            found = ask(asked)
            if out is not None:
                # drawn are also the plans that break the limit of TPOT, which is a line
                label = " > ".join(dict.fromkeys(pool.side.name for pool in pools))
                label += f", {form}" if len(dict.fromkeys(quant or [None])) > 1 else ""
                drawings[label] = ask(replace(asked, frontier=True, tpot=np.inf)).met
        looked += found.looked
        if not found.pooled:
            notes.append(f"No two pools of {first.side.name} fit what is asked.")
        formats = first.given.model.quantisation
        searched[formats] = form
        usual[found.usual] += [replace(c, formats=formats) for c in found.met]
        missed += [replace(c, formats=formats) for c in found.missed]
    met = usual[True] or usual[False]
    met = front(met) if frontier else sorted(met, key=lambda c: c.rank)
    missed = [] if met else sorted(missed, key=lambda c: c.rank)
    money, kind = (currency or "USD").upper(), "frontier" if frontier else "plans"
    report = {
        "model": load_model(config, quant=(quant or [None])[0], kv_dtype=kv_dtype).name,
        "formats": list(searched),
        "estimator": name,
        "trust": {system: one.fields() for system, one in trusted.items()},
        "isl_tokens": float(work.isl),
        "osl_tokens": float(work.osl),
        "prefix_tokens": float(work.prefix),
        "lengths": requests.lengths,
        "usual_ttft_ms": 1e3 * USUAL_TTFT if usual[True] else None,
        "configurations": looked,
        "feasible": bool(met),
        kind: [planned.row(c, money, known, trusted) for c in met],
        "near_misses": [planned.row(c, money, known, trusted) for c in missed],
    }
    told = report["near_misses" if missed else kind]
    best = min(met, key=lambda c: c.rank, default=None)
    started = (
        []
        if best is None
        else launched.of_choice(
            best,
            config,
            first.given.model,
            [known[name] for name in best.system.split(" > ")],
            (searched[best.formats], kv_dtype),
            draft,
            None if request_rate is None else max_num_seqs or math.inf,
            spread=requests.lengths != "equal",
        )
    )
    notes = [
        f"Every legal layout and batch, {looked} configurations, {' and '.join(modes)}.",
        *(
            ["In brackets: what 80 % of measured runs are in, by the calibration of the profile."]
            if any("tpot_interval80_ms" in row for row in told)
            else []
        ),
        *(_usual(bool(usual[True])) if ttft is None else []),
        *requests.notes,
        *(["Pools take all requests at the mean lengths."] if work.lengths and not alone else []),
        *(["Pools prefill a prompt in one pass."] if chunk and len(modes) > 1 else []),
        *(drafts.notes if drafts else []),
        *(["Pools are left out: only the mean of their wait is known."] if alone else []),
        f"{money} and joules are per million tokens: of both sides, blended, where not of input or "
        "output; a GPU is paid while it is rented.",
        *dict.fromkeys(note.replace(" USD/h", f" {money}/h") for note in notes),
    ]
    if out is not None:
        notes.append(drawn.plans(out, drawings, best, asked, report, money))
        report["picture"] = out
    if as_json:
        starts = {launch.engine: launch.to_dict() for launch in started}
        show.as_json({**report, "launch": starts, "notes": notes})
        return
    some = planned.spread(met) if frontier else range(len(met))
    some = range(min(len(missed), int(top))) if missed else some
    if frontier and met:
        notes.insert(1, f"{len(some)} of {len(met)} points of the frontier; --json has all.")
    plans, sign = met or missed, "$" if money == "USD" else money
    planned.tables(report, [plans[i] for i in some], [told[i] for i in some], sign)
    if best is not None:
        notes += launched.printed(started, best.layout, engine)
    show.notes(notes)


class _Paid(NamedTuple):
    """What the command line says of rent and power."""

    price: float | None
    region: float
    pue: float | None


class _Pool(NamedTuple):
    """A system that is considered, and what was assumed."""

    given: inputs.Given
    side: Side
    notes: list[str]
    trusted: Trust


def _pool(
    config: str,
    system: str,
    name: str,
    quant: str | None,
    kv_dtype: str | None,
    paid: _Paid,
    total: float | None,
    drafts: Drafting | None,
) -> _Pool:
    given = inputs.given(config, system, quant, kv_dtype, paid.price)
    serving, hardware = inputs.estimator(name, given.system), given.hardware
    trusted = inputs.trust(name, serving, given)
    if paid.pue is not None:
        serving = serving.replace(draw=serving.draw.but(pue=paid.pue))
    if drafts is not None:
        serving = serving.but(acceptance=drafts.acceptance)
    hardware = hardware.but(price=float(hardware.price) * paid.region)
    side = Side(given.system.name, hardware, serving)
    most = math.inf if total is None else largest(given.hardware, total)
    notes = given.notes
    if paid.region != 1.0:
        notes.append(f"{side.name}: rents are {paid.region:g} times those, by --region-factor.")
    if total is not None and most < total:
        notes.append(f"{side.name}: an instance has at most {most:g} GPUs.")
    return _Pool(given, side, notes, trusted)


def _one_of(total: float | None, concurrency: float | None, rate: float | None) -> None:
    if concurrency is not None and rate is not None:
        raise opt.refuse("--request-rate", rate, "--concurrency or --request-rate, not both")
    if total is None and concurrency is None and rate is None:
        question = "How many GPUs are there, or how much traffic is to be served?"
        raise opt.ask("--total-gpus", question, "--total-gpus, --concurrency or --request-rate")


def _usual(kept: bool) -> list[str]:
    if kept:
        said = f"TTFT is kept within {USUAL_TTFT:g} s, a usual limit; --ttft sets another, --ttft "
        return [said + "none takes it away."]
    return [f"No plan keeps TTFT within {USUAL_TTFT:g} s, the usual limit: none is set."]
