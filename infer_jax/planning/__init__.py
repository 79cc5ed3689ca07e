"""Planning: the cheapest layout, batch and pools of chips that serve a model within limits."""

from infer_jax.planning.aggregated import (
    LayoutEstimates as LayoutEstimates,
    shares as shares,
    table as table,
)
from infer_jax.planning.cheapest import (
    MODES as MODES,
    PlanCandidates as PlanCandidates,
    search as search,
)
from infer_jax.planning.choose import (
    USUAL_TTFT as USUAL_TTFT,
    Choice as Choice,
    Degrees as Degrees,
    Requirements as Requirements,
    choices as choices,
    front as front,
    pools_of as pools_of,
)
from infer_jax.planning.disaggregated import pool_plans as pool_plans
from infer_jax.planning.legal_layouts import Layout as Layout, layouts as layouts
from infer_jax.planning.machines import machine as machine
from infer_jax.planning.open_loop import OpenLoop as OpenLoop
from infer_jax.planning.pool_pairs import Side as Side
