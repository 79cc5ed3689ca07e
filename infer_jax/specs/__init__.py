"""Pytrees of numbers: model, hardware, requests and plan. Data only, no formulas."""

from infer_jax.specs.architecture import *  # noqa: F403 - what its __all__ lists
from infer_jax.specs.arguments import (
    checked as checked,
    take_arguments as take_arguments,
)
from infer_jax.specs.declared_outputs import Output as Output, output as output, outputs as outputs
from infer_jax.specs.fields import (
    Derived as Derived,
    Spec as Spec,
    derive as derive,
    leaves as leaves,
    number as number,
    part as part,
    spec as spec,
    static as static,
    value_of as value_of,
)
from infer_jax.specs.hardware import (
    Chip as Chip,
    Hardware as Hardware,
    Hierarchy as Hierarchy,
    Host as Host,
    Network as Network,
    Torus as Torus,
)
from infer_jax.specs.plan import LAYOUTS as LAYOUTS, Plan as Plan, layout_label as layout_label
from infer_jax.specs.workload import (
    Arrivals as Arrivals,
    ForwardPass as ForwardPass,
    Share as Share,
    Workload as Workload,
)
