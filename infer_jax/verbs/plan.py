"""``ij.plan``: the cheapest system, layout and concurrency within limits."""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from infer_jax.estimators.serving import Deployment
from infer_jax.planning import MODES, USUAL_TTFT, Requirements
from infer_jax.specs import UNBOUNDED
from infer_jax.verbs import inputs, options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.drafts import drafting
from infer_jax.verbs.inputs import HardwareLike
from infer_jax.verbs.option import Number, OneOf, Option, Time, above_zero, either, seconds_of
from infer_jax.verbs.plan_result import PlanResult
from infer_jax.verbs.plan_search import Candidates, Money, Plans, Question, Target, plans
from infer_jax.verbs.problems import ask, refuse
from infer_jax.verbs.requests import requested
from infer_jax.verbs.texts import unique_texts


@verb
def plan(
    config: opt.Config,
    hardware: opt.Systems,
    *,
    total_gpus: opt.TotalGpus = None,
    concurrency: opt.Concurrency = None,
    request_rate: Annotated[
        float | None,
        Option("Requests per second to carry: the fewest GPUs are found.", "REQ/S", opt.RATE),
    ] = None,
    decode_hardware: Annotated[
        HardwareLike | None,
        Option("What the decoding pool of a disaggregated plan runs on.", "NAME|FILE"),
    ] = None,
    mode: Annotated[
        str | None,
        Option("aggregated or disaggregated; both where not given.", "MODE", OneOf(MODES)),
    ] = None,
    isl: opt.SpreadIsl = None,
    osl: opt.SpreadOsl = None,
    prefix: opt.Prefix = 0.0,
    trace: opt.Trace = None,
    ttft: Annotated[
        float | str | None,
        Option(
            f"Limit of the time to first token: 300ms, 0.3s; {USUAL_TTFT:g} s where not given, if "
            "any plan meets it; none: no limit.",
            "TIME|none",
            Time(unlimited=True),
        ),
    ] = None,
    tpot: opt.Tpot = None,
    p99_ttft: Annotated[
        float | str | None,
        Option(
            "Limit of the 99th percentile of TTFT, with --request-rate (Poisson arrivals).",
            "TIME",
            opt.TIME,
        ),
    ] = None,
    engine: Annotated[
        str | None, Option("vllm, sglang or trtllm; the profile's, else vllm.", "NAME", opt.ENGINE)
    ] = None,
    estimator: opt.EstimatorName = None,
    quant: opt.Quants = None,
    kv_dtype: opt.KvDtype = None,
    chunk: Annotated[
        float | Sequence[float] | None,
        Option(
            "Prompt tokens of one pass at most, of an aggregated plan; repeat to compare; whole "
            "prompts where not given.",
            "TOKENS",
            opt.WHOLE,
            many=True,
        ),
    ] = None,
    acceptance: opt.Acceptance = None,
    heads: opt.Heads = False,
    draft: opt.Draft = None,
    max_num_seqs: Annotated[
        float | None, Option("Requests a group runs at most.", "N", opt.WHOLE)
    ] = None,
    price: opt.Price = None,
    currency: Annotated[
        str | None,
        Option("What --price is in, such as EUR; USD where not given.", "LABEL"),
    ] = None,
    region_factor: Annotated[
        float,
        Option(
            "Rents of your region over those of the profile or of --price.",
            "X",
            above_zero("a factor"),
        ),
    ] = 1.0,
    pue: Annotated[
        float | None,
        Option(
            "Power of the building over that of its machines: energy is then of the site.",
            "X",
            Number(1.0),
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        Option(
            "Choose the cheapest plan whose limits hold with that probability, such as 0.9.",
            "P",
            Number(0.5, 0.999, what="a probability"),
        ),
    ] = None,
    top: Annotated[int, Option("Plans shown of each system.", "N", opt.WHOLE)] = 3,
    frontier: Annotated[
        bool,
        Option("Every plan within the limits that no other beats in both speed and dollars."),
    ] = False,
    replay: Annotated[
        bool,
        Option(
            "Replay the first five plans by their engine's scheduler: means and p99 by both.",
            flags=("--replay/--no-replay",),
        ),
    ] = False,
    set: opt.Changes = None,
) -> PlanResult:
    """Which plans meet TTFT and TPOT for the fewest dollars per million tokens?

    Limits are in seconds, or texts with a unit such as "30ms"; ``ttft="none"`` takes the usual
    one away.

    ``confidence``: the cheapest plan whose limits hold with that probability is chosen, and not
    the cheapest whose predicted times keep them.
    ``replay``: the first plans are replayed by their engine's scheduler, and shown by both.

    Raises:
        InputError: a model or system that cannot be read, options that exclude each other.

    >>> import infer_jax as ij
    >>> plans = ij.plan("llama-3.1-8b", "h100_sxm", total_gpus=2, tpot=0.012, mode="aggregated")
    >>> plans.best.layout, plans.best.chips
    ('1 x TP2', 2.0)
    """
    model = inputs.model_of(config, None, None)  # a wrong name is refused before a question
    systems, decoding = inputs.systems_of(hardware, decode_hardware)
    limits = seconds_of(ttft), seconds_of(tpot), seconds_of(p99_ttft)
    asked = _asked((total_gpus, concurrency, request_rate), limits, frontier)
    if engine and estimator:
        raise refuse("--engine", engine, "without --estimator, which has an engine of its own")
    name = estimator or (f"serving.{engine}" if engine else inputs.BEST)
    tried = _tried(mode, asked, chunk, max_num_seqs, name, top)
    _agree(mode, asked, tried, decode_hardware)
    money = _money(price, currency, region_factor, pue)
    requests = requested(isl, osl, prefix, request_rate, trace)
    accepted = None if acceptance is None else str(acceptance)
    drafts = drafting(model, draft, accepted, heads=heads)
    target = Target(config, unique_texts(quant) or [None], kv_dtype, set)
    question = Question(target, systems, decoding, money, requests, asked, tried, drafts, draft)
    answer = _answered(question, confidence)
    if replay:
        from infer_jax.verbs.plan_replay import replay_plans  # which other plans need not load

        replay_plans(question, answer)
    return PlanResult(question, answer)


def _answered(question: Question, confidence: float | None) -> Plans:
    """The plans, chosen by the mean or with a confidence."""
    if confidence is None:
        return plans(question)
    from infer_jax.verbs.plan_belief import decided  # which other plans need not load

    return decided(question, confidence)


def _asked(
    load: tuple[float | None, float | None, float | None],
    limits: tuple[float | None, float | None, float | None],
    frontier: bool,
) -> Requirements:
    """GPUs, concurrency or rate, and limits in seconds of TTFT, TPOT and the 99 % of TTFT."""
    (total, concurrency, rate), (ttft, tpot, p99) = load, limits
    if concurrency is not None and rate is not None:
        raise refuse("--request-rate", rate, "--concurrency or --request-rate, not both")
    if total is None and concurrency is None and rate is None:
        question = "How many GPUs are there, or how much traffic is to be served?"
        raise ask("--total-gpus", question, "--total-gpus, --concurrency or --request-rate")
    return Requirements(
        ttft=either(ttft, math.inf),
        usual_ttft=ttft is None,
        tpot=either(tpot, math.inf),
        p99_ttft=either(p99, math.inf),
        chips=either(total, math.inf),
        concurrency=concurrency,
        rate=rate,
        frontier=frontier,
    )


def _tried(
    mode: str | None,
    asked: Requirements,
    chunk: float | Sequence[float] | None,
    places: float | None,
    estimator: str,
    top: int,
) -> Candidates:
    """The plans to try; without pools for a limit of p99 TTFT, of which they know only means."""
    chunks = [] if chunk is None else list(dict.fromkeys(np.ravel(chunk).tolist()))
    alone = mode is None and math.isfinite(asked.p99_ttft)
    modes = (mode,) if mode else MODES[:1] if alone else MODES
    common = Deployment.of() if places is None else Deployment.of(max_sequences=places)
    return Candidates(modes, chunks or [UNBOUNDED], common, estimator, int(top), alone)


def _agree(
    mode: str | None, asked: Requirements, tried: Candidates, decoding: HardwareLike | None
) -> None:
    """Raise InputError where an option is of another mode than the one asked for."""
    p99, chunk = asked.p99_ttft, tried.chunks[0]
    if math.isfinite(p99) and asked.rate is None:
        raise refuse("--p99-ttft", p99, "with --request-rate: arrivals make waits random")
    if math.isfinite(p99) and mode == "disaggregated":
        raise refuse("--p99-ttft", p99, "--mode aggregated: pools know the mean wait only")
    if decoding is not None and mode == "aggregated":
        raise refuse("--decode-hardware", decoding, "--mode disaggregated, or no mode")
    if chunk < UNBOUNDED and mode == "disaggregated":
        raise refuse("--chunk", chunk, "--mode aggregated, or no mode: pools take it whole")


def _money(price: float | None, currency: str | None, region: float, pue: float | None) -> Money:
    """What is paid for a GPU, and for its power."""
    if currency is not None and price is None:
        raise refuse("--currency", currency, "with --price: rents of profiles are in USD")
    return Money(price, (currency or "USD").upper(), region, pue)
