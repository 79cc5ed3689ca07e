"""``ij.estimate``: TTFT, TPOT, tokens/s, $/Mtok and every term of one configuration."""

from typing import Annotated

from infer_jax import verbs
from infer_jax.results.problems import exclude
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option, seconds_of, without_none


@verb
def estimate(
    config: opt.Config,
    hardware: opt.System,
    *,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,
    layout: opt.Layout = None,
    enable_expert_parallel: opt.ExpertParallel = False,
    enable_dp_attention: opt.DpAttention = False,
    total_gpus: opt.TotalGpus = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.SpreadIsl = None,
    osl: opt.SpreadOsl = None,
    prefix: opt.Prefix = 0,
    trace: opt.Trace = None,
    batch: opt.Batch = None,
    concurrency: opt.Concurrency = None,
    request_rate: Annotated[float | None, Option.of("REQ/S", opt.RATE)] = None,
    prompts: Annotated[float | None, Option.of("N", opt.WHOLE)] = None,
    polling: opt.Polling = None,
    balance_timeout: opt.BalanceTimeout = None,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    price: opt.Prices = None,
    estimator: opt.EstimatorName = None,
    engine: opt.Engine = None,
    engine_version: opt.EngineVersion = None,
    draft: opt.Draft = None,
    acceptance: opt.Acceptance = None,
    heads: opt.Heads = False,
    set: opt.Changes = None,
) -> "verbs.EstimateResult":
    """What does one configuration answer: TTFT, TPOT, tokens/s, $/Mtok, and where time goes.

    ``isl`` and ``osl`` are tokens, or "2200±600" with a ``request_rate``; ``ttft`` and ``tpot``
    are limits, shown as met or broken: seconds, or a text with a unit such as "30ms". ``ttft`` is
    a mean; that of a benchmark of so many ``prompts`` holds the wait at its start.

    Args:
        request_rate: Requests per second, arriving at random (Poisson).
        prompts: Requests of a benchmark, whose first ones all come at once; of a server that runs
            on where not given.

    Raises:
        InputError: a model or system that cannot be read, a split that no engine runs, options
            that exclude each other.

    >>> import infer_jax as ij
    >>> answer = ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, batch=32)
    >>> bool(answer.estimate.feasible), 15e-3 < float(answer.estimate.tpot) < 25e-3
    (True, True)
    """
    from infer_jax.estimators.serving.plan import deployment
    from infer_jax.verbs import inputs
    from infer_jax.verbs.drafts import DraftOptions, estimate_with_best_drafts
    from infer_jax.verbs.requests import at_instance, read_requests, with_benchmark
    from infer_jax.verbs.split import LayoutOptions, plan_of

    setup = inputs.setup(config, hardware, quant, kv_dtype, price, set, engine_version)
    degrees = {"tp": tp, "pp": pp, "ep": ep, "dp": dp}
    split = LayoutOptions.of(layout, degrees, enable_expert_parallel, enable_dp_attention)
    dp = split.copies
    wanted = inputs.estimator_of_engine(estimator, engine)
    plan, name, model = plan_of(setup, split, total_gpus, wanted)
    exclude(batch=batch, concurrency=concurrency, request_rate=request_rate)
    requests = read_requests(isl, osl, prefix, request_rate, trace)
    work = at_instance(model, requests.work, dp, batch, concurrency)
    turns = {"polling": polling, "balance_timeout": balance_timeout}
    work, plan = with_benchmark(model, work, plan, prompts and prompts / dp, turns)
    inputs.check_context(setup.model, work)
    options = DraftOptions(draft, acceptance, heads)
    answer = estimate_with_best_drafts(model, setup, work, plan, options)
    if answer.drafts:
        plan = deployment(plan).replace(drafts=answer.drafts)
    known = inputs.trust(name, model, setup, plan)
    limits = without_none(ttft=seconds_of(ttft), tpot=seconds_of(tpot))
    load = requests._replace(work=work), request_rate, dp, prompts
    return verbs.EstimateResult(setup, name, known, answer, limits, *load)
