"""Serving: what real engines do to a model's requests (ours, fitted to measured servers)."""

from infer_jax.estimators.serving.closed_loop import ServerEstimate as ServerEstimate
from infer_jax.estimators.serving.engines import (
    ENGINES as ENGINES,
    GENERATIONS as GENERATIONS,
    Engine as Engine,
    Generation as Generation,
)
from infer_jax.estimators.serving.lowered import (
    Shape as Shape,
    formatted as formatted,
    shape as shape,
)
from infer_jax.estimators.serving.model import Serving as Serving
from infer_jax.estimators.serving.passes import Pass as Pass
from infer_jax.estimators.serving.plan import (
    Deployment as Deployment,
    WideExperts as WideExperts,
)
from infer_jax.estimators.serving.workload import ServingWorkload as ServingWorkload
