"""What is compared: predictions of two estimators, or of one with measured runs."""

from collections.abc import Sequence
from itertools import product

from infer_jax.calibration.runs import engine_of, load_of
from infer_jax.catalog.measurements import Run
from infer_jax.estimators.serving import Deployment
from infer_jax.results import option
from infer_jax.results.numbers import quantity
from infer_jax.specs import UNBOUNDED, Plan, Workload
from infer_jax.verbs import inputs
from infer_jax.verbs.compare_result import EstimatorsCompared, Prediction, RunsCompared
from infer_jax.verbs.drafts import evaluated
from infer_jax.verbs.problems import ask, refuse
from infer_jax.verbs.split import LayoutOptions, check_search, plan_of


def estimator_names(
    names: list[str], total: float | None, *, several_systems: bool
) -> Sequence[str]:
    """The two estimators that are meant, of which one is enough where systems are compared.

    One alone is set against the best.
    """
    best = inputs.BEST if total is None else inputs.SEARCHING
    if several_systems and len(names) < 2:
        return names or [best]
    if not names:
        ways = f"{option('estimator')} (one is set against serving), or {option('measured')} FILE"
        raise ask("estimator", "Which two estimators, or which measurement?", ways)
    names = names if len(names) != 1 else [best, *names]
    if len(names) != 2 or names[0] == names[1]:
        raise refuse("estimator", ", ".join(names), "two that differ")
    return names


def compare_estimators(
    sides: Sequence[inputs.Given],
    names: Sequence[str],
    work: Workload,
    split: LayoutOptions,
    total: float | None,
) -> EstimatorsCompared:
    """The answers of each estimator on each system to one question."""
    answers: list[Prediction] = []
    for asked, name in product(sides, names):
        plan, _ = plan_of(asked.model.architecture, split, total, name)
        model = inputs.estimator(name, asked)
        check_search(model, name, total)
        trusted = inputs.trust(name, model, asked)
        answers.append(Prediction(trusted, evaluated(model, asked, work, plan, name), asked))
    layout = f"the best layout of {quantity(total, 'GPU')}" if total is not None else str(split)
    return EstimatorsCompared(sides[0], work, layout, answers)


def compare_runs(asked: inputs.Given, name: str, runs: Sequence[Run]) -> RunsCompared:
    """Each run's own figures beside the estimator's for the same load and layout."""
    model = inputs.estimator(name, asked)
    if model.searches:
        raise refuse("estimator", name, "one that takes a split: runs have theirs")
    loads = [load_of(run) for run in runs]
    if name == inputs.BEST:
        model = model.with_(engine=engine_of(runs))
    if model.plan_type is not Deployment:  # its instances have tp x pp x ep chips: as many
        plans = [load.plan for load in loads]
        plain = [Plan.of(tp=x.tp * x.attention_dp / x.ep, pp=x.pp, ep=x.ep) for x in plans]
        loads = [load._replace(plan=x) for load, x in zip(loads, plain, strict=True)]
    trusted = inputs.trust(name, model, asked)
    estimates = [evaluated(model, asked, load.workload, load.plan) for load in loads]
    # what `estimate` is asked: the same program with other numbers
    going = {"waves": UNBOUNDED, "fixed": 0.0, "nominal": 0.0}
    steady = [
        None
        if run.request_rate is not None
        else evaluated(model, asked, load.workload.with_(**going), load.plan)
        for run, load in zip(runs, loads, strict=True)
    ]
    return RunsCompared(asked, name, trusted, runs, estimates, steady)
