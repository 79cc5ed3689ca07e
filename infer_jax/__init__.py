"""A differentiable model of LLM inference: latency, memory and cost as pure JAX functions.

>>> import infer_jax as ij
>>> one = ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, batch=32)
>>> bool(one.estimate.feasible), 15e-3 < float(one.estimate.tpot) < 25e-3
(True, True)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from infer_jax.bibtex import citation as citation
from infer_jax.errors import InputError as InputError

if TYPE_CHECKING:
    from infer_jax.calibration import (
        bounded as bounded,
        calibrate_server as calibrate_server,
    )
    from infer_jax.catalog import (
        Model as Model,
        System as System,
        list_models as list_models,
        list_systems as list_systems,
        load_model as load_model,
        load_system as load_system,
    )
    from infer_jax.compiling import keep_programs as keep_programs
    from infer_jax.design import optimise as optimise
    from infer_jax.estimators import (
        Deployment as Deployment,
        Economics as Economics,
        Estimate as Estimate,
        Offload as Offload,
        Offloading as Offloading,
        Phase as Phase,
        Serving as Serving,
        ServingWorkload as ServingWorkload,
        Speculative as Speculative,
        make as make,
    )
    from infer_jax.specs import (
        Architecture as Architecture,
        Block as Block,
        ForwardPass as ForwardPass,
        Hardware as Hardware,
        Plan as Plan,
        Workload as Workload,
    )
    from infer_jax.sweeps import (
        Axis as Axis,
        Best as Best,
        Constraint as Constraint,
        Pareto as Pareto,
        Space as Space,
    )
    from infer_jax.verbs.calibrate import calibrate as calibrate
    from infer_jax.verbs.codesign import codesign as codesign
    from infer_jax.verbs.compare import compare as compare
    from infer_jax.verbs.estimate import estimate as estimate
    from infer_jax.verbs.frontier import frontier as frontier
    from infer_jax.verbs.kernels import kernels as kernels
    from infer_jax.verbs.layout import layout as layout
    from infer_jax.verbs.measure import measure as measure
    from infer_jax.verbs.memory import memory as memory
    from infer_jax.verbs.offload import offload as offload
    from infer_jax.verbs.plan import plan as plan
    from infer_jax.verbs.replay import replay as replay
    from infer_jax.verbs.report import report as report
    from infer_jax.verbs.sensitivity import sensitivity as sensitivity
    from infer_jax.verbs.sweep import sweep as sweep

__version__ = "0.1.0"

# where each name is, which is imported when it is asked for: a command imports what it needs
_ROOMS = {
    "calibration": ("bounded", "calibrate_server"),
    "catalog": ("Model", "System", "list_models", "list_systems", "load_model", "load_system"),
    "compiling": ("keep_programs",),
    "design": ("optimise",),
    "estimators": (
        *("Deployment", "Economics", "Estimate", "Offload", "Offloading", "Phase", "Serving"),
        *("ServingWorkload", "Speculative", "make"),
    ),
    "specs": ("Architecture", "Block", "ForwardPass", "Hardware", "Plan", "Workload"),
    "sweeps": ("Axis", "Best", "Constraint", "Pareto", "Space"),
}
# the verbs, each in a file of its own name
_VERBS = (
    "calibrate",
    "codesign",
    "compare",
    "estimate",
    "frontier",
    "kernels",
    "layout",
    "measure",
    "memory",
    "offload",
    "plan",
    "replay",
    "report",
    "sensitivity",
    "sweep",
)
_ROOM = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _VERBS:
        verb = getattr(import_module(f"infer_jax.verbs.{name}"), name)
        return globals().setdefault(name, verb)
    if name in _ROOMS:
        return import_module(f"infer_jax.{name}")
    if name not in _ROOM:
        raise AttributeError(f"module 'infer_jax' has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f"infer_jax.{_ROOM[name]}"), name))


def __dir__() -> list[str]:
    return sorted({"InputError", "__version__", "citation", *_ROOM, *_ROOMS, *_VERBS})
