from infer_jax.plots.frontier import Curve as Curve, plot_frontier as plot_frontier
from infer_jax.plots.plans import plot_plans as plot_plans
