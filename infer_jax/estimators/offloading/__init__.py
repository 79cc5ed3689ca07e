"""Offloading to host memory and disk (FlexGen: Sheng et al. 2023, arXiv 2303.06865)."""

from infer_jax.estimators.offloading.model import (
    JobEstimate as JobEstimate,
    Offloading as Offloading,
)
from infer_jax.estimators.offloading.plan import Offload as Offload
