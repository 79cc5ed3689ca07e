"""The limits and constraints that a point breaks, and by how much."""

from collections.abc import Callable, Iterator
from functools import lru_cache

import jax
import numpy as np

from infer_jax.compiling import quick
from infer_jax.design.problem import DesignProblem
from infer_jax.estimators import Estimate
from infer_jax.sweeps.constraint import Constraint, Predicate, holds
from infer_jax.sweeps.paths import Point, estimate_at

Broken = list[tuple[str, float]]  # what is broken in words, and the relative excess


def estimate_of(point: Point) -> Estimate:
    """The exact estimate of one point, in float64."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, _compiled(jax.default_backend())(point))


@lru_cache
def _compiled(platform: str) -> Callable[[Point], Estimate]:
    return jax.jit(estimate_at, compiler_options=quick(platform))


def violations(
    problem: DesignProblem, point: Point, estimate: Estimate, limits: np.ndarray
) -> Broken:
    """The limits and constraints that a point breaks, and by how much, the worst first."""
    broken: Broken = []
    needed = problem.terms_needed(point, estimate, limits)
    for (name, _), (need, capacity) in zip(problem.keep.limits, needed, strict=True):
        floor = problem.signs[name] < 0
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
    return sorted(broken, key=lambda limit: -limit[1])


def in_words(broken: Broken) -> str:
    """What is broken as the end of a sentence."""
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
