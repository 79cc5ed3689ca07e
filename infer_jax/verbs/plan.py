"""``ij.plan``: the cheapest system, layout and concurrency within limits."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from infer_jax.results import option
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import (
    Number,
    OneOf,
    Option,
    Time,
    above_zero,
    either,
    look_up,
    seconds_of,
)
from infer_jax.verbs.options import HardwareLike
from infer_jax.verbs.problems import ask, refuse
from infer_jax.verbs.texts import unique_texts

if TYPE_CHECKING:
    from infer_jax.planning import Requirements
    from infer_jax.verbs.plan_result import PlanResult

USUAL_TTFT = 2.0  # seconds, as ``planning`` has it, which imports JAX; a test holds them equal


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
        Option(
            "aggregated or disaggregated; both where not given.",
            "MODE",
            OneOf(look_up("planning", "MODES")),
        ),
    ] = None,
    isl: opt.SpreadIsl = None,
    osl: opt.SpreadOsl = None,
    prefix: opt.Prefix = 0.0,
    trace: opt.Trace = None,
    ttft: Annotated[
        float | str | None,
        Option(
            "Limit of the mean time to first token: 300ms, 0.3s; "
            f"{USUAL_TTFT:g} s where not given, if any plan meets it; none: no limit.",
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
    engine_version: opt.EngineVersion = None,
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
) -> "PlanResult":
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
    import numpy as np

    from infer_jax.estimators.serving import Deployment
    from infer_jax.planning import MODES
    from infer_jax.specs import UNBOUNDED
    from infer_jax.verbs import inputs
    from infer_jax.verbs.drafts import DraftOptions, drafting
    from infer_jax.verbs.plan_result import PlanResult
    from infer_jax.verbs.plan_search import Question, plans
    from infer_jax.verbs.requests import requested

    model = inputs.model_of(config, None, None)  # a wrong name is refused before a question
    systems, decoding = inputs.systems_of(hardware, decode_hardware)
    limits = seconds_of(ttft), seconds_of(tpot), seconds_of(p99_ttft)
    requirements = _requirements((total_gpus, concurrency, request_rate), limits, frontier)
    chunks = [] if chunk is None else list(dict.fromkeys(np.ravel(chunk).tolist()))
    _check_options(mode, requirements, decode_hardware, chunks, (price, currency))
    requests = requested(isl, osl, prefix, request_rate, trace)
    pools_excluded = mode is None and math.isfinite(requirements.p99_ttft)  # whose wait is a mean
    question = Question(
        config,
        systems,
        requests,
        requirements,
        formats=unique_texts(quant) or [None],
        kv_dtype=kv_dtype,
        set=set,
        estimator=_estimator_name(engine, estimator),
        decoding=decoding,
        price=price,
        engine_version=engine_version,
        currency=(currency or "USD").upper(),
        region=region_factor,
        pue=pue,
        modes=(mode,) if mode else MODES[:1] if pools_excluded else MODES,
        chunks=chunks or [UNBOUNDED],
        common=Deployment.of(**({} if max_num_seqs is None else {"max_sequences": max_num_seqs})),
        drafts=drafting(model, DraftOptions(draft, acceptance, heads)),
        draft=draft,
        top=int(top),
        pools_excluded=pools_excluded,
    )
    if confidence is None:
        answer = plans(question)
    else:
        from infer_jax.verbs.plan_confidence import confident_answer  # other plans need not load it

        answer = confident_answer(question, confidence)
    if replay:
        from infer_jax.verbs.plan_replay import replay_plans

        replay_plans(question, answer)
    return PlanResult(question, answer)


def _estimator_name(engine: str | None, estimator: str | None) -> str:
    if engine and estimator:
        allowed = f"without {option('estimator')}, which has an engine of its own"
        raise refuse("engine", engine, allowed)
    return estimator or (f"serving.{engine}" if engine else "serving")


def _requirements(
    load: tuple[float | None, float | None, float | None],
    limits: tuple[float | None, float | None, float | None],
    frontier: bool,
) -> "Requirements":
    """GPUs, concurrency or rate, and limits in seconds of TTFT, TPOT and the 99 % of TTFT."""
    from infer_jax.planning import Requirements

    (total, concurrency, rate), (ttft, tpot, p99) = load, limits
    if concurrency is not None and rate is not None:
        allowed = f"{option('concurrency')} or {option('request-rate')}, not both"
        raise refuse("request_rate", rate, allowed)
    if total is None and concurrency is None and rate is None:
        question = "How many GPUs are there, or how much traffic is to be served?"
        ways = f"{option('total-gpus')}, {option('concurrency')} or {option('request-rate')}"
        raise ask("total_gpus", question, ways)
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


def _check_options(
    mode: str | None,
    requirements: "Requirements",
    decoding: HardwareLike | None,
    chunks: Sequence[float],
    rent: tuple[float | None, str | None],
) -> None:
    """Raise InputError where an option is of another mode, or needs another option."""
    p99, pools, (price, currency) = requirements.p99_ttft, mode == "disaggregated", rent
    together = option("mode", "aggregated")
    if math.isfinite(p99) and requirements.rate is None:
        allowed = f"with {option('request-rate')}: arrivals make waits random"
        raise refuse("p99_ttft", p99, allowed)
    if math.isfinite(p99) and pools:
        raise refuse("p99_ttft", p99, f"{together}: pools know the mean wait only")
    if decoding is not None and mode == "aggregated":
        raise refuse("decode_hardware", decoding, f"{option('mode', 'disaggregated')}, or no mode")
    if chunks and pools:
        raise refuse("chunk", chunks[0], f"{together}, or no mode: pools take it whole")
    if currency is not None and price is None:
        allowed = f"with {option('price')}: rents of profiles are in USD"
        raise refuse("currency", currency, allowed)
