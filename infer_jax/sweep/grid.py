"""What does every (chips, batch) pair of a grid cost, evaluated in one compiled call?"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from infer_jax.specs import Architecture, Hardware, Plan, Workload

POINTS = 400  # per axis of the paper's grid
LARGEST = 2.0**18  # chips, and sequences per active expert


@dataclass(frozen=True)
class Grid:
    """Every evaluated (chips, batch) pair as flat float64 arrays of one length."""

    chips: np.ndarray
    batch: np.ndarray
    time: np.ndarray
    cost: np.ndarray
    feasible: np.ndarray
    mfu: np.ndarray

    @property
    def speed(self) -> np.ndarray:
        """Tokens per second of one request."""
        return 1.0 / self.time

    def take(self, index: Any) -> "Grid":
        """The chosen rows."""
        return Grid(*(column[index] for column in vars(self).values()))

    def under(self, demand: float | None) -> "Grid":
        """The feasible rows that serve at most ``demand`` tokens/s over all requests."""
        kept = self.feasible.copy()
        if demand is not None:
            kept &= self.batch / self.time <= demand
        return self.take(kept)


def paper_axes(least: float, sparsity: float) -> tuple[np.ndarray, np.ndarray]:
    """(chips, batches) of the economics paper's grid: 400 x 400, evenly spaced in logarithm.

    Chips from ``least``, the chips that hold the weights, to 2^18; batches from 1 to 2^18 S.
    """
    chips = np.logspace(np.log2(least), np.log2(LARGEST), POINTS, base=2.0)
    batches = np.logspace(0.0, np.log2(LARGEST * sparsity), POINTS, base=2.0)
    return chips, batches


@jax.jit
def _decode(
    estimator: Any,
    arch: Architecture,
    hardware: Hardware,
    workload: Workload,
    plan: Plan,
    chips: Any,
    batches: Any,
) -> Any:
    def one(n: Any, b: Any) -> Any:
        life = estimator.estimate(arch, hardware, workload.replace(batch=b), plan.replace(tp=n))
        return life.decode.time, life.cost, life.decode.feasible, life.decode.mfu

    return jax.vmap(lambda n: jax.vmap(lambda b: one(n, b))(batches))(chips)


def evaluate(
    estimator: Any,
    arch: Architecture,
    hardware: Hardware,
    workload: Workload,
    chips: np.ndarray,
    batches: np.ndarray,
) -> Grid:
    """Every (chips, batch) pair of two axes, in one compiled call."""
    results = _decode(estimator, arch, hardware, workload, Plan.of(), chips, batches)
    time, cost, feasible, mfu = (np.asarray(r).ravel() for r in results)
    n, b = np.meshgrid(chips, batches, indexing="ij")
    wide = partial(np.asarray, dtype=np.float64)
    return Grid(n.ravel(), b.ravel(), wide(time), wide(cost), feasible, wide(mfu))
