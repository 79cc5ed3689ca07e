"""`infer-jax estimate`: one configuration, with every term of its time."""

from typing import Any

from infer_jax.catalog.published import Errors
from infer_jax.cli import estimate_drafts, estimate_view as view, options as opt, show
from infer_jax.cli.runtime import prepare
from infer_jax.estimators import Estimate, Estimator, Phase
from infer_jax.estimators.serving import ServerEstimate, Serving
from infer_jax.specs import Architecture, Experts, outputs
from infer_jax.verbs import inputs, limits
from infer_jax.verbs.requests import Requested, requested
from infer_jax.verbs.split import plan_of


def estimate(
    config: opt.Config,
    hardware: opt.HardwareName,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,  # pyright: ignore[reportArgumentType]
    total_gpus: opt.TotalGpus = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.SpreadIsl = None,
    osl: opt.SpreadOsl = None,
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    trace: opt.Trace = None,
    batch: opt.Batch = None,
    concurrency: opt.Concurrency = None,
    request_rate: opt.Rate = None,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    draft: opt.Draft = None,
    acceptance: opt.Accepted = None,
    heads: opt.Heads = False,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """What does one configuration answer: TTFT, TPOT, tokens/s, $/Mtok, and where time goes."""
    prepare()
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set)
    arch = asked.model.architecture
    plan, name = plan_of(arch, tp, pp, ep, dp, total_gpus, estimator)
    theory = inputs.estimator(name, asked)
    shipped = inputs.shipped_errors(name, theory, asked)
    agree(theory, name, total_gpus)
    if batch is not None and concurrency is not None:
        raise opt.refuse("--concurrency", concurrency, "--batch or --concurrency, not both")
    running = concurrency / dp if concurrency is not None else batch or 1.0
    asked_for = requested(isl, osl, prefix, request_rate, trace)
    requests = _arriving(asked_for, theory, batch or concurrency, dp)
    work = requests.work.replace(batch=running)
    trusted = inputs.trust(name, theory, asked)
    drafts = estimate_drafts.Asked(draft, acceptance, heads)
    life, said, made = estimate_drafts.answered(theory, asked, work, plan, drafts)
    life = _of_this(arch, life)
    if request_rate is not None and isinstance(life, ServerEstimate):
        running = float(request_rate / dp * life.latency)  # by Little's law
    limits = {
        name: {"limit_ms": 1e3 * limit, "value_ms": 1e3 * value, "met": bool(value <= limit)}
        for name, limit, value in (("ttft", ttft, life.ttft), ("tpot", tpot, life.tpot))
        if limit is not None
    }
    report = {
        **asked.names,
        "estimator": name,
        "trust": trusted.fields(),
        "isl_tokens": float(work.isl),
        "osl_tokens": float(work.osl),
        "prefix_tokens": float(work.prefix),
        "lengths": requests.lengths,
        "request_rate_per_s": request_rate,
        "drafts": made,
        "batch": running,
        "concurrency": running * dp,
        "gpus": life.chips,
        "copies": dp,
        "total_gpus": life.chips * dp,
        "feasible": bool(life.feasible),
        **_outputs(life, asked, dp),
        **_loaded(life, asked, shipped),
        "limits": limits,
        "prefill": _phase(life.prefill),
        "decode": _phase(life.decode),
    }
    said = [*requests.notes, *said]
    notes = view.notes_of(report, said, shipped) + asked.notes + inputs.too_long(asked.model, work)
    if as_json:
        show.as_json({**report, "notes": notes})
        return
    view.show_all(report, life, notes, trusted)


def _of_this(arch: Architecture, life: Estimate) -> Estimate:
    """An estimate without the limits of experts where the model has none."""
    if any(isinstance(block.feedforward, Experts) for block in arch.blocks):
        return life

    def left(phase: Phase) -> Phase:
        limits = {k: v for k, v in phase.limits.items() if k != "expert ranks"}
        return phase.replace(limits=limits)

    return life.replace(prefill=left(life.prefill), decode=left(life.decode))


def _arriving(requests: Requested, theory: Estimator, batch: float | None, dp: float) -> Requested:
    """The requests of one of ``dp`` copies."""
    arrivals = requests.work.arrivals
    if arrivals is None:
        return requests
    rate = float(arrivals.rate)
    if batch is not None:
        raise opt.refuse("--request-rate", rate, "--batch, --concurrency or --request-rate")
    if not isinstance(theory, Serving):
        raise opt.refuse("--request-rate", rate, "with --estimator serving")
    each = arrivals.replace(rate=arrivals.rate / dp)
    return requests._replace(work=requests.work.replace(arrivals=each))


def agree(theory: Estimator, name: str, total: float | None) -> None:
    """Raise InputError where the estimator searches the split and one is given, or the reverse."""
    if total is None and theory.searches:
        allowed = "one that takes a split, such as serving; or give --total-gpus"
        raise opt.refuse("--estimator", name, allowed)
    if total is not None and not theory.searches:
        raise opt.refuse("--estimator", name, "one that searches the split; or give --tp")


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "time_ms": 1e3 * phase.time,
        "terms": {f"{name}_ms": 1e3 * term for name, term in phase.terms.items()},
        "shares": {name: term / phase.time for name, term in phase.terms.items()},
        "mfu": phase.mfu,
        "feasible": bool(phase.feasible),
        "limits": {name: limits.limit_of(name, limit) for name, limit in phase.limits.items()},
        "layout": dict(phase.layout),
    }


def _outputs(life: Estimate, asked: inputs.Given, copies: float) -> dict[str, Any]:
    """Every output by its name in JSON, and the sums over all chips of ``copies`` instances."""
    answers: dict[str, Any] = {}
    for output in outputs(life):
        answers[output.json_key] = value = output.value(life, asked.hardware.power)
        if output.whole:
            answers[output.plain_key] = value * life.chips * copies
    return answers


def _loaded(life: Estimate, asked: inputs.Given, shipped: Errors | None) -> dict[str, Any]:
    """What an estimate of a loaded server says beyond any other."""
    if not isinstance(life, ServerEstimate):
        return {}
    return {
        **inputs.bands(asked.system, float(life.ttft), float(life.tpot), shipped),
        "ttft_percentiles_ms": {name: 1e3 * x for name, x in life.percentiles.items()},
        "memory": {f"{name}_bytes": x for name, x in life.memory.items()},
    }
