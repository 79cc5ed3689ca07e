"""Benchmark files of servers and kernels as plain rows, each checked."""

from infer_jax.catalog.cells import Statistic as Statistic
from infer_jax.catalog.measurements.kernels import read_kernels as read_kernels
from infer_jax.catalog.measurements.reading import read_runs as read_runs
from infer_jax.catalog.measurements.run import (
    MeasuredKernel as MeasuredKernel,
    Run as Run,
    Speculation as Speculation,
    WorkerPool as WorkerPool,
)
