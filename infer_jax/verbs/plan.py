"""``ij.plan``: the cheapest system, layout and concurrency within limits."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from infer_jax import verbs
from infer_jax.results import option
from infer_jax.results.problems import exclude, refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import (
    Number,
    OneOf,
    Option,
    Time,
    above_zero,
    look_up,
    unique_texts,
)
from infer_jax.verbs.options import HardwareLike

if TYPE_CHECKING:
    from infer_jax.planning import Requirements

Numbers = float | Sequence[float]
LIKELY = Number(0.5, 0.999, what="a probability")
GOODPUT = Number(0.5, 0.999, what="a share of the requests")
USUAL_TTFT = 2.0  # seconds, as ``planning`` has it, which imports JAX; a test holds them equal
TTFT = (
    "Limit of the mean time to first token: 300ms, 0.3s; "
    f"{USUAL_TTFT:g} s where no TTFT is limited, if any plan meets it; none: no limit."
)


@verb
def plan(
    config: opt.Config,
    hardware: opt.Systems,
    *,
    total_gpus: opt.TotalGpus = None,
    concurrency: opt.Concurrency = None,
    request_rate: Annotated[float | None, Option.of("REQ/S", opt.RATE)] = None,
    decode_hardware: Annotated[HardwareLike | None, Option.of("NAME|FILE")] = None,
    mode: Annotated[str | None, Option.of("MODE", OneOf(look_up("planning", "MODES")))] = None,
    isl: opt.SpreadIsl = None,
    osl: opt.SpreadOsl = None,
    prefix: opt.Prefix = 0.0,
    trace: opt.Trace = None,
    ttft: Annotated[float | str | None, Option(TTFT, "TIME|none", Time(unlimited=True))] = None,
    tpot: opt.Tpot = None,
    p95_ttft: Annotated[float | str | None, Option.of("TIME", opt.TIME)] = None,
    p99_ttft: Annotated[float | str | None, Option.of("TIME", opt.TIME)] = None,
    engine: opt.Engine = None,
    estimator: opt.EstimatorName = None,
    engine_version: opt.EngineVersion = None,
    quant: opt.Quants = None,
    kv_dtype: opt.KvDtype = None,
    chunk: Annotated[Numbers | None, Option.of("TOKENS", opt.WHOLE, many=True)] = None,
    acceptance: opt.Acceptance = None,
    heads: opt.Heads = False,
    draft: opt.Draft = None,
    max_num_seqs: Annotated[float | None, Option.of("N", opt.WHOLE)] = None,
    price: opt.Prices = None,
    currency: Annotated[str | None, Option.of("LABEL")] = None,
    region_factor: Annotated[float, Option.of("X", above_zero("a factor"))] = 1.0,
    pue: Annotated[float | None, Option.of("X", Number(1.0))] = None,
    confidence: Annotated[float | None, Option.of("P", LIKELY)] = None,
    top: Annotated[int, Option.of("N", opt.WHOLE)] = 3,
    frontier: Annotated[bool, Option.of()] = False,
    replay: Annotated[bool, Option.of(flags=("--replay/--no-replay",))] = False,
    goodput: Annotated[float | None, Option.of("SHARE", GOODPUT)] = None,
    compare_engines: Annotated[bool, Option.of()] = False,
    other_rates: Annotated[bool, Option.of()] = False,
    set: opt.Changes = None,
) -> "verbs.PlanResult":
    """Which plans meet TTFT and TPOT for the fewest dollars per million tokens?

    Limits are in seconds, or texts with a unit such as "30ms"; ``ttft="none"`` takes the usual
    one away.

    Args:
        request_rate: Requests per second to carry: the fewest GPUs are found.
        decode_hardware: What the decoding pool of a disaggregated plan runs on.
        mode: aggregated or disaggregated; both where not given.
        p95_ttft: Limit of the 95th percentile of TTFT, with --request-rate (Poisson arrivals).
        p99_ttft: Limit of the 99th percentile of TTFT, with --request-rate (Poisson arrivals).
        chunk: Prompt tokens of one pass at most, of an aggregated plan; repeat to compare; whole
            prompts where not given.
        max_num_seqs: Requests a group runs at most.
        currency: What --price is in, such as EUR; USD where not given.
        region_factor: Rents of your region over those of the profile or of --price.
        pue: Power of the building over that of its machines: energy is then of the site.
        confidence: Choose the cheapest plan whose limits hold with that probability, such as 0.9.
        top: Plans shown of each system.
        frontier: Every plan within the limits that no other beats in both speed and dollars.
        replay: Replay the first five plans by their engine's scheduler: means and p99 by both.
        goodput: Share of the requests that is to keep --ttft and --tpot both, such as 0.95, with
            --replay: plans below it stand lower.
        compare_engines: Ask the same of vllm, sglang and trtllm: the cheapest plan of each, too.
        other_rates: The rates, above and below --request-rate, at which another plan would win.

    Raises:
        InputError: a model or system that cannot be read, options that exclude each other.

    >>> import infer_jax as ij
    >>> plans = ij.plan("llama-3.1-8b", "h100_sxm", total_gpus=2, tpot=0.012, mode="aggregated")
    >>> plans.best.layout, plans.best.chips
    ('1 x TP2', 2.0)
    """
    from dataclasses import replace

    import numpy as np

    from infer_jax.engines import ENGINES
    from infer_jax.estimators.serving import Deployment
    from infer_jax.planning import MODES, Requirements
    from infer_jax.planning.pricing import rate_changes
    from infer_jax.specs import UNBOUNDED
    from infer_jax.verbs import inputs
    from infer_jax.verbs.drafts import DraftOptions, drafting
    from infer_jax.verbs.plan_search import Question, check_options, plans
    from infer_jax.verbs.requests import read_requests

    model = inputs.model_of(config, None, None)  # a wrong name is refused before a question
    systems, decoding = inputs.systems_of(hardware, decode_hardware)
    every = [*systems, *([] if decoding is None else [decoding])]
    rents = {} if price is None else inputs.rents_of(price, every)
    requirements = Requirements.of(
        ttft=ttft, tpot=tpot, p95_ttft=p95_ttft, p99_ttft=p99_ttft, chips=total_gpus,
        concurrency=concurrency, rate=request_rate, frontier=frontier,
    )  # fmt: skip
    chunks = [] if chunk is None else list(dict.fromkeys(np.ravel(chunk).tolist()))
    if len(rents) < len({x.name for x in every}) and currency is not None:
        allowed = f"with {option('price')} of every system: rents of profiles are in USD"
        raise refuse("currency", currency, allowed)
    check_options(mode, requirements, decode_hardware, chunks, other_rates=other_rates)
    if goodput is not None:
        _check_goodput(goodput, requirements, replay=replay)
    requests = read_requests(isl, osl, prefix, request_rate, trace)
    exclude(estimator=estimator, compare_engines=compare_engines or None)
    pools_excluded = mode is None and math.isfinite(min(requirements.tails.values()))  # of means
    drafts = None
    if heads or draft is not None or acceptance is not None:
        drafts = drafting(model, DraftOptions(draft, acceptance, heads))
    question = Question(
        config,
        systems,
        requests,
        requirements,
        formats=unique_texts(quant) or [None],
        kv_dtype=kv_dtype,
        set=set,
        estimator=inputs.estimator_of_engine(estimator, engine) or inputs.BEST,
        decoding=decoding,
        rents=rents,
        engine_version=engine_version,
        currency=(currency or "USD").upper(),
        region=region_factor,
        pue=pue,
        modes=(mode,) if mode else MODES[:1] if pools_excluded else MODES,
        chunks=chunks or [UNBOUNDED],
        common=Deployment.of(max_sequences=max_num_seqs or UNBOUNDED),
        drafts=drafts,
        draft=draft,
        top=int(top),
        pools_excluded=pools_excluded,
        goodput=goodput,
        confidence=confidence,
    )
    answer = plans(question)
    others = ENGINES if compare_engines else ()
    engines = {x: plans(replace(question, estimator=f"serving.{x}")) for x in others}
    rates, best = None, answer.best
    if other_rates and request_rate is not None and best is not None:
        found = rate_changes(lambda rate: plans(question.at_rate(rate)).best, request_rate, best)
        rates = [*found]
    if replay:
        from infer_jax.verbs.plan_replay import replay_plans

        replay_plans(answer)
    return verbs.PlanResult(answer, engines, rates=rates)


def _check_goodput(goodput: float, limits: "Requirements", *, replay: bool) -> None:
    """Raise InputError unless replays judge plans by the share of requests within a limit."""
    if not replay:
        why = "laws have means, and percentiles of TTFT alone"
        raise refuse("goodput", goodput, f"with {option('replay')}: {why}")
    if limits.frontier:
        raise refuse("goodput", goodput, f"without {option('frontier')}")
    if not (limits.usual_ttft or math.isfinite(min(limits.ttft, limits.tpot))):
        raise refuse("goodput", goodput, f"with {option('ttft')} or {option('tpot')}")
