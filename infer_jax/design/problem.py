"""The objective of a design and its excess over each limit, as functions of a point.

Both are logarithms, so that a per cent counts the same everywhere. The relaxed form has no steps
and, where the estimator can be smoothed, no kinks; the exact form is the sweep's own.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.design.relaxation import Relaxation
from infer_jax.estimators import Estimate
from infer_jax.sweeps.constraint import Constraint, Sides, holds
from infer_jax.sweeps.paths import Point, Tree, look
from infer_jax.sweeps.point import Program, one_point
from infer_jax.sweeps.preparing import Prepared
from infer_jax.sweeps.reducers import Best

BATCHES = 256, 4096  # lattice points evaluated together: few, and many
MIN_TEMPERATURE = 1e-3  # the temperature at which a smoothed estimator is as good as exact
TINY = 1e-30


Round = tuple[Tree, tuple[Array, Array, Array], Array]  # lanes, what was seen, evaluations


class Scores(NamedTuple):
    """Scores of lattice points: log objective to minimise, worst relative excess over a limit.

    The excess is 0 where everything holds, infinite where a divisor does not divide.
    """

    objective: np.ndarray
    excess: np.ndarray

    @property
    def order(self) -> np.ndarray:
        """Best first: least excess, then least objective."""
        return np.lexsort((self.objective, self.excess))


@dataclasses.dataclass(frozen=True, eq=False)
class DesignProblem:
    """One group of a prepared sweep, with its objective and limits."""

    program: Program
    relaxed: Relaxation
    keep: Best
    smooth: bool

    @classmethod
    def of(cls, ready: Prepared, part: int, smooth: bool | None = None) -> "DesignProblem":
        """The problem of one group of a prepared ``Best``.

        ``smooth``: anneal the estimator's own smoothing; by default where it has one and does
        not search layouts, which would blend them all.
        """
        chosen = ready.parts[part]
        relaxed = Relaxation.of(chosen.group, chosen.program.where)
        estimator = chosen.group.base.estimator
        asked = not estimator.searches if smooth is None else smooth
        keep = ready.reducer
        assert isinstance(keep, Best)
        return cls(chosen.program, relaxed, keep, asked and estimator.smooths)

    @property
    def limits(self) -> np.ndarray:
        """The limits on terms, in the order of ``keep``."""
        return np.array([limit for _, limit in self.keep.limits], np.float64)

    def relaxation(
        self, free: Array, digits: Array, temperature: Array, limits: Array
    ) -> tuple[Array, Array]:
        """(log objective, log excesses) between the steps; an excess above 0 is a broken limit."""
        point = self.relaxed.group.fill(self.relaxed.steps(free, digits))
        if self.smooth:
            point = point._replace(estimator=point.estimator.softened(temperature))
        estimate = point.estimator.estimate(point.arch, point.hardware, point.workload, point.plan)
        signs = dict(self.program.signs)
        excesses = [
            signs[name] * (log(look(name, point, estimate)) - log(limit))
            for (name, _), limit in zip(self.keep.under, limits, strict=True)
        ]
        above = self.program.feasible.rpartition(".")[0]
        for phase in (
            [look(above, point, estimate)] if above else [estimate.prefill, estimate.decode]
        ):
            excesses += [_fullness(x.need, x.capacity) for x in phase.limits.values()]
        for constraint in self.program.where:
            if isinstance(constraint, Constraint) and not self._simplex(constraint):
                excesses += _excesses(constraint.sides(point, estimate))
        objective = signs[self.keep.by] * log(look(self.keep.by, point, estimate))
        return objective, jnp.stack(excesses) if excesses else jnp.zeros(0)

    @cached_property
    def excesses(self) -> int:
        """The number of excesses of the relaxed problem."""
        free, digits = self.relaxed.random(np.random.default_rng(0), 1)
        shaped = jax.eval_shape(
            self.relaxation,
            free[0],
            digits[0],
            jnp.asarray(MIN_TEMPERATURE),
            jnp.asarray(self.limits),
        )
        return int(shaped[1].shape[0])

    def _simplex(self, constraint: Constraint) -> bool:
        return any(s.total == constraint.equals for s in self.relaxed.simplexes)

    @cached_property
    def _scored(self) -> Callable[[np.ndarray | Array, np.ndarray], tuple[Array, Array]]:
        program, base, signs = self.program, self.relaxed.group.base, dict(self.program.signs)
        tables = [jnp.asarray(t) for t in self.relaxed.group.tables]

        def score(steps: list[Array], limits: Array) -> tuple[Array, Array]:
            over: list[Array] = [jnp.asarray(0.0)]
            divides = jnp.asarray(True)

            def add_constraints(point: Point, estimate: Estimate) -> None:
                nonlocal divides
                for constraint in program.where:
                    if isinstance(constraint, Constraint) and constraint.divides is None:
                        over.extend(_excesses(constraint.sides(point, estimate)))
                    else:
                        divides &= jnp.asarray(holds(constraint, point, estimate), bool)

            values, accepted, _, short = one_point(program, base, steps, add_constraints)
            for (name, _), limit in zip(self.keep.under, limits, strict=True):
                ratio = limit / values[name] if signs[name] < 0 else values[name] / limit
                over.append(ratio - 1.0)
            excess = jnp.maximum(jnp.max(jnp.stack(over)), short)
            # rounding must not let a broken constraint pass
            excess = jnp.where(accepted, excess, jnp.maximum(excess, TINY))
            objective = signs[self.keep.by] * log(values[self.keep.by])
            return objective, jnp.where(divides & jnp.isfinite(objective), excess, jnp.inf)

        @jax.jit
        def scored(digits: Array, limits: Array) -> tuple[Array, Array]:
            steps = [t[digits[:, s.digit]] for s, t in zip(program.slots, tables, strict=True)]
            return jax.vmap(score, (0, None), axis_size=len(digits))(steps, limits)

        return scored

    @cached_property
    def compiled(self) -> dict[tuple[str, int, int], Callable[..., Round]]:
        """Programs of this problem that were compiled before."""
        return {}

    def exact(self, digits: ArrayLike, limits: np.ndarray) -> Scores:
        """Scores of lattice points (rows of digits) under the exact model in float64."""
        lattice = np.asarray(digits, np.int32).reshape(-1, max(1, len(self.relaxed.group.sizes)))
        scores: list[list[np.ndarray]] = []
        size = BATCHES[len(lattice) > BATCHES[1]]
        with jax.enable_x64(True):
            for i in range(0, len(lattice), size):
                rows = lattice[i : i + size]
                filled = np.pad(rows, ((0, size - len(rows)), (0, 0)), mode="edge")
                scores.append([np.asarray(x)[: len(rows)] for x in self._scored(filled, limits)])
        objective, excess = (np.concatenate(x) for x in zip(*scores, strict=True))
        return Scores(objective, excess)


def log(x: Array) -> Array:
    """The logarithm, finite and with gradient 0 at 0 and below."""
    positive = x > TINY
    return jnp.where(positive, jnp.log(jnp.where(positive, x, 1.0)), np.log(TINY))


def _fullness(need: Array, capacity: Array) -> Array:
    """log(need / capacity): above 0 where a limit is broken, at least -5 where it is not."""
    return jnp.maximum(log(need) - log(capacity), -5.0)


def _excesses(sides: Sides) -> list[Array]:
    """Relative excesses over inequalities and equalities; divisibility is left to rounding."""
    excesses: list[Array] = []
    for relation, (left, right) in sides.items():
        scale = jnp.maximum(jnp.abs(jnp.asarray(right, jnp.result_type(left))), TINY)
        over = (left - right) / jax.lax.stop_gradient(scale)
        if relation in ("at_most", "equals"):
            excesses.append(over)
        if relation in ("at_least", "equals"):
            excesses.append(-over)
    return excesses


def distinct(rows: Sequence[np.ndarray] | np.ndarray) -> list[int]:
    """Positions of the first of equal rows."""
    first: dict[tuple[int, ...], int] = {}
    for i, row in enumerate(rows):
        first.setdefault(tuple(int(x) for x in row), i)
    return list(first.values())
