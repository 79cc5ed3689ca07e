"""Planning: the cheapest layout, batch and pools of chips that serve a model within limits."""

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
