"""MANY: grids of configurations, and what is kept of them."""

from infer_jax.sweep.axis import Axis as Axis
from infer_jax.sweep.best import Best as Best
from infer_jax.sweep.constraint import Constraint as Constraint
from infer_jax.sweep.everything import Everything as Everything
from infer_jax.sweep.grid import (
    Grid as Grid,
    evaluate as evaluate,
    frontier as frontier,
    paper_axes as paper_axes,
    preferred as preferred,
    thresholds as thresholds,
)
from infer_jax.sweep.histogram import Histogram as Histogram, Quantiles as Quantiles
from infer_jax.sweep.pareto import Pareto as Pareto
from infer_jax.sweep.results import Result as Result, explain as explain
from infer_jax.sweep.run import prepare as prepare, start as start, sweep as sweep
from infer_jax.sweep.space import Space as Space
from infer_jax.sweep.topk import TopK as TopK
