"""Constraints on the points of a sweep: limits on sums, products and ratios of inputs and terms."""

import dataclasses
import inspect
import operator
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from infer_jax.errors import InputError
from infer_jax.estimators import Estimate
from infer_jax.sweeps.paths import Point, Tree, look

Side = float | str | None  # a number, or the name of an input or a term
Sides = dict[str, tuple[Array, Array | float]]  # by relation: its left and right side
FORMS = ("product", "sum", "ratio", "value")


def divides(divisor: Array, number: Array | float) -> Array:
    """Whether it leaves no remainder."""
    ratio = number / divisor
    return ratio == jnp.floor(ratio)


RELATIONS: dict[str, Callable[[Array, Array | float], Array]] = {
    "at_most": operator.le,
    "at_least": operator.ge,
    "equals": operator.eq,
    "divides": divides,
}


@dataclasses.dataclass(frozen=True)
class Constraint:
    """A form of named inputs or terms, compared with one or more numbers or names.

    >>> Constraint(product=("plan.tp", "plan.pp"), at_most="plan.chips").at_most
    'plan.chips'
    """

    product: tuple[str, ...] = ()
    sum: tuple[str, ...] = ()
    ratio: tuple[str, ...] = ()
    value: str = ""
    at_most: Side = None
    at_least: Side = None
    equals: Side = None
    divides: Side = None

    def __post_init__(self) -> None:
        forms = [form for form in FORMS if getattr(self, form)]
        if len(forms) != 1:
            raise InputError("constraint", "form", forms, f"exactly one of {', '.join(FORMS)}")
        if self.ratio and len(self.ratio) != 2:
            raise InputError("constraint", "ratio", self.ratio, "two names")
        if all(getattr(self, relation) is None for relation in RELATIONS):
            raise InputError("constraint", "relation", "missing", ", ".join(RELATIONS))

    def left(self, point: Point, estimate: Estimate | None) -> Array:
        """The value of the form at a point."""
        names = self.product or self.sum or self.ratio or (self.value,)
        values = [_side(name, point, estimate) for name in names]
        if self.product:
            return jnp.prod(jnp.stack([jnp.asarray(x) for x in values]))
        if self.sum:
            return jnp.sum(jnp.stack([jnp.asarray(x) for x in values]))
        return values[0] / values[1] if self.ratio else values[0]

    def sides(self, point: Point, estimate: Estimate | None) -> Sides:
        """(left, right) of every relation of the constraint."""
        left = self.left(point, estimate)
        right = {name: getattr(self, name) for name in RELATIONS}
        return {k: (left, _side(x, point, estimate)) for k, x in right.items() if x is not None}

    def __call__(self, point: Point, estimate: Estimate | None) -> Array:
        """Whether a point satisfies the constraint."""
        satisfied = jnp.asarray(True)
        for relation, (left, right) in self.sides(point, estimate).items():
            satisfied &= RELATIONS[relation](left, right)
        return satisfied


def _side(value: float | str, point: Point, estimate: Estimate | None) -> Tree:
    return look(value, point, estimate) if isinstance(value, str) else value


Predicate = Constraint | Callable[..., ArrayLike]


def holds(predicate: Predicate, point: Point, estimate: Estimate | None) -> ArrayLike:
    """Whether a ``Constraint``, ``f(point)`` or ``f(point, estimate)`` holds at one point."""
    if isinstance(predicate, Constraint):
        return predicate(point, estimate)
    if len(inspect.signature(predicate).parameters) == 1:
        return predicate(point)
    return predicate(point, estimate)
