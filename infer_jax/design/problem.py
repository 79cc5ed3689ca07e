"""The objective of a design and its excess over each limit, as functions of a point.

Both are logarithms, so that a per cent counts the same everywhere. The relaxed form has no steps
and, where the estimator can be smoothed, no kinks; the exact form is the sweep's own.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.compiling import once
from infer_jax.design.relaxation import Relaxation
from infer_jax.estimators import Estimate
from infer_jax.sweeps.constraint import Constraint, Predicate, Sides, holds
from infer_jax.sweeps.paths import Point, estimate_at, look
from infer_jax.sweeps.preparing import Prepared
from infer_jax.sweeps.program import Evaluation, one_point
from infer_jax.sweeps.reducers import Best, is_least

BATCHES = 256, 4096  # lattice points evaluated together: few, and many
MIN_TEMPERATURE = 1e-3  # the temperature at which a smoothed estimator is as good as exact
TINY = 1e-30
# per cent of a model's size by which a per cent of a term moves, where they differ much: one of the
# loss is thirty of the parameters (Chinchilla's law between 1 and 16 billion)
STIFFNESS = {"loss": 30.0}


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

    evaluation: Evaluation
    signs: Mapping[str, float]  # by term: -1 where more of it is better
    relaxed: Relaxation
    keep: Best
    smooth: bool

    @classmethod
    def of(cls, ready: Prepared, part: int, smooth: bool | None = None) -> "DesignProblem":
        """The problem of one group of a prepared ``Best``.

        ``smooth``: anneal the estimator's own smoothing; by default where it has one and does
        not search layouts, which would blend them all.
        """
        group, evaluation = ready.parts[part].group, ready.parts[part].program.evaluation
        estimator, keep = group.base.estimator, ready.reducer
        assert isinstance(keep, Best)
        anneal = not estimator.searches if smooth is None else smooth
        relaxed = Relaxation.of(group, evaluation.where)
        return cls(evaluation, ready.signs, relaxed, keep, anneal and estimator.smooths)

    @property
    def limits(self) -> np.ndarray:
        """The limits on terms, in the order of ``keep``."""
        return np.array([limit for _, limit in self.keep.limits], np.float64)

    def terms_needed(
        self, point: Point, estimate: Estimate, limits: Array | np.ndarray
    ) -> list[tuple[Array, Array]]:
        """(need, capacity) of each limited term: of a rate the limit is what is needed."""
        pairs: list[tuple[Array, Array]] = []
        for (name, _), limit in zip(self.keep.limits, limits, strict=True):
            value = look(name, point, estimate)
            pairs.append((limit, value) if is_least(name, self.signs) else (value, limit))
        return pairs

    def relaxation(
        self, free: Array, digits: Array, temperature: Array, limits: Array
    ) -> tuple[Array, Array]:
        """(log objective, log excesses) between the steps; an excess above 0 is a broken limit."""
        point = self.relaxed.group.fill(self.relaxed.steps(free, digits))
        if self.smooth:
            point = point._replace(estimator=point.estimator.softened(temperature))
        estimate = estimate_at(point)
        needed = self.terms_needed(point, estimate, limits)
        scales = [STIFFNESS.get(name, 1.0) for name, _ in self.keep.limits]
        excesses = [by * (log(x) - log(y)) for by, (x, y) in zip(scales, needed, strict=True)]
        for phase in self.evaluation.phases(point, estimate).values():
            # a limit that is far from broken has no slope
            excesses += [
                jnp.maximum(log(x.need) - log(x.capacity), -5.0) for x in phase.limits.values()
            ]
        totals = [simplex.total for simplex in self.relaxed.simplexes]  # which hold by themselves
        for constraint in self.evaluation.where:
            if isinstance(constraint, Constraint) and constraint.equals not in totals:
                excesses += _excesses(constraint.sides(point, estimate))
        by = self.keep.by
        objective = self.signs[by] * log(look(by, point, estimate))
        return objective, jnp.stack(excesses) if excesses else jnp.zeros(0)

    @cached_property
    def excesses(self) -> int:
        """The number of excesses of the relaxed problem."""
        free, digits = self.relaxed.random(np.random.default_rng(0), 1)
        numbers = jnp.asarray(MIN_TEMPERATURE), jnp.asarray(self.limits)
        return int(jax.eval_shape(self.relaxation, free[0], digits[0], *numbers)[1].shape[0])

    def score(self, base: Point, steps: Sequence[Array], limits: Array) -> tuple[Array, Array]:
        """(log objective, worst excess) by the exact model, of a base with a step of each slot."""
        evaluation = self.evaluation
        (values, accepted, _, short), point, estimate = one_point(evaluation, base, steps)
        over, divides = [jnp.asarray(0.0)], jnp.asarray(True)
        for constraint in evaluation.where:
            if isinstance(constraint, Constraint) and constraint.divides is None:
                over += _excesses(constraint.sides(point, estimate))
            else:
                divides &= jnp.asarray(holds(constraint, point, estimate), bool)
        needed = self.terms_needed(point, estimate, limits)
        over += [need / capacity - 1.0 for need, capacity in needed]
        excess = jnp.maximum(jnp.max(jnp.stack(over)), short)
        # rounding must not let a broken constraint pass
        excess = jnp.where(accepted, excess, jnp.maximum(excess, TINY))
        by = self.keep.by
        objective = self.signs[by] * log(values[by])
        return objective, jnp.where(divides & jnp.isfinite(objective), excess, jnp.inf)

    @cached_property
    def _scored(self) -> Callable[[np.ndarray | Array, np.ndarray], tuple[Array, Array]]:
        slots, base = self.evaluation.slots, self.relaxed.group.base
        tables = [jnp.asarray(t) for t in self.relaxed.group.tables]

        @jax.jit
        def scored(digits: Array, limits: Array) -> tuple[Array, Array]:
            steps = [table[digits[:, s.digit]] for s, table in zip(slots, tables, strict=True)]
            of_steps = partial(self.score, base)
            return jax.vmap(of_steps, (0, None), axis_size=len(digits))(steps, limits)

        return scored

    @cached_property
    def compiled(self) -> dict[tuple[str, int], Callable[..., Any]]:
        """Rounds of ascent of this problem that were compiled before."""
        return {}

    def exact(self, digits: ArrayLike | Sequence[int], limits: np.ndarray) -> Scores:
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


def estimate_of(point: Point) -> Estimate:
    """The exact estimate of one point, in float64."""
    with jax.enable_x64(True):
        return once(estimate_at, point)


def violations(problem: DesignProblem, point: Point, estimate: Estimate, limits: np.ndarray) -> str:
    """The limits and constraints that a point breaks in words, the worst first; "" where none."""
    broken: list[tuple[str, float]] = []  # in words, and the relative excess
    needed = problem.terms_needed(point, estimate, limits)
    for (name, _), (need, capacity) in zip(problem.keep.limits, needed, strict=True):
        floor = is_least(name, problem.signs)
        value, limit, word = (capacity, need, "least") if floor else (need, capacity, "most")
        text = f"{name} {float(value):.4g}, at {word} {float(limit):.4g}"
        broken.append((text, float(need / capacity) - 1.0))
    for title, phase in problem.evaluation.phases(point, estimate).items():
        for name, limit in phase.limits.items():
            need, capacity = float(limit.need), float(limit.capacity)
            text = f"{name} in {title} {need:.4g}, at most {capacity:.4g}"
            broken.append((text, need / max(capacity, 1e-300) - 1.0))
    broken = [(text, over) for text, over in broken if over > 0]
    for constraint in problem.evaluation.where:
        if not bool(holds(constraint, point, estimate)):
            broken += _broken_sides(constraint, point, estimate)
    broken.sort(key=lambda limit: -limit[1])
    return "; ".join(f"{text} ({over:.1%} too far)" for text, over in broken)


def _broken_sides(
    constraint: Predicate, point: Point, estimate: Estimate
) -> Iterator[tuple[str, float]]:
    """The inequalities of a broken constraint that do not hold."""
    if not isinstance(constraint, Constraint):
        yield f"the constraint {getattr(constraint, '__name__', 'of the space')}", 1.0
        return
    terms = ((constraint.product, " x "), (constraint.sum, " + "), (constraint.ratio, " / "))
    form = constraint.value or "".join(sign.join(names) for names, sign in terms)
    for name, (left, right) in constraint.sides(point, estimate).items():
        a, b = float(left), float(right)
        over = {"at_most": a - b, "at_least": b - a, "equals": abs(a - b)}.get(name, abs(b))
        holds_here = (b / a).is_integer() if name == "divides" else over <= 0
        if not holds_here:
            words = f"{form} {a:.4g} {name.replace('_', ' ')} {b:.4g}"
            yield words, over / max(abs(b), 1e-300)
