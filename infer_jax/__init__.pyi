from infer_jax.bibtex import citation as citation
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
from infer_jax.errors import InputError as InputError
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
from infer_jax.silicon.accelerator import Accelerator as Accelerator
from infer_jax.silicon.chips import load_accelerator as load_accelerator
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
from infer_jax.verbs.chip import chip as chip
from infer_jax.verbs.codesign import codesign as codesign
from infer_jax.verbs.compare import compare as compare
from infer_jax.verbs.deploy import deploy as deploy
from infer_jax.verbs.estimate import estimate as estimate
from infer_jax.verbs.fleet import fleet as fleet
from infer_jax.verbs.frontier import frontier as frontier
from infer_jax.verbs.kernels import kernels as kernels
from infer_jax.verbs.layout import layout as layout
from infer_jax.verbs.measure import measure as measure
from infer_jax.verbs.memory import memory as memory
from infer_jax.verbs.offline import offline as offline
from infer_jax.verbs.offload import offload as offload
from infer_jax.verbs.plan import plan as plan
from infer_jax.verbs.replay import replay as replay
from infer_jax.verbs.report import report as report
from infer_jax.verbs.sensitivity import sensitivity as sensitivity
from infer_jax.verbs.sessions import sessions as sessions
from infer_jax.verbs.sweep import sweep as sweep
from infer_jax.verbs.traffic import traffic as traffic

__version__: str
