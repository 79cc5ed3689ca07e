"""MANY: grids of configurations, and what is kept of them."""

from infer_jax.sweep.grid import Grid as Grid, evaluate as evaluate, paper_axes as paper_axes
from infer_jax.sweep.pareto import (
    frontier as frontier,
    preferred as preferred,
    thresholds as thresholds,
)
