"""The plan that a report is about, chosen among systems and formats."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from infer_jax.estimators import VARIANTS
from infer_jax.planning import USUAL_TTFT, Choice
from infer_jax.planning.given import given_choice, point_of
from infer_jax.results import option
from infer_jax.results.problems import refuse
from infer_jax.verbs import inputs
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.option import either
from infer_jax.verbs.plan_search import Question, considered, frontiers, plans
from infer_jax.verbs.report_answers import Report
from infer_jax.verbs.split import LayoutOptions, plan_of

GPUS = 8.0  # the GPUs of a plan where none are given: one server


def choose(question: Question, split: LayoutOptions, batch: float | None) -> Report:
    """The plan as it is given, on the system where it is best, or the one ``plan`` puts first."""
    name, systems = question.estimator, dict[str, Setup]()
    for label, form, (system, *_) in question.series():
        systems[label] = question.read(system, form)
        if inputs.estimator(name, systems[label]).searches:
            raise refuse("estimator", name, "one that takes a split: serving, economics.planned")
        inputs.check_context(systems[label].model, question.requests.work)
    if split.pools:
        return _as_given(question, systems, split, batch)
    degrees = option("tp")
    if not VARIANTS[name].make().batches:
        others = f"(with {option('pp')}, {option('ep')}), or {option('estimator', 'serving')}"
        raise refuse("tp", "missing", f"{degrees} {others}")
    if split.copies > 1:
        raise refuse("dp", split.copies, f"with {degrees}: copies of a plan that is looked for")
    if batch is not None:
        raise refuse("batch", batch, f"with {degrees}: a plan that is looked for has its own")
    return _searched(question, systems)


def _on_gpus(question: Question, chips: float) -> Question:
    return replace(question, requirements=replace(question.requirements, chips=chips))


def _searched(question: Question, systems: Mapping[str, Setup]) -> Report:
    """The plan that ``plan`` puts first, or the nearest miss."""
    total = question.total
    question = _on_gpus(question, either(total, GPUS))
    limits, answer = question.requirements, plans(question)
    gpus = f"{limits.chips:g} GPUs"
    first = min(answer.met or answer.missed, key=lambda c: c.rank, default=None)
    if first is None:
        raise refuse("total_gpus", f"{limits.chips:g}", "more: no layout fits so few GPUs")
    if answer.met:
        limited = np.isfinite((limits.ttft, limits.tpot)).any() or answer.usual
        why = f"The cheapest of {answer.configurations} layouts and batches on {gpus}"
        why += " that meet the limits." if limited else "."
        why += f" TTFT is kept within {USUAL_TTFT:g} s." if answer.usual else ""
    else:
        broken = ", ".join(f"{name} by {share:.1%}" for name, share in first.excess.items())
        why = f"No plan on {gpus} meets every limit; the nearest breaks {broken}."
    best = [search.found.first for search in answer.searches.values()]
    candidates = [_late(c) if answer.usual else c for c in best if c is not None]
    return Report(
        question,
        next(c for c in candidates if c.label == first.label),
        why,
        candidates,
        systems,
        frontiers(question, {label: x.systems for label, x in answer.searches.items()}),
        total,
        answer.usual,
    )


def _late(c: Choice) -> Choice:
    """A plan with the usual TTFT among its limits, which its system may not reach."""
    late = c.ttft / USUAL_TTFT - 1.0
    return replace(c, excess={"TTFT": late, **c.excess}) if late > 0.0 else c


def _as_given(
    question: Question, systems: Mapping[str, Setup], split: LayoutOptions, batch: float | None
) -> Report:
    """The plan of the options, on the system and in the format where it is best."""
    total, candidates = question.total, list[Choice]()
    for label, setup in systems.items():
        plan_of(setup.model.architecture, split, total, question.estimator)  # checks it
        assert split.pool is not None
        pool = split.pool._replace(batch=either(batch, 1.0))
        ideal, work = inputs.estimator(question.estimator, setup), question.requests.work
        point = point_of(ideal, setup.model.architecture, setup.hardware, work, (pool,))
        c = given_choice(setup.system.name, pool, point, question.requirements)
        formats, trusts = setup.model.quantisation, [inputs.trust(question.estimator, ideal, setup)]
        candidates.append(replace(c, label=label, formats=formats, trusts=trusts))
    chosen, why = min(candidates, key=lambda c: c.rank), "The plan is as given."
    if len(candidates) > 1:
        why = f"The plan is as given, on the one of {len(candidates)} systems and formats that "
        why += "serves it for the fewest dollars within the limits."
    question = _on_gpus(question, either(total, max(GPUS, chosen.chips)))
    fronts = None
    if VARIANTS[question.estimator].make().batches:
        fronts = frontiers(question, dict(considered(question)))
    return Report(question, chosen, why, candidates, systems, fronts, total)
