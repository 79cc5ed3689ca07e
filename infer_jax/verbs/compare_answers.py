"""What is compared: predictions of two estimators, or of one with measured runs."""

from collections.abc import Mapping, Sequence
from itertools import product

from infer_jax.calibration.runs import engine_of, load_of
from infer_jax.catalog.measurements import Run
from infer_jax.estimators.serving import Deployment
from infer_jax.results.numbers import quantity
from infer_jax.specs import UNBOUNDED, Plan, Workload, layout_label
from infer_jax.verbs import inputs
from infer_jax.verbs.compare_result import EstimatorsCompared, Prediction, RunsCompared
from infer_jax.verbs.drafts import evaluated
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.split import check_search, plan_of


def compare_estimators(
    sides: Sequence[inputs.Given],
    names: Sequence[str],
    work: Workload,
    degrees: Mapping[str, float | None],
    total: float | None,
) -> EstimatorsCompared:
    """The answers of each estimator on each system to one question."""
    answers: list[Prediction] = []
    for asked, name in product(sides, names):
        plan, _ = plan_of(asked.model.architecture, **degrees, dp=1.0, total=total, name=name)
        model = inputs.estimator(name, asked)
        check_search(model, name, total)
        trusted = inputs.trust(name, model, asked)
        answers.append(Prediction(trusted, evaluated(model, asked, work, plan, name), asked))
    layout = layout_label(degrees)
    if total is not None:
        layout = f"the best layout of {quantity(total, 'GPU')}"
    return EstimatorsCompared(sides[0], work, layout, answers)


def compare_runs(asked: inputs.Given, name: str, runs: Sequence[Run]) -> RunsCompared:
    """Each run's own figures beside the estimator's for the same load and layout."""
    model = inputs.estimator(name, asked)
    if model.searches:
        raise refuse("estimator", name, "one that takes a split: runs have theirs")
    loads = [load_of(run) for run in runs]
    if name == inputs.BEST:
        model = model.with_(engine=engine_of(runs))
    if model.plan_type is not Deployment:
        loads = [load._replace(plan=_plain(load.plan)) for load in loads]
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


def _plain(plan: Deployment) -> Plan:
    """A deployment on as many chips for estimators whose instances have tp x pp x ep."""
    return Plan.of(tp=plan.tp * plan.attention_dp / plan.ep, pp=plan.pp, ep=plan.ep)
