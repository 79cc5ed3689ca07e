"""Pictures of results, readable in greyscale."""

from infer_jax.plots.frontier import (
    Curve as Curve,
    Points as Points,
    draw_frontiers as draw_frontiers,
    plot_frontier as plot_frontier,
)
from infer_jax.plots.plans import Dot as Dot, plot_plans as plot_plans
