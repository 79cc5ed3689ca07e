"""Fits a model that is slow to compile by its linearisation, repeatedly.

Log predictions are nearly linear in the free coordinates. The solver then runs on base + slope
(u - point), compiled once and small, and the model itself is only asked for its derivatives at a
handful of points.
"""

from collections.abc import Callable
from dataclasses import fields as _fields
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.calibration.problem import FitProblem
from infer_jax.errors import InputError

if TYPE_CHECKING:
    from lineax import AbstractLinearSolver

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
    point: ArrayLike
    damping: ArrayLike


class _LinearProblem(FitProblem):
    """A problem whose ``losses`` are those of the model linearised at a point."""

    def losses(self, free: Array, weight: ArrayLike | Linearisation, logs: ArrayLike) -> Array:
        """As ``FitProblem.losses``, of base + slope (free - point), and the damping."""
        assert isinstance(weight, Linearisation)
        near = weight
        moved = free - jnp.asarray(near.point)
        predicted = jnp.asarray(near.base) + jnp.asarray(near.slope) @ moved
        rows = self.loss.root((predicted - logs) / self.scale)
        rows = [jnp.sqrt(near.weight) * rows, jnp.sqrt(near.damping) * moved]
        return jnp.concatenate([*rows, self.prior_residuals(free)] if self.priors else rows)

    def equations(self) -> "AbstractLinearSolver | None":
        """By the normal equations, ten times cheaper than QR of thousands of rows.

        Priors and damping keep them definite; in 32 bits they would lose half of the digits.
        """
        import lineax

        double = jnp.result_type(float) == jnp.float64
        return lineax.Normal(lineax.Cholesky()) if double else None


class Linearised(FitProblem):
    """A problem that is solved by repeated linearisation until the solution no longer moves.

    Each round is damped toward its point, more strongly while the loss does not fall:
    Levenberg-Marquardt whose steps are robust fits. Meant for parameters with priors; the answer is
    a minimum of ``losses``, as that of ``FitProblem``.
    """

    def solve(
        self, starts: ArrayLike, weights: ArrayLike, steps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """As ``FitProblem.solve``; ``steps`` are those of one round at most."""
        best, costs = [], []
        for weight in np.atleast_2d(np.asarray(weights)):
            ends, cost = zip(
                *(self._descend(start, weight, steps) for start in np.atleast_2d(starts)),
                strict=True,
            )
            if not np.isfinite(cost).any():
                allowed = "a model that is, near its start"
                raise InputError("fit", "predictions", "not finite", allowed)
            best.append(ends[int(np.argmin(cost))])
            costs.append(cost)
        return np.stack(best), np.asarray(costs)

    def _descend(self, start: Array, weight: Array, steps: int) -> tuple[np.ndarray, float]:
        """The end of the descent from a start, and half the sum of squares there."""
        solve, cost = self._compiled(steps)
        logs, damping = np.log(self.data), DAMPING
        here = self._linearised(np.asarray(start), weight)
        lowest = float(cost(here, logs))
        for _ in range(ROUNDS):
            ended, _ = solve(here.point, here._replace(damping=damping), logs)
            move = np.clip(np.asarray(ended) - here.point, -MAX_STEP, MAX_STEP)
            there = self._linearised(here.point + move, weight)
            lower, moved = float(cost(there, logs)), float(np.max(np.abs(move)))
            if not lower <= lowest:  # or not finite
                damping *= FAILED
                if moved < MIN_STEP:
                    break
                continue
            gain, here, lowest = lowest - lower, there, lower
            if moved < MIN_STEP or (gain < self.tolerance * lower and damping <= DAMPING):
                break
            damping *= GAINED
        return np.asarray(here.point), lowest if np.isfinite(lowest) else np.inf

    def _linearised(self, free: ArrayLike, weight: Array) -> Linearisation:
        base, slope = self.derivatives(free)
        return Linearisation(np.asarray(weight), base, slope, free, 0.0)

    def _compiled(self, steps: int) -> tuple[Callable, Callable]:
        """The solver about a point, and half the sum of squares at it; compiled once."""
        if ("near", steps) not in self.programs:
            fields: dict[str, Any] = {f.name: getattr(self, f.name) for f in _fields(FitProblem)}
            fields["programs"] = {}
            about = _LinearProblem(**fields)
            self.programs["near", steps] = jax.jit(about.solver(steps))
            self.programs["cost"] = jax.jit(
                lambda near, logs: 0.5 * jnp.sum(about.losses(near.point, near, logs) ** 2)
            )
        return self.programs["near", steps], self.programs["cost"]
