"""What is compared: predictions of systems, layouts and estimators, or of one with its runs."""

from collections.abc import Sequence
from itertools import product

from infer_jax.calibration.runs import engine_of, load_of
from infer_jax.catalog.measurements import Run
from infer_jax.estimators.serving import Deployment, ServerEstimate
from infer_jax.results import option
from infer_jax.results.numbers import quantity
from infer_jax.results.problems import ask, refuse
from infer_jax.specs import UNBOUNDED, Arrivals, Plan, Workload
from infer_jax.verbs import inputs
from infer_jax.verbs.compare_result import EstimatorsCompared, Prediction, RunsCompared
from infer_jax.verbs.drafts import evaluated
from infer_jax.verbs.split import LayoutOptions, check_search, plan_of


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
    work: Workload,
    concurrency: float | None,
    total: float | None,
    rate: float | None = None,
) -> EstimatorsCompared:
    """The answers of each estimator on each system and layout to one question.

    ``concurrency``: requests in flight in all copies of a layout; None: ``work`` has an instance's.
    ``rate``: requests a second, arriving at random, at all copies.
    """
    questions: list[tuple[inputs.Setup, LayoutOptions, str, Plan]] = []
    for setup, split, name in product(sides, splits, names):  # all are read before one is answered
        plan, _ = plan_of(setup.model.architecture, split, total, name)
        questions.append((setup, split, name, plan))
    answers: list[Prediction] = []
    for setup, split, name, plan in questions:
        model = inputs.estimator(name, setup)
        check_search(model, name, total)
        if rate is not None and not model.batches:
            raise refuse("request_rate", rate, f"with {option('estimator', 'serving')}")
        trusted = inputs.trust(name, model, setup, plan)
        layout = f"the best layout of {quantity(total, 'GPU')}" if total is not None else str(split)
        own = work if concurrency is None else work.with_(batch=concurrency / split.copies)
        if rate is not None:
            own = own.replace(arrivals=Arrivals.of(rate=rate / split.copies))
        found = evaluated(model, setup, own, plan, name)
        batch = own.batch
        if rate is not None and isinstance(found, ServerEstimate):  # by Little's law
            batch = rate / split.copies * found.latency
        answers.append(Prediction(trusted, found, setup, layout, float(batch)))
    return EstimatorsCompared(work, concurrency, answers, rate)


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
