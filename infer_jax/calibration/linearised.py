"""Fits a model that is slow to compile by its linearisation, repeatedly.

Log predictions are nearly linear in the free coordinates. The solver then runs on base + slope
(u - point), compiled once and small, and the model itself only gives its derivatives at a
handful of points.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.calibration.problem import FitProblem, levenberg_marquardt

ROUNDS = 30
MIN_STEP = 1e-4  # change of a free coordinate, about a relative one of the parameter, to stop at
MAX_STEP = 1.0  # of a round in a coordinate: a factor e where it is a logarithm
# damping of a round toward its point: at first that of a prior of spread 1, less after a round that
# gained, more after one that did not
DAMPING, GAINED, FAILED = 1.0, 0.1, 10.0


class Linearisation(NamedTuple):
    """Weights of the rows, and the model near a point: log predictions and their slope there.

    ``damping``: the weight on the distance from the point.
    """

    weight: ArrayLike
    base: ArrayLike
    slope: ArrayLike
    point: np.ndarray
    damping: ArrayLike


class Linearised(FitProblem):
    """A problem that is solved by repeated linearisation until the solution no longer moves.

    Each round is damped toward its point, more strongly while the loss does not fall:
    Levenberg-Marquardt whose steps are robust fits. Meant for parameters with priors; the answer is
    a minimum of ``losses``, as that of ``FitProblem``.
    """

    def descend(
        self, starts: np.ndarray, weight: np.ndarray, steps: int
    ) -> tuple[ArrayLike, ArrayLike]:
        """As ``FitProblem.descend``, one after the other; ``steps``: of one round at most."""
        ends, costs = zip(*(self._descend(start, weight, steps) for start in starts), strict=True)
        return np.stack(ends), np.asarray(costs)

    def linearised(self, free: np.ndarray) -> tuple[ArrayLike, Callable[[], ArrayLike]]:
        """Log predictions, and what computes their slope: a round that ends the fit needs none."""
        base, slope = self.derivatives(free)
        return base, lambda: slope

    def linear_losses(self, free: Array, near: Linearisation, logs: ArrayLike) -> Array:
        """``losses`` of base + slope (free - point), and the damping."""
        moved = free - jnp.asarray(near.point)
        predicted = jnp.asarray(near.base) + jnp.asarray(near.slope) @ moved
        rows, damped = self.row_losses(predicted, near.weight, logs), jnp.sqrt(near.damping) * moved
        return jnp.concatenate([rows, damped, self.prior_residuals(free)])

    def _descend(
        self, start: np.ndarray, weight: np.ndarray, steps: int
    ) -> tuple[np.ndarray, float]:
        """The end of the descent from a start, and half the sum of squares there."""
        solve, cost = self._compiled(steps)
        logs, damping = np.log(self.data), DAMPING
        base, slope = self.linearised(start)
        here = Linearisation(weight, base, slope(), start, 0.0)
        lowest = float(cost(here, logs))
        for _ in range(ROUNDS):
            ended, _ = solve(here.point, here._replace(damping=damping), logs)
            move = np.clip(np.asarray(ended) - here.point, -MAX_STEP, MAX_STEP)
            point = here.point + move
            base, slope = self.linearised(point)
            there = here._replace(base=base, point=point)
            lower, moved = float(cost(there, logs)), float(np.max(np.abs(move)))
            if not lower <= lowest:  # or not finite
                damping *= FAILED
                if moved < MIN_STEP:
                    break
                continue
            gain, here, lowest = lowest - lower, there, lower
            if moved < MIN_STEP or (gain < self.tolerance * lower and damping <= DAMPING):
                break
            here = here._replace(slope=slope())
            damping *= GAINED
        return np.asarray(here.point), lowest

    def _compiled(self, steps: int) -> tuple[Callable, Callable]:
        """The solver about a point, and half the sum of squares at it; compiled once.

        It solves the normal equations, ten times cheaper than QR of thousands of rows. Priors and
        damping keep them definite; in 32 bits they would lose half of the digits.
        """
        if ("near", steps) not in self.programs:
            import lineax

            double = jnp.result_type(float) == jnp.float64
            normal = lineax.Normal(lineax.Cholesky()) if double else None
            self.programs["near", steps] = jax.jit(
                levenberg_marquardt(self.linear_losses, self.tolerance, steps, normal)
            )
            self.programs["cost"] = jax.jit(
                lambda near, logs: 0.5 * jnp.sum(self.linear_losses(near.point, near, logs) ** 2)
            )
        return self.programs["near", steps], self.programs["cost"]
