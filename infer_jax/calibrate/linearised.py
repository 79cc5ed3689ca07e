"""How is a model that is slow to compile fitted in seconds? By its linearisation, repeatedly.

Where priors hold every parameter near a value, log predictions are nearly linear in the free
coordinates. The solver then runs on base + slope (u - point), compiled once and small, and the
model itself is only asked for its derivatives at a handful of points.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.calibrate.problem import Problem

ROUNDS = 12
CLOSE = 1e-4  # change of a free coordinate, about a relative one of the parameter, to stop at


class Near(NamedTuple):
    """Weights of the rows, and the model about a point: log predictions and their slope there."""

    weight: ArrayLike
    base: ArrayLike
    slope: ArrayLike
    point: ArrayLike


class Linearised(Problem):
    """A problem whose ``losses`` are those of the model about a point, given as weights are."""

    def losses(self, free: Array, weight: Any, logs: ArrayLike) -> Array:
        """As ``Problem.losses``, of base + slope (free - point)."""
        near: Near = weight
        found = jnp.asarray(near.base) + jnp.asarray(near.slope) @ (free - jnp.asarray(near.point))
        rows = self.loss.root((found - logs) / self.scale)
        return jnp.concatenate([jnp.sqrt(near.weight) * rows, self.held(free)])


def descent(problem: Problem, steps: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Where the fit with given row weights ends, from a start: linearise, solve, until it stays.

    Every parameter must have a prior. Compiled once for all weights and starts.
    """
    fields = {f.name: getattr(problem, f.name) for f in dataclasses.fields(Problem)}
    solve, logs = jax.jit(Linearised(**fields).solver(steps)), jnp.log(jnp.asarray(problem.data))

    def descend(start: np.ndarray, weight: np.ndarray) -> np.ndarray:
        free = jnp.asarray(start)
        for _ in range(ROUNDS):
            base, slope = problem.derivatives(free)
            ended, _ = solve(free, Near(jnp.asarray(weight), base, slope, free), logs)
            moved, free = jnp.max(jnp.abs(ended - free)), ended
            if moved < CLOSE:
                break
        return np.asarray(free)

    return descend
