from infer_jax.sweeps.axis import Axis as Axis
from infer_jax.sweeps.constraint import Constraint as Constraint
from infer_jax.sweeps.engine import start as start
from infer_jax.sweeps.histogram import Histogram as Histogram, Quantiles as Quantiles
from infer_jax.sweeps.pareto import Pareto as Pareto
from infer_jax.sweeps.preparing import prepare as prepare
from infer_jax.sweeps.reducers import Best as Best, Everything as Everything, TopK as TopK
from infer_jax.sweeps.results import SweepResult as SweepResult, explain as explain
from infer_jax.sweeps.space import Space as Space
