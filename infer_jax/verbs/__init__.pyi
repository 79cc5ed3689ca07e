"""The answers of verbs, and what options of a layout are read into, each imported on first use."""

from infer_jax.verbs.calibrate_result import CalibrateResult as CalibrateResult
from infer_jax.verbs.chip_result import ChipResult as ChipResult
from infer_jax.verbs.codesign_result import CodesignResult as CodesignResult
from infer_jax.verbs.compare_result import (
    EstimatorsCompared as EstimatorsCompared,
    RunsCompared as RunsCompared,
)
from infer_jax.verbs.estimate_result import EstimateResult as EstimateResult
from infer_jax.verbs.fleet_result import FleetResult as FleetResult
from infer_jax.verbs.frontier_result import (
    FrontierResult as FrontierResult,
    FrontiersResult as FrontiersResult,
)
from infer_jax.verbs.kernels_result import KernelsResult as KernelsResult
from infer_jax.verbs.layout_result import LayoutResult as LayoutResult
from infer_jax.verbs.measure_result import MeasureResult as MeasureResult
from infer_jax.verbs.memory_result import MemoryResult as MemoryResult
from infer_jax.verbs.offline_result import OfflineResult as OfflineResult
from infer_jax.verbs.offload_result import OffloadResult as OffloadResult
from infer_jax.verbs.plan_result import PlanResult as PlanResult
from infer_jax.verbs.replay_result import ReplayResult as ReplayResult
from infer_jax.verbs.report_page import ReportResult as ReportResult
from infer_jax.verbs.sensitivity_result import SensitivityResult as SensitivityResult
from infer_jax.verbs.sessions_result import SessionsResult as SessionsResult
from infer_jax.verbs.split import LayoutOptions as LayoutOptions
from infer_jax.verbs.traffic_result import TrafficResult as TrafficResult
