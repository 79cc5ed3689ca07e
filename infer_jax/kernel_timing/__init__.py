"""Kernels timed on this device or tabulated, and curves fitted to them."""

from infer_jax.kernel_timing.families import (
    Family as Family,
    FittedFamily as FittedFamily,
    fitted as fitted,
)
from infer_jax.kernel_timing.kernels import (
    FULL as FULL,
    TOY as TOY,
    Timed as Timed,
    TimingSizes as TimingSizes,
    timed as timed,
)
