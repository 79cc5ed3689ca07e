"""Which points are not looked at? Limits on sums, products and ratios of inputs and terms."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from infer_jax.errors import InputError
from infer_jax.sweep.terms import Point, look

Side = float | str | None  # a number, or the name of an input or a term
FORMS = ("product", "sum", "ratio", "value")
RELATIONS = ("at_most", "at_least", "equals", "divides")


@dataclasses.dataclass(frozen=True)
class Constraint:
    """One form of named inputs or terms, held against one or more numbers or names.

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
        given = [form for form in FORMS if getattr(self, form)]
        if len(given) != 1:
            raise InputError("constraint", "form", given, f"exactly one of {', '.join(FORMS)}")
        if self.ratio and len(self.ratio) != 2:
            raise InputError("constraint", "ratio", self.ratio, "two names")
        if all(getattr(self, relation) is None for relation in RELATIONS):
            raise InputError("constraint", "relation", "missing", ", ".join(RELATIONS))

    @classmethod
    def of(cls, where: str, table: Any) -> "Constraint":
        """A constraint from a table of a file.

        Raises:
            InputError: an unknown key, no form or relation, or a side of another type.
        """
        if not isinstance(table, dict):
            raise InputError(where, "where", table, "a table")
        known = [f.name for f in dataclasses.fields(cls)]
        for key, value in table.items():
            if key not in known:
                raise InputError(where, f"where.{key}", value, ", ".join(known))
            many = key in FORMS[:3]
            good = isinstance(value, list) and all(isinstance(x, str) for x in value)
            single = isinstance(value, str) or (key in RELATIONS and type(value) in (int, float))
            if not (good if many else single):
                allowed = "a list of names" if many else "a name" if key == "value" else "a number"
                raise InputError(where, f"where.{key}", value, allowed)
        try:
            made: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in table.items()
            }
            return cls(**made)
        except InputError as error:
            raise InputError(where, f"where.{error.field}", error.value, error.allowed) from None

    def __call__(self, point: Point, life: Any) -> Any:
        """Whether a point keeps it."""

        def side(x: Any) -> Any:
            return look(x, point, life) if isinstance(x, str) else x

        if self.product:
            left = jnp.prod(jnp.stack([jnp.asarray(side(x)) for x in self.product]))
        elif self.sum:
            left = jnp.sum(jnp.stack([jnp.asarray(side(x)) for x in self.sum]))
        elif self.ratio:
            left = side(self.ratio[0]) / side(self.ratio[1])
        else:
            left = side(self.value)
        kept = jnp.asarray(True)
        if self.at_most is not None:
            kept &= left <= side(self.at_most)
        if self.at_least is not None:
            kept &= left >= side(self.at_least)
        if self.equals is not None:
            kept &= left == side(self.equals)
        if self.divides is not None:
            whole = side(self.divides) / left
            kept &= whole == jnp.floor(whole)
        return kept


Predicate = Constraint | Callable[..., Any]


def holds(predicate: Predicate, point: Point, life: Any) -> Any:
    """A constraint, ``f(point)`` or ``f(point, estimate)`` at one point."""
    if isinstance(predicate, Constraint):
        return predicate(point, life)
    if len(inspect.signature(predicate).parameters) == 1:
        return predicate(point)
    return predicate(point, life)
