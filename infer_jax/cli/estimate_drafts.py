"""The estimate of one plan, with the number of drafts that gives the least TPOT."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.cli.options import ask, refuse
from infer_jax.compiling import once
from infer_jax.estimators import Estimate, Estimator
from infer_jax.estimators.serving import ServerEstimate, Serving, shape
from infer_jax.estimators.serving.plan import deployment
from infer_jax.specs import Architecture, Hardware, Plan, Workload
from infer_jax.verbs import inputs
from infer_jax.verbs.drafts import drafting
from infer_jax.verbs.progress import busy


class Asked(NamedTuple):
    """What drafts, how much of it is accepted, and whether the model has heads of its own."""

    draft: str | None
    acceptance: str | None
    heads: bool


class Answered(NamedTuple):
    """An estimate, notes on its drafts, and how many there are where any are tried."""

    life: Estimate
    said: list[str]
    drafts: float | None


def answered(
    theory: Estimator, given: inputs.Given, work: Workload, plan: Plan, asked: Asked
) -> Answered:
    """What ``theory`` answers ; of a server as ``plan`` searches it.

    Raises:
        InputError: drafts that cannot be made, or accepted in a way that the estimator knows.
    """
    arch, hardware = given.model.architecture, given.hardware
    if not isinstance(theory, Serving):
        theory, said = _wrapped(theory, given, asked)
        with busy("compiling and evaluating"):
            return Answered(
                once(Estimator.estimate_once, theory, arch, hardware, work, plan), said, None
            )
    drafts = drafting(given.model, *asked[:2], heads=asked.heads)
    with busy("compiling and evaluating"):
        if drafts is None:
            return Answered(
                once(Estimator.estimate_once, theory, arch, hardware, work, plan), [], None
            )
        theory = theory.with_(acceptance=drafts.acceptance)
        counts = np.array(drafts.counts)
        life, made = once(fastest, theory, arch, drafts.draft, hardware, work, plan, counts)
    said = f"{float(made):g} drafts a pass, the fastest of 0 to {len(counts) - 1} that fit."
    return Answered(life, [said, *drafts.notes], float(made))


def fastest(
    theory: Serving,
    arch: Architecture,
    draft: Architecture | None,
    hardware: Hardware,
    work: Workload,
    plan: Plan,
    counts: Any,
) -> tuple[ServerEstimate, Any]:
    """The life with the least TPOT of those with ``counts`` drafts, and its number of drafts."""
    seen, small = shape(arch), None if draft is None else shape(draft)

    def one(drafts: Any) -> ServerEstimate:
        return theory.serve(seen, hardware, work, deployment(plan).replace(drafts=drafts), small)

    lives = jax.vmap(one)(counts)
    # limits are of the plan, not of its drafts alone: where none fits, the fastest is shown
    fits = lives.feasible | ~jnp.any(lives.feasible)
    best = jnp.argmin(jnp.where(fits, lives.tpot, jnp.inf))
    return jax.tree.map(lambda x: x[best], lives), counts[best]


def _wrapped(theory: Estimator, given: inputs.Given, asked: Asked) -> tuple[Estimator, list[str]]:
    """Theories of a single pass, which know a model that drafts and one acceptance."""
    if asked.heads:
        raise refuse("--heads", "given", "with --estimator serving")
    if asked.acceptance is None:
        return inputs.speculative(theory, asked.draft, None, given, paper=False)
    try:
        acceptance = float(asked.acceptance)
    except ValueError:
        acceptance = -1.0
    if not 0.0 <= acceptance <= 1.0:
        allowed = "a probability from 0 to 1; files of curves with --estimator serving"
        raise refuse("--acceptance", asked.acceptance, allowed)
    if asked.draft is None:
        raise ask("--draft", "Which model drafts?", "--draft MODEL, or --estimator serving")
    return inputs.speculative(theory, asked.draft, acceptance, given, paper=False)
