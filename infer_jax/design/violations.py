"""The limits a point exceeds and by how much, and starting points."""

from collections.abc import Callable, Mapping
from functools import lru_cache

import jax
import numpy as np

from infer_jax.compiling import quick
from infer_jax.design.problem import DesignProblem
from infer_jax.design.relaxation import Relaxation
from infer_jax.errors import InputError
from infer_jax.estimators import Estimate
from infer_jax.sweeps.constraint import Constraint, Predicate, holds
from infer_jax.sweeps.paths import Point, by_path, look
from infer_jax.sweeps.space import Space


def start_values(relaxed: Relaxation, start: Mapping[str, float]) -> list[float]:
    """Values of the moving digits at the start; the middle of an axis where none is given.

    Raises:
        InputError: a start outside the ends of its axis, or on no moving axis.
    """
    group, values = relaxed.group, []
    for digit, table in zip(relaxed.moving, relaxed.tables, strict=True):
        names = [c.path for c in group.columns if c.digit == digit]
        chosen = [start[name] for name in names if name in start]
        value = float(chosen[0]) if chosen else float(table[len(table) // 2])
        if not table[0] <= value <= table[-1]:
            allowed = f"bounds that hold the start: {table[0]:g} to {table[-1]:g} do not"
            raise InputError("codesign", names[0], value, allowed)
        values.append(value)
    known = [c.path for c in group.columns]
    for name in start:
        if name not in known:
            raise InputError("codesign", f"start of {name}", start[name], ", ".join(known))
    return values


def start_point(relaxed: Relaxation, start: Mapping[str, float]) -> Point:
    """The start as a point: its values on the moving axes, the first value of all others."""
    group = relaxed.group
    lead = dict(zip(relaxed.moving, start_values(relaxed, start), strict=True))
    tables = dict(zip(relaxed.moving, relaxed.tables, strict=True))
    steps = []
    for slot, table in zip(group.slots, group.tables, strict=True):
        if slot.digit in lead:
            steps.append(np.interp(lead[slot.digit], tables[slot.digit], table))
        else:
            path = next((c.path for c in group.columns if c.digit == slot.digit), "")
            steps.append(np.float64(start.get(path, table[0])))
    with jax.enable_x64(True):
        return jax.tree.map(lambda x: np.asarray(x, np.float64), group.fill(steps))


def start_of(point: Point, space: Space) -> dict[str, float]:
    """The values that specs have on the axes of a space laid over them."""
    numbers = by_path(point)
    paths = [path for path, axis in space.axes.items() if not axis.is_spec]
    for path in paths:
        if path not in numbers:
            raise InputError("codesign", "axis", path, f"a number of {path.split('.')[0]}")
    return {path: float(numbers[path]) for path in paths}


def estimate_of(point: Point) -> Estimate:
    """The exact estimate of one point, in float64."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, _compiled(jax.default_backend())(point))


def _estimate(point: Point) -> Estimate:
    return point.estimator.estimate(point.arch, point.hardware, point.workload, point.plan)


@lru_cache
def _compiled(platform: str) -> Callable[[Point], Estimate]:
    return jax.jit(_estimate, compiler_options=quick(platform))


def excess_of(
    problem: DesignProblem, point: Point, estimate: Estimate, limits: np.ndarray
) -> float:
    """The worst relative excess over limits; infinite where a constraint of the grid is broken."""
    if not all(bool(holds(c, point, estimate)) for c in problem.program.where):
        return np.inf
    return max([0.0, *(x for _, x in _broken(problem, point, estimate, limits))])


def violations(problem: DesignProblem, point: Point, estimate: Estimate, limits: np.ndarray) -> str:
    """The limits that are exceeded and by how much, in words, the worst first."""
    broken = _broken(problem, point, estimate, limits)
    for constraint in problem.program.where:
        if not bool(holds(constraint, point, estimate)):
            broken += _broken_sides(constraint, point, estimate)
    worst_first = sorted(broken, key=lambda excess: -excess[1])
    return "; ".join(f"{text} ({over:.1%} too far)" for text, over in worst_first)


def _broken(
    problem: DesignProblem, point: Point, estimate: Estimate, limits: np.ndarray
) -> list[tuple[str, float]]:
    """(limit in words, relative excess) of the limits that are exceeded."""
    broken, signs = [], dict(problem.program.signs)
    for (name, _), limit in zip(problem.keep.under, limits, strict=True):
        value = float(look(name, point, estimate))
        over = limit / value if signs[name] < 0 else value / limit
        word = "at least" if signs[name] < 0 else "at most"
        broken.append((f"{name} {value:.4g}, {word} {limit:.4g}", over - 1.0))
    above = problem.program.feasible.rpartition(".")[0]
    phases = {above: look(above, point, estimate)} if above else {}
    phases = phases or {"prefill": estimate.prefill, "decode": estimate.decode}
    for title, phase in phases.items():
        for name, limit in phase.limits.items():
            need, capacity = float(limit.need), float(limit.capacity)
            text = f"{name} in {title} {need:.4g}, at most {capacity:.4g}"
            broken.append((text, need / max(capacity, 1e-300) - 1.0))
    return [(text, over) for text, over in broken if over > 0]


def _broken_sides(
    constraint: Predicate, point: Point, estimate: Estimate
) -> list[tuple[str, float]]:
    """(inequality in words, relative excess) of the sides of a constraint that do not hold."""
    if not isinstance(constraint, Constraint):
        return [(f"the constraint {getattr(constraint, '__name__', 'of the space')}", 1.0)]
    terms = ((constraint.product, " x "), (constraint.sum, " + "), (constraint.ratio, " / "))
    form = constraint.value or "".join(sign.join(names) for names, sign in terms)
    broken = []
    for name, (left, right) in constraint.sides(point, estimate).items():
        a, b = float(left), float(right)
        scale = max(abs(b), 1e-300)
        over = {"at_most": a - b, "at_least": b - a, "equals": abs(a - b)}.get(name, scale) / scale
        if over > 0 and (name != "divides" or not (b / a).is_integer()):
            broken.append((f"{form} {a:.4g} {name.replace('_', ' ')} {b:.4g}", over))
    return broken
