"""Which coefficients of the serving model do measured rows determine, and what is believed of them?

At most 45 numbers for all models, chips and engines together; nothing here is fitted to one
model. The form is the serving model's; this file names its leaves.
"""

from collections.abc import Sequence

import numpy as np

from experiments._silicon.rows import Row
from experiments._silicon.served import inputs, predictor
from infer_jax.calibration import CAUCHY, FitProblem, Linearised, Prior
from infer_jax.estimators.serving import Serving

SCALES = (0.05, 0.15)  # ordinary size of a log residual: TPOT, TTFT
SHARES = (1.0, 0.3)  # how much a row counts: TPOT, TTFT
STEPS = 12
TOLERANCE = 1e-5

# value and relative spread: data sheets reached in good part, launch gaps of tens of microseconds
PRIORS = {
    "weight_read": Prior(0.8, 0.12),
    "cache_read": Prior(0.7, 0.15),
    "narrow_read": Prior(0.7, 0.3),
    "hopper.gemm_16": Prior(0.65, 0.15),
    "hopper.gemm_8": Prior(0.6, 0.25),
    "hopper.blocked": Prior(0.8, 0.3),
    "blackwell.gemm_16": Prior(0.65, 0.15),
    "blackwell.gemm_8": Prior(0.6, 0.25),
    "blackwell.gemm_4": Prior(0.5, 0.3),
    "grouped": Prior(0.8, 0.5),
    "skew": Prior(0.3, 1.0),
    "prefill_attention": Prior(0.4, 0.35),
    "decode_attention": Prior(0.4, 0.35),
    "link": Prior(0.75, 0.2),
    "trtllm.layer_gap": Prior(2e-5, 1.0),
    "sglang.layer_gap": Prior(2e-5, 1.0),
    "vllm.layer_gap": Prior(2e-5, 1.0),
    "expert_kernels": Prior(0.5, 1.0),
    "trtllm.sequence_time": Prior(5e-6, 1.0),
    "sglang.sequence_time": Prior(5e-6, 1.0),
    "vllm.sequence_time": Prior(5e-6, 1.0),
    "quantised_gap": Prior(5e-6, 1.0),
    "block_kernels": Prior(1.0, 1.0),
    "blackwell.quantising": Prior(1.0, 0.5),
    "trtllm.quantising": Prior(1.0, 0.5),
    "blackwell.gap": Prior(0.8, 0.3),
    "hop": Prior(4e-6, 0.7),
    "latent_kernels": Prior(1.8, 0.3),
    "sparse_kernels": Prior(4.0, 0.3),
    "acceptance": Prior(0.65, 0.15),
    "trtllm.front": Prior(0.02, 1.0),
    "sglang.front": Prior(0.02, 1.0),
    "vllm.front": Prior(0.02, 1.0),
    "front_rank": Prior(1.0, 1.0),
    "trtllm.eager": Prior(5.0, 1.0),
    "sglang.eager": Prior(5.0, 1.0),
    "vllm.eager": Prior(5.0, 1.0),
    "eager_growth": Prior(1.0, 1.0),
}
TIES = {
    "hopper.gemm_8": ("hopper.gemm_4",),  # Hopper multiplies 4-bit numbers as 8-bit ones
}
NAMES = tuple(PRIORS)


def start() -> Serving:
    """Where fits begin: at what is believed before any row was seen."""
    values = {name: prior.value for name, prior in PRIORS.items()}
    values |= {other: values[name] for name, others in TIES.items() for other in others}
    return Serving.of().fitted(values)


def problem(rows: Sequence[Row]) -> FitProblem:
    """The fit of the coefficients to TPOT and then TTFT of rows, all of one server each.

    Solved by its linearisation, which spares a minute of compilation.
    """
    measured = np.asarray([r.tpot for r in rows] + [r.ttft for r in rows])
    return Linearised.of(
        predictor(inputs(rows)),
        measured,
        start(),
        NAMES,
        priors=PRIORS,
        ties=TIES,
        scale=np.repeat(SCALES, len(rows)),
        loss=CAUCHY,
        tolerance=TOLERANCE,
    )


def counted(used: np.ndarray) -> np.ndarray:
    """Weights of a problem's measurements from rows to be used (true)."""
    return np.concatenate([share * np.asarray(used, float) for share in SHARES])
