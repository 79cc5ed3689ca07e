"""Inputs of a point and terms of its estimate by dotted name, with their units."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeGuard, cast

import jax

from infer_jax.errors import InputError
from infer_jax.estimators import Estimate, Estimator
from infer_jax.estimators.estimator import AnyPlan
from infer_jax.specs import Architecture, Hardware, Plan, Workload
from infer_jax.specs.declared_outputs import Output
from infer_jax.specs.fields import leaves
from infer_jax.typed_jax import jit

# The derived totals of a plan, which are properties and so declare no field of their own.
DERIVED = {"instance": "1", "chips": "1", "feasible": "bool", "shortfall": "1", "slack": "1"}

Tree = Any  # a spec, a part of one or of an estimate, or a number: a pytree of any structure


class Point(NamedTuple):
    """One configuration, or a batch or a grid of them: the five pytrees of an estimate."""

    estimator: Estimator
    arch: Architecture
    hardware: Hardware
    workload: Workload
    plan: AnyPlan


@jit(inline=True)
def estimate_at(point: Point) -> Estimate:
    """The estimate of one configuration.

    It is traced once for a structure, whatever is made of that: a grid, a slope, a search.
    """
    return point.estimator.estimate(point.arch, point.hardware, point.workload, point.plan)


def by_path(tree: Tree, is_leaf: Callable[[object], bool] | None = None) -> dict[str, Tree]:
    """The leaves of a tree by their dotted paths, in the order of ``jax.tree.leaves``.

    >>> by_path({"a": (1.0, 2.0)})
    {'a.0': 1.0, 'a.1': 2.0}
    """
    flat = cast(  # JAX leaves the type of the keys open
        list[tuple[Tree, Tree]],
        jax.tree.leaves_with_path(tree, is_leaf),  # pyright: ignore[reportUnknownMemberType]
    )
    name = partial(jax.tree_util.keystr, simple=True, separator=".")  # pyright: ignore[reportUnknownMemberType]
    return {name(keys): leaf for keys, leaf in flat}


def is_table(value: object) -> TypeGuard[dict[str, Tree]]:
    """Whether it is a dictionary, which here has names as keys."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Tree]]:
    """Whether it is a list."""
    return isinstance(value, list)


def is_names(value: object) -> TypeGuard[list[str]]:
    """Whether it is a list of texts."""
    return is_list(value) and all(isinstance(x, str) for x in value)


def is_sequence(value: object) -> TypeGuard[Sequence[Tree]]:
    """Whether it is a list or a tuple."""
    return isinstance(value, list | tuple)


def look(path: str, point: Point, estimate: Estimate | None) -> Tree:
    """The value of a name: ``plan.tp`` of the inputs, ``decode.terms.memory`` of the estimate.

    Raises:
        InputError: there is no such input or term.
    """
    return _descend(path, path.split("."), point, estimate)


def _descend(path: str, steps: Sequence[str], point: Point, estimate: Estimate | None) -> Tree:
    """The value at the first ``steps`` of a path."""
    here = point if path.split(".")[0] in Point._fields else estimate
    for step in steps:
        here = _child(here, step, path)
    return here


def _child(here: object, step: str, path: str) -> Tree:
    if is_table(here) and step in here:
        return here[step]
    if is_sequence(here) and step.isdigit() and int(step) < len(here):
        return here[int(step)]
    if not is_table(here) and not step.startswith("_") and hasattr(here, step):
        value = getattr(here, step)
        if not callable(value):
            return value
    raise InputError("space", "term", path, f"here one of {', '.join(children(here))}")


def children(here: object) -> list[str]:
    """The names one can go on with from here."""
    if is_table(here):
        return list(here)
    if is_sequence(here) and not hasattr(here, "_fields"):
        return [str(i) for i in range(len(here))]
    if dataclasses.is_dataclass(here):
        names = [f.name for f in dataclasses.fields(here)]
    else:
        names = list(getattr(here, "_fields", ()))
    return names + [n for n in DERIVED if isinstance(getattr(type(here), n, None), property)]


def declared(path: str, point: Point, estimate: Estimate | None) -> Output:
    """What the field of an input or a term declares: unit, kind, and whether more is better."""
    *above, last = path.split(".")
    here = _descend(path, above, point, estimate)
    _child(here, last, path)
    if dataclasses.is_dataclass(here):
        for f in dataclasses.fields(here):
            if f.name == last:
                output = f.metadata.get("output") or Output()
                unit, kind = f.metadata.get("unit", "1"), f.metadata.get("kind", "")
                return dataclasses.replace(output, unit=unit, kind=kind)
        kind = "count" if isinstance(here, Plan) else ""
        return Output(unit=DERIVED.get(last, "1"), kind=kind)
    return Output(unit="s", kind="time") if "terms" in above else Output()


def numbers(tree: object) -> dict[str, Tree]:
    """Every declared number below a tree by its dotted path, dictionaries included."""
    values = {path: value for path, _, value in leaves(tree)}
    for f in dataclasses.fields(tree) if dataclasses.is_dataclass(tree) else ():
        value = getattr(tree, f.name)
        if is_table(value):
            for key, item in value.items():
                if dataclasses.is_dataclass(item):
                    inner = numbers(item)
                    values |= {f"{f.name}.{key}.{k}": v for k, v in inner.items()}
                else:
                    values[f"{f.name}.{key}"] = item
        elif dataclasses.is_dataclass(value):
            values |= {f"{f.name}.{k}": v for k, v in numbers(value).items()}
    return values
