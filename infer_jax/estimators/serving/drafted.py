"""Estimates of one server at several numbers of drafted tokens, and the fastest of them."""

import jax
from jax import Array

from infer_jax.estimators.search import chosen
from infer_jax.estimators.serving.lowered import shape
from infer_jax.estimators.serving.model import Serving
from infer_jax.estimators.serving.plan import deployment
from infer_jax.estimators.serving.server_estimate import ServerEstimate
from infer_jax.specs import Architecture, Hardware, Plan, Workload
from infer_jax.typed_jax import trees


def fastest_drafts(
    estimator: Serving,
    arch: Architecture,
    draft: Architecture | None,
    hardware: Hardware,
    work: Workload,
    plan: Plan,
    counts: Array,
) -> tuple[ServerEstimate, Array]:
    """The estimate with the least TPOT of those with ``counts`` drafts, and its number of them."""
    model, small = shape(arch), None if draft is None else shape(draft)

    def drafted_estimate(drafts: Array) -> ServerEstimate:
        drafted = deployment(plan).replace(drafts=drafts)
        return estimator.estimate_shape(model, hardware, work, drafted, small)

    every = jax.vmap(drafted_estimate)(counts)
    # limits are of the plan, not of its drafts alone: where none fits, the fastest is shown
    best = chosen(1.0 - every.feasible, every.tpot)
    return trees.take(every, best), counts[best]
