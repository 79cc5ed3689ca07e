"""What is compared: predictions of systems, layouts and estimators, or of one with its runs."""

from collections.abc import Mapping, Sequence
from itertools import product

from infer_jax.calibration.runs import engine_of, load_of
from infer_jax.catalog.measurements import Run
from infer_jax.estimators.serving import Deployment
from infer_jax.results import option
from infer_jax.results.numbers import quantity
from infer_jax.results.problems import ask, refuse
from infer_jax.specs import UNBOUNDED, Plan
from infer_jax.verbs import inputs
from infer_jax.verbs.compare_result import EstimatorsCompared, RunsCompared
from infer_jax.verbs.drafts import DraftedEstimate, evaluated
from infer_jax.verbs.estimate_result import EstimateResult
from infer_jax.verbs.option import either
from infer_jax.verbs.requests import RequestOptions, at_instance
from infer_jax.verbs.split import LayoutOptions, plan_of


def estimator_names(names: list[str], total: float | None, *, several: bool) -> Sequence[str]:
    """The two estimators that are meant, of which one is enough where ``several`` are compared.

    One alone is set against the best.
    """
    best = inputs.BEST if total is None else inputs.SEARCHING
    if several and len(names) < 2:
        return names or [best]
    if not names:
        others = f"a second {option('hardware')} or {option('layout')}"
        ways = f"{others}, {option('estimator')} (against serving), or {option('measured')} FILE"
        raise ask("estimator", "What is to be compared?", ways)
    names = names if len(names) != 1 else [best, *names]
    if len(names) != 2 or names[0] == names[1]:
        raise refuse("estimator", ", ".join(names), "two that differ")
    return names


def compare_estimators(
    sides: Sequence[inputs.Setup],
    names: Sequence[str],
    splits: Sequence[LayoutOptions],
    requests: RequestOptions,
    load: Mapping[str, float | None],
    total: float | None,
) -> EstimatorsCompared:
    """What ``estimate`` answers of each estimator on each system and layout.

    ``load``: the ``batch`` of an instance, or the ``concurrency`` or ``request_rate`` of all copies
    of a layout.
    """
    questions = [  # all are read before one is answered
        (setup, split, *plan_of(setup, split, total, name))
        for setup, split, name in product(sides, splits, names)
    ]
    answers: list[EstimateResult] = []
    batch, concurrency, rate = load["batch"], load["concurrency"], load["request_rate"]
    for setup, split, plan, name, model in questions:
        trusted = inputs.trust(name, model, setup, plan)
        layout = f"the best layout of {quantity(total, 'GPU')}" if total is not None else str(split)
        work = at_instance(model, requests.work, split.copies, batch, concurrency)
        found = DraftedEstimate(evaluated(model, setup, work, plan, name), [], None)
        own = requests._replace(work=work), rate, split.copies
        answers.append(EstimateResult(setup, name, trusted, found, {}, *own, layout=layout))
    work = requests.work.replace(batch=either(batch, 1.0))
    return EstimatorsCompared(work, concurrency, answers, rate, assumed=not any(load.values()))


def compare_runs(setup: inputs.Setup, name: str, runs: Sequence[Run]) -> RunsCompared:
    """Each run's own figures beside the estimator's for the same load and layout."""
    model = inputs.estimator(name, setup)
    if model.searches:
        raise refuse("estimator", name, "one that takes a split: runs have theirs")
    loads = [load_of(run) for run in runs]
    if name == inputs.BEST:
        model = model.with_(engine=engine_of(runs))
    if model.plan_type is not Deployment:  # its instances have tp x pp x ep chips: as many
        plans = [load.plan for load in loads]
        plain = [Plan.of(tp=x.tp * x.attention_dp / x.ep, pp=x.pp, ep=x.ep) for x in plans]
        loads = [load._replace(plan=x) for load, x in zip(loads, plain, strict=True)]
    trusted = inputs.trust(name, model, setup)
    estimates = [evaluated(model, setup, load.workload, load.plan) for load in loads]
    # what `estimate` is asked: the same program with other numbers
    going = {"waves": UNBOUNDED, "fixed": 0.0, "nominal": 0.0}
    steady = [
        None
        if run.request_rate is not None
        else evaluated(model, setup, load.workload.with_(**going), load.plan)
        for run, load in zip(runs, loads, strict=True)
    ]
    return RunsCompared(setup, name, trusted, runs, estimates, steady)
