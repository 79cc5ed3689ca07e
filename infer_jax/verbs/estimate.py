"""``ij.estimate``: TTFT, TPOT, tokens/s, $/Mtok and every term of one configuration."""

from collections.abc import Mapping
from typing import NamedTuple

from infer_jax.estimators import Estimate, Estimator, Phase
from infer_jax.estimators.serving import ServerEstimate
from infer_jax.results import option
from infer_jax.specs import Architecture, Experts
from infer_jax.verbs import inputs, options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.drafts import DraftedEstimate, DraftOptions, estimate_with_best_drafts
from infer_jax.verbs.estimate_result import EstimateLoad, EstimateResult
from infer_jax.verbs.option import either, seconds_of
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.requests import Requested, requested
from infer_jax.verbs.split import check_search, plan_of

OF_PROFILE = "the calibration of this profile"
OF_OTHERS = "rows left out of the fit with all others of their publisher"


@verb
def estimate(
    config: opt.Config,
    hardware: opt.System,
    *,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,
    total_gpus: opt.TotalGpus = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.SpreadIsl = None,
    osl: opt.SpreadOsl = None,
    prefix: opt.Prefix = 0,
    trace: opt.Trace = None,
    batch: opt.Batch = None,
    concurrency: opt.Concurrency = None,
    request_rate: opt.RequestRate = None,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    draft: opt.Draft = None,
    acceptance: opt.Acceptance = None,
    heads: opt.Heads = False,
    set: opt.Changes = None,  # the option's name
) -> EstimateResult:
    """What does one configuration answer: TTFT, TPOT, tokens/s, $/Mtok, and where time goes.

    ``isl`` and ``osl`` are tokens, or "2200±600" with a ``request_rate``; ``ttft`` and ``tpot``
    are limits, shown as met or broken: seconds, or a text with a unit such as "30ms".

    Raises:
        InputError: a model or system that cannot be read, a split that no engine runs, options
            that exclude each other.

    >>> import infer_jax as ij
    >>> answer = ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, batch=32)
    >>> bool(answer.estimate.feasible), 15e-3 < float(answer.estimate.tpot) < 25e-3
    (True, True)
    """
    load = LoadOptions(request_rate, batch, concurrency, dp)
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set)
    plan, name = plan_of(asked.model.architecture, tp, pp, ep, dp, total_gpus, estimator)
    model = inputs.estimator(name, asked)
    check_search(model, name, total_gpus)
    if batch is not None and concurrency is not None:
        allowed = f"{option('batch')} or {option('concurrency')}, not both"
        raise refuse("concurrency", concurrency, allowed)
    requests = _arriving(requested(isl, osl, prefix, request_rate, trace), model, load)
    work = requests.work.replace(batch=load.batch_of_one)
    inputs.check_context(asked.model, work)
    answer = estimate_with_best_drafts(
        model, asked, work, plan, DraftOptions(draft, acceptance, heads)
    )
    asked_for = ("ttft", seconds_of(ttft)), ("tpot", seconds_of(tpot))
    limits = {name: limit for name, limit in asked_for if limit is not None}
    return _result(asked, (name, model), load, requests._replace(work=work), answer, limits)


class LoadOptions(NamedTuple):
    """Requests a second, requests running in one instance or in all ``copies``, as options."""

    rate: float | None
    batch: float | None
    concurrency: float | None
    copies: float

    @property
    def batch_of_one(self) -> float:
        """Requests running at once in one instance, where they are given; 1 where not."""
        if self.concurrency is not None:
            return self.concurrency / self.copies
        return either(self.batch, 1.0)


def _result(
    asked: inputs.Given,
    named: tuple[str, Estimator],
    load: LoadOptions,
    requests: Requested,
    drafted: DraftedEstimate,
    limits: Mapping[str, float],
) -> EstimateResult:
    """The answer with its known errors, and the requests that run at once."""
    name, model = named
    known = inputs.trust(name, model, asked)
    answer = drop_absent_experts(asked.model.architecture, drafted.estimate)
    batch, bands = load.batch_of_one, {}
    if isinstance(answer, ServerEstimate) and load.rate is not None:
        batch = float(load.rate / load.copies * answer.latency)  # by Little's law
    shipped = inputs.shipped_within(name, model, asked, batch)
    if isinstance(answer, ServerEstimate):
        bands = inputs.bands(asked.system, float(answer.ttft), float(answer.tpot), shipped)
    return EstimateResult(
        asked=asked,
        estimator=name,
        trust=known,
        load=EstimateLoad(requests, load.rate, load.copies, batch, drafted.drafts, drafted.notes),
        estimate=answer,
        intervals=bands,
        interval_source=OF_OTHERS if shipped else OF_PROFILE,
        limits=limits,
    )


def drop_absent_experts(arch: Architecture, estimate: Estimate) -> Estimate:
    """An estimate without the limits of experts where the model has none."""
    if any(isinstance(block.feedforward, Experts) for block in arch.blocks):
        return estimate

    def left(phase: Phase) -> Phase:
        limits = {k: v for k, v in phase.limits.items() if k != "expert ranks"}
        return phase.replace(limits=limits)

    return estimate.replace(prefill=left(estimate.prefill), decode=left(estimate.decode))


def _arriving(requests: Requested, estimator: Estimator, load: LoadOptions) -> Requested:
    """The requests of one of the copies."""
    arrivals = requests.work.arrivals
    if arrivals is None:
        return requests
    rate = float(arrivals.rate)
    if load.batch is not None or load.concurrency is not None:
        loads = f"{option('batch')}, {option('concurrency')} or {option('request_rate')}"
        raise refuse("request_rate", rate, loads)
    if not estimator.batches:
        raise refuse("request_rate", rate, f"with {option('estimator', 'serving')}")
    each = arrivals.replace(rate=arrivals.rate / load.copies)
    return requests._replace(work=requests.work.replace(arrivals=each))
