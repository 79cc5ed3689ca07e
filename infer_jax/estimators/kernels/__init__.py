"""Prediction from measured kernel efficiency (InferSim, Alibaba 2025)."""

from infer_jax.estimators.kernels.coefficients import KernelsPlan as KernelsPlan
from infer_jax.estimators.kernels.efficiency import Curves as Curves
from infer_jax.estimators.kernels.model import Kernels as Kernels
from infer_jax.estimators.kernels.tables import Tables as Tables
