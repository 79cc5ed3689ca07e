"""Pictures of results, readable in greyscale."""

from typing import TYPE_CHECKING

from infer_jax.on_demand import on_demand

if TYPE_CHECKING:
    from infer_jax.plots.frontier import Curve as Curve, plot_frontier as plot_frontier
    from infer_jax.plots.plans import plot_plans as plot_plans

__getattr__, __dir__ = on_demand(
    __name__,
    {"frontier": "Curve plot_frontier", "plans": "plot_plans"},
)
