"""Speculative decoding: the drafter, the numbers of drafts tried, and their acceptance."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from infer_jax.catalog import Model
from infer_jax.catalog.acceptance import named_curve
from infer_jax.compiling import once
from infer_jax.estimators import Estimate, Estimator
from infer_jax.estimators.serving import Serving
from infer_jax.estimators.serving.model import fastest_drafts
from infer_jax.estimators.speculative import Drafting
from infer_jax.physics.speculation import acceptance_by_position, heads_acceptance
from infer_jax.results import option
from infer_jax.results.problems import ask, refuse
from infer_jax.specs import Plan, Workload
from infer_jax.verbs import inputs
from infer_jax.verbs.progress import busy


class DraftOptions(NamedTuple):
    """The drafter, its acceptance, and whether the model has heads of its own."""

    draft: str | None = None
    acceptance: float | str | None = None
    heads: bool = False


def drafting(model: Model, wanted: DraftOptions) -> Drafting | None:
    """The drafting that the options ask for; None if they ask for none.

    Raises:
        InputError: a draft without an acceptance; a model without heads and nothing that drafts;
            curves that cannot be read, or of which none is of the model.
    """
    draft, heads = wanted.draft, wanted.heads
    if wanted.acceptance is None:
        if draft is not None or heads:
            drafter = option("draft" if draft is not None else "heads")
            ways = f"{option('acceptance')} with a probability or a file"
            raise ask("acceptance", f"How much of what {drafter} drafts is accepted?", ways)
        return None
    if draft is not None and heads:
        raise refuse("heads", "given", f"{option('draft')} or {option('heads')}, not both")
    small = None if draft is None else inputs.named_model("draft", draft)
    own, acceptance = float(model.architecture.draft_layers), str(wanted.acceptance)
    if small is None and not own and not heads:
        own_heads = f"{option('heads')}: it has no num_nextn_predict_layers"
        raise refuse("acceptance", acceptance, f"{option('draft')} MODEL, or {own_heads}")
    curve, source = _acceptance(model, acceptance, flat=small is not None)
    if small is not None:
        notes = [f"{small.name} drafts, on the same chips.", *inputs.notes_of_draft(small)]
    elif own:
        notes = [f"Drafts are of the model's own heads: {own:g} in its config.json, used again."]
    else:
        notes = [f"Drafts are of heads of one layer beside the model ({option('heads')})."]
    return Drafting(None if small is None else small.architecture, curve, [*notes, source])


def _acceptance(model: Model, text: str, *, flat: bool) -> tuple[np.ndarray | float, str]:
    """Acceptance by position, or one for all positions, and its source in words."""
    first = _probability(text, "a probability from 0 to 1, or a file of curves")
    if first is None:
        curve = named_curve(text, model.name)
        accepted = acceptance_by_position(jnp.asarray(curve.per_position))
        return np.asarray(accepted), f"Acceptance by position: {curve.model}, {curve.mode}."
    if flat:
        return first, f"{first:g} of drafts accepted at every position."
    source = f"{first:g} of first drafts accepted, fewer later (InferenceX, DeepSeek-V4-Pro)."
    return np.asarray(heads_acceptance(jnp.asarray(first))), source


def _probability(text: str, allowed: str) -> float | None:
    """The probability that an acceptance is; None where it names a file."""
    try:
        number = float(text)
    except ValueError:
        return None
    if not 0.0 <= number <= 1.0:
        raise refuse("acceptance", text, allowed)
    return number


class DraftedEstimate(NamedTuple):
    """An estimate, notes on its drafts, and the best number of drafts if any were tried."""

    estimate: Estimate
    notes: list[str]
    drafts: float | None


def estimate_with_best_drafts(
    estimator: Estimator, setup: inputs.Setup, work: Workload, plan: Plan, wanted: DraftOptions
) -> DraftedEstimate:
    """The estimate of a plan; of a server with the number of drafts that is the fastest.

    Raises:
        InputError: drafts that cannot be made, or accepted in a way that the estimator knows.
    """
    arch, hardware = setup.model.architecture, setup.hardware
    if not isinstance(estimator, Serving):
        estimator, notes = _wrapped(estimator, wanted)
        return DraftedEstimate(evaluated(estimator, setup, work, plan), notes, None)
    drafts, fixed = drafting(setup.model, wanted), float(getattr(plan, "drafts", 0.0))
    if drafts is None and fixed:
        ways = f"{option('acceptance')} with a probability or a file"
        raise ask("acceptance", "How many of the drafts of the layout are accepted?", ways)
    if drafts is None:
        return DraftedEstimate(evaluated(estimator, setup, work, plan), [], None)
    with busy("compiling and evaluating"):
        estimator = estimator.with_(acceptance=drafts.acceptance)
        counts = np.array([fixed] if fixed else drafts.counts)
        parts = estimator, arch, drafts.draft, hardware, work, plan
        best, count = once(fastest_drafts, *parts, counts)
    why = "as the layout says" if fixed else f"the fastest of 0 to {len(counts) - 1} that fit"
    note = f"{float(count):g} drafts a pass, {why}."
    return DraftedEstimate(best, [note, *drafts.notes], float(count))


def evaluated(
    estimator: Estimator, setup: inputs.Setup, work: Workload, plan: Plan, name: str = ""
) -> Estimate:
    """The estimate of one configuration; ``name``: of the estimator, for who waits."""
    with busy(f"compiling and evaluating {name}".rstrip()):
        arch, hardware = setup.model.architecture, setup.hardware
        return once(Estimator.estimate_once, estimator, arch, hardware, work, plan)


def _wrapped(estimator: Estimator, wanted: DraftOptions) -> tuple[Estimator, list[str]]:
    """The estimator with speculation, for those that price single passes: one acceptance."""
    of_servers = f"{option('estimator')} serving"
    if wanted.heads:
        raise refuse("heads", "given", f"with {of_servers}")
    if wanted.acceptance is None:
        return inputs.speculative(estimator, wanted.draft, None, paper=False)
    allowed = f"a probability from 0 to 1; files of curves with {of_servers}"
    acceptance = _probability(str(wanted.acceptance), allowed)
    if acceptance is None:
        raise refuse("acceptance", wanted.acceptance, allowed)
    if wanted.draft is None:
        raise ask("draft", "Which model drafts?", f"{option('draft')} MODEL, or {of_servers}")
    return inputs.speculative(estimator, wanted.draft, acceptance, paper=False)
