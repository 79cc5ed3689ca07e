"""The estimate of one plan with the number of drafts that gives the least TPOT."""

from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from infer_jax.compiling import once
from infer_jax.estimators import Estimate, Estimator
from infer_jax.estimators.serving import ServerEstimate, Serving, shape
from infer_jax.estimators.serving.plan import deployment
from infer_jax.specs import Architecture, Hardware, Plan, Workload
from infer_jax.typed_jax import trees
from infer_jax.verbs import inputs
from infer_jax.verbs.drafts import drafting
from infer_jax.verbs.problems import ask, refuse
from infer_jax.verbs.progress import busy


class DraftOptions(NamedTuple):
    """The drafter, its acceptance, and whether the model has heads of its own."""

    draft: str | None = None
    acceptance: float | str | None = None
    heads: bool = False


class DraftedEstimate(NamedTuple):
    """An estimate, notes on its drafts, and the best number of drafts if any were tried."""

    estimate: Estimate
    notes: list[str]
    drafts: float | None


def estimate_with_best_drafts(
    estimator: Estimator, given: inputs.Given, work: Workload, plan: Plan, wanted: DraftOptions
) -> DraftedEstimate:
    """The estimate of a plan; of a server with the number of drafts that is the fastest.

    Raises:
        InputError: drafts that cannot be made, or accepted in a way that the estimator knows.
    """
    arch, hardware = given.model.architecture, given.hardware
    if not isinstance(estimator, Serving):
        estimator, notes = _wrapped(estimator, given, wanted)
        return DraftedEstimate(evaluated(estimator, given, work, plan), notes, None)
    text = None if wanted.acceptance is None else str(wanted.acceptance)
    drafts = drafting(given.model, wanted.draft, text, heads=wanted.heads)
    if drafts is None:
        return DraftedEstimate(evaluated(estimator, given, work, plan), [], None)
    with busy("compiling and evaluating"):
        estimator = estimator.with_(acceptance=drafts.acceptance)
        counts = np.array(drafts.counts)
        best, count = once(fastest, estimator, arch, drafts.draft, hardware, work, plan, counts)
    note = f"{float(count):g} drafts a pass, the fastest of 0 to {len(counts) - 1} that fit."
    return DraftedEstimate(best, [note, *drafts.notes], float(count))


def evaluated(
    estimator: Estimator, given: inputs.Given, work: Workload, plan: Plan, name: str = ""
) -> Estimate:
    """The estimate of one configuration; ``name``: of the estimator, for who waits."""
    with busy(f"compiling and evaluating {name}".rstrip()):
        arch, hardware = given.model.architecture, given.hardware
        return once(Estimator.estimate_once, estimator, arch, hardware, work, plan)


def fastest(
    estimator: Serving,
    arch: Architecture,
    draft: Architecture | None,
    hardware: Hardware,
    work: Workload,
    plan: Plan,
    counts: Array,
) -> tuple[ServerEstimate, Array]:
    """The estimate with the least TPOT of those with ``counts`` drafts, and its number of them."""
    from infer_jax.estimators.search import chosen

    seen, small = shape(arch), None if draft is None else shape(draft)

    def drafted_estimate(drafts: Array) -> ServerEstimate:
        drafted = deployment(plan).replace(drafts=drafts)
        return estimator.serve(seen, hardware, work, drafted, small)

    every = jax.vmap(drafted_estimate)(counts)
    # limits are of the plan, not of its drafts alone: where none fits, the fastest is shown
    best = chosen(1.0 - every.feasible, every.tpot)
    return trees.take(every, best), counts[best]


def _wrapped(
    estimator: Estimator, given: inputs.Given, wanted: DraftOptions
) -> tuple[Estimator, list[str]]:
    """The estimator with speculation, for those that price single passes: one acceptance."""
    if wanted.heads:
        raise refuse("--heads", "given", "with --estimator serving")
    if wanted.acceptance is None:
        return inputs.speculative(estimator, wanted.draft, None, given, paper=False)
    try:
        acceptance = float(wanted.acceptance)
    except ValueError:
        acceptance = -1.0
    if not 0.0 <= acceptance <= 1.0:
        allowed = "a probability from 0 to 1; files of curves with --estimator serving"
        raise refuse("--acceptance", wanted.acceptance, allowed)
    if wanted.draft is None:
        raise ask("--draft", "Which model drafts?", "--draft MODEL, or --estimator serving")
    return inputs.speculative(estimator, wanted.draft, acceptance, given, paper=False)
