"""``ij.compare``: systems, layouts, estimators, or prediction and measurement, term by term."""

from collections.abc import Sequence
from typing import Annotated

from infer_jax import verbs
from infer_jax.results import option
from infer_jax.results.problems import exclude, forbid, refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option, unique_texts


@verb
def compare(
    config: opt.Config,
    hardware: opt.Systems,
    *,
    estimator: Annotated[str | Sequence[str] | None, Option.of("NAME", many=True)] = None,
    measured: Annotated[opt.Places | None, Option.of("FILE", many=True)] = None,
    engine: opt.RunEngine = None,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.RunDp = None,
    layout: opt.Layouts = None,
    enable_expert_parallel: opt.ExpertParallel = False,
    enable_dp_attention: opt.DpAttention = False,
    total_gpus: opt.TotalGpus = None,
    isl: opt.RunIsl = None,
    osl: opt.RunOsl = None,
    batch: opt.Batch = None,
    concurrency: opt.Concurrency = None,
    request_rate: Annotated[float | None, Option.of("REQ/S", opt.RATE)] = None,
    prompts: Annotated[float | None, Option.of("N", opt.WHOLE)] = None,
    polling: opt.Polling = None,
    balance_timeout: opt.BalanceTimeout = None,
    sidecar: opt.Sidecar = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    price: opt.Prices = None,
    set: opt.Changes = None,
) -> "verbs.EstimatorsCompared | verbs.RunsCompared":
    """Where do systems, layouts, estimators, or prediction and measurement differ?

    ``estimator``: two names, or one to set against serving; with ``measured``, several systems or
    several layouts the one that predicts. What files of runs do not say, the options do.

    Args:
        estimator: Two of them, one to set against serving; alone, with --measured, several
            systems or several layouts.
        measured: Measured runs; repeat for several files.
        request_rate: Requests per second, arriving at random at all copies; of runs, where not in
            files.
        prompts: Requests of a run, where not in files.

    Raises:
        InputError: options of the other question, estimators that cannot answer, runs that cannot
            be read or are of another model, system or format.

    >>> import infer_jax as ij
    >>> two = ij.compare("llama-3.1-8b", "h100_sxm", estimator="economics.planned", tp=1, batch=8)
    >>> [(answer.trust.estimator, bool(answer.estimate.feasible)) for answer in two.answers]
    [('serving', True), ('economics.planned', True)]
    """
    from infer_jax.verbs import inputs
    from infer_jax.verbs.compare_answers import compare_estimators, compare_runs, estimator_names
    from infer_jax.verbs.requests import read_requests
    from infer_jax.verbs.runs import runs_of

    systems, _ = inputs.systems_of(hardware, None)
    rents = inputs.rents_of(price, systems)
    sides = [inputs.setup(config, x, quant, kv_dtype, rents.get(x.name), set) for x in systems]
    names = [estimator] if isinstance(estimator, str) else [*(estimator or ())]
    degrees = {"tp": tp, "pp": pp, "ep": ep, "dp": dp}
    flags = enable_expert_parallel, enable_dp_attention
    splits = [verbs.LayoutOptions.of(x, degrees, *flags) for x in unique_texts(layout) or [None]]
    split = splits[0]
    if engine and measured is None:
        names = [inputs.estimator_of_engine(None, engine) or "", *names]
    facts: dict[str, object] = {"dp": None if split.words else dp, "prompts": prompts}
    facts |= {"polling": polling, "balance_timeout": balance_timeout}
    if measured is None:
        for name, value in {**facts, "sidecar": sidecar}.items():
            if value is not None:
                words = str(split) or f"{value:.12g} x TP1"
                copies = f"; copies are of {option('layout', words)}" * (name == "dp")
                raise refuse(name, value, f"only with {option('measured')}{copies}")
        loads = {"batch": batch, "concurrency": concurrency, "request_rate": request_rate}
        exclude(**loads)
        several = len(sides) > 1 or len(splits) > 1
        names = estimator_names(names, total_gpus, several=several)
        requests = read_requests(isl, osl, 0.0, request_rate, None)
        inputs.check_context(sides[0].model, requests.work)
        return compare_estimators(sides, names, splits, requests, loads, total_gpus)
    with_runs = option("measured")
    if len(splits) > 1:
        raise refuse("layout", str(splits[1]), f"one with {with_runs}: that of the runs")
    if len(sides) > 1:
        others = ", ".join(one.system.name for one in sides)
        raise refuse("hardware", others, f"one system with {with_runs}: the one that was measured")
    forbid(f"none with {with_runs}: runs say what was run", batch=batch, total_gpus=total_gpus)
    if len(names) > 1:
        raise refuse("estimator", names[1], f"one of them with {with_runs}")
    facts |= {**split.facts(degrees), "engine": engine, "isl": isl, "osl": osl}
    facts |= {"concurrency": concurrency, "request_rate": request_rate}
    facts["completed"] = facts.pop("prompts")
    runs = runs_of(sides[0], measured, sidecar, **facts)
    return compare_runs(sides[0], names[0] if names else inputs.BEST, runs)
