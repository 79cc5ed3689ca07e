"""Planning: the cheapest layout, batch and pools of chips that serve a model within limits.

A plan is a ``Choice``: its pools of instances, its times and dollars, and how far measured servers
are from them. ``search`` finds it in the ``PlanSpace`` of a question:

1. ``layout``: the layouts that an engine runs, on instances that fill machines.
2. ``instances``: the estimate of every layout at every batch, or with its share of the arrivals;
   ``pools``, ``pool_pairs``: of pairs of pools that prefill and decode.
3. ``pricing``: replicas, dollars per request, and by how much each estimate exceeds each limit.
4. ``cheapest``: the cheapest plan of each layout within the limits, else the nearest misses.
5. ``bands``: the odds that a plan keeps its limits, by the errors of measured servers.

``given`` estimates a plan that is not searched for; ``fields`` has what JSON says of one.
"""

from infer_jax.planning.cheapest import search as search
from infer_jax.planning.choice import (
    MODES as MODES,
    USUAL_TTFT as USUAL_TTFT,
    Choice as Choice,
    Degrees as Degrees,
    PlanCandidates as PlanCandidates,
    PlanPool as PlanPool,
    PlanSpace as PlanSpace,
    Replay as Replay,
    ReplayTimes as ReplayTimes,
    Requirements as Requirements,
    Side as Side,
    front as front,
    read_pools as read_pools,
)
from infer_jax.planning.instances import OpenLoop as OpenLoop, shares as shares, table as table
from infer_jax.planning.layout import (
    Layout as Layout,
    layouts as layouts,
    machine as machine,
    machine_rule as machine_rule,
    nearest_layouts as nearest_layouts,
)
from infer_jax.planning.pools import pool_plans as pool_plans
from infer_jax.planning.pricing import (
    BreakEven as BreakEven,
    LayoutEstimates as LayoutEstimates,
    break_evens as break_evens,
    choices as choices,
)
