"""Autoscalers of a fleet as a sweep: many numbers at once, with its checkpoint and devices."""

import jax.numpy as jnp
import numpy as np

from infer_jax.fleets import Autoscaler, FleetEstimator
from infer_jax.results.problems import refuse
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import Axis, Pareto, Space, SweepResult
from infer_jax.sweeps.reducers import Reducer
from infer_jax.verbs.fleet_policies import WINDOW, Fleet


def estimator_of(fleet: Fleet, policy: Autoscaler) -> FleetEstimator:
    """Policies for a sweep: ``policy`` has an ``Axis`` for each number that is tried.

    Raises:
        InputError: no two pools serve all that comes, so that none is scaled.
    """
    base, at, most, given = fleet.scaling
    if at < 0:
        allowed = "none: no two kinds of replicas serve all that comes"
        raise refuse("policy", type(policy).__name__, allowed)
    if not isinstance(policy.maximum, Axis):
        policy = policy.replace(maximum=np.minimum(policy.maximum, most))
    window = getattr(policy, "stabilization", WINDOW)
    longest = max(window.steps) if isinstance(window, Axis) else float(window)
    order = [at, *(i for i in range(len(base)) if i != at)]
    chips = jnp.array([fleet.pools[i].layout.chips for i in order])
    depth = fleet.depth(max(longest, WINDOW))
    return FleetEstimator(policy=policy, given=given, chips=chips, depth=depth, steps=fleet.steps)


def sweep_autoscalers(
    fleet: Fleet, work: Workload, policy: Autoscaler, keep: Reducer | None = None, **options: object
) -> SweepResult:
    """Which of many autoscalers pay: ``policy`` has an ``Axis`` for each number that is tried.

    ``ij.sweep`` of ``FleetEstimator``, with its ``options``; without ``keep`` the frontier of USD a
    day and the share of good requests in the worst period; in float64 where not given.

    Raises:
        InputError: as ``ij.sweep``; no two kinds of replicas serve all that comes.
    """
    from infer_jax.verbs.sweep import sweep

    setup = fleet.pools[0].setup
    space = Space(setup.model.architecture, setup.hardware, work, Plan.of())
    keep, every = keep or Pareto("usd_per_day", "goodput"), estimator_of(fleet, policy)
    options = {"precision": "float64", "legal": False, **options}
    return sweep(space, keep=keep, estimator=every, **options)  # pyright: ignore[reportArgumentType]
