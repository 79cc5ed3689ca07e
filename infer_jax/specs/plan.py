"""How a model is laid out over chips: the few degrees that every estimator understands."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Self

import jax.numpy as jnp
from jax import Array

from infer_jax.specs.architecture import UNBOUNDED
from infer_jax.specs.fields import Spec, number, spec

LAYOUTS = ("1d", "2d")


def layout_label(
    degrees: Mapping[str, float | None],
    write: Callable[[float], str] = "{:g}".format,
    *,
    chunk: float = UNBOUNDED,
    drafts: float = 0.0,
) -> str:
    """The degrees of one instance that are more than 1, in words, and its chunk and drafts.

    >>> layout_label({"tp": 4.0, "pp": 1.0, "ep": 2.0}), layout_label({"tp": 1.0, "pp": None})
    ('TP4 EP2', 'TP1')
    >>> layout_label({"tp": 4.0}, chunk=2048.0, drafts=3.0)
    'TP4 chunk 2048 drafts 3'
    """
    above = [f"{name.upper()}{write(x)}" for name, x in degrees.items() if x is not None and x > 1]
    more = [f"chunk {chunk:.12g}"] if chunk != UNBOUNDED else []
    more += [f"drafts {drafts:.12g}"] if drafts else []
    return " ".join([*(above or ["TP1"]), *more])


@spec
class Plan(Spec):
    """One instance of the model. Its chips are tp x pp x ep; ``dp`` copies of it are run.

    An estimator that needs more extends this in its own file.
    """

    tp: Array = number("tensor parallel degree", kind="count", default=1.0)
    pp: Array = number("pipeline parallel degree", kind="count", default=1.0)
    ep: Array = number("expert parallel degree", kind="count", default=1.0)
    dp: Array = number("data parallel copies", kind="count", default=1.0)
    layout: Array = number(
        "slicing of weights over the tensor parallel ranks",
        kind="choice",
        high=1,
        default=0.0,
        choices=LAYOUTS,
    )

    @property
    def instance(self) -> Array:
        """Chips of one instance: tp * pp * ep."""
        return self.tp * self.pp * self.ep

    @property
    def chips(self) -> Array:
        """Chips in all: tp * pp * ep * dp."""
        return self.instance * self.dp

    @classmethod
    def widen(cls, plan: "Plan", **own: Array) -> Self:
        """``plan`` as this class of plans; fields that it lacks are ``own`` or their defaults.

        Defaults are weakly typed constants, so that the precision is that of the plan's numbers;
        optional parts stay absent.
        """
        if isinstance(plan, cls):
            return plan
        given = {f.name: getattr(plan, f.name) for f in dataclasses.fields(Plan)} | own
        standard = cls.of()
        rest = {f.name: getattr(standard, f.name) for f in dataclasses.fields(cls)}
        rest = {name: x for name, x in rest.items() if name not in given and x is not None}
        return cls(**given, **{name: jnp.asarray(float(x)) for name, x in rest.items()})
