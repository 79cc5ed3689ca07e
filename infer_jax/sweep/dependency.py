"""Which leaves do the asked outputs read? One trace tells; an axis nobody reads is refused."""

import re
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.interpreters import partial_eval

from infer_jax.errors import InputError
from infer_jax.sweep.group import Group
from infer_jax.sweep.program import Program, one_point
from infer_jax.sweep.space import dotted
from infer_jax.sweep.terms import grows, numbers, unit_of


class Reading(NamedTuple):
    """What one trace of one point tells."""

    reads: dict[str, bool]  # by path of every number of the five pytrees
    steps: tuple[bool, ...]  # by slot: whether its step is read
    signs: tuple[tuple[str, float], ...]
    units: dict[str, str]
    text: str  # the program of a point, without what differs from run to run


def read(program: Program, group: Group, names: tuple[str, ...], dtype: Any) -> Reading:
    """Trace one point and follow back what the named terms, constraints and limits read.

    Raises:
        InputError: a name that is no input and no term.
    """
    told = tuple(dict.fromkeys([*names, *(c.path for c in group.columns if not c.is_spec)]))
    asked = program._replace(signs=tuple((n, 1.0) for n in names), reducer=None, limbs=0, per=())
    return _read(asked, jax.tree.structure(group.base), told, np.dtype(dtype))


@lru_cache(maxsize=256)
def _read(asked: Program, tree: Any, told: tuple[str, ...], dtype: np.dtype) -> Reading:
    """A reading depends on structure alone: one trace serves all numbers."""
    found: dict[str, Any] = {}

    def seen(point: Any, life: Any) -> None:
        names = [name for name, _ in asked.signs]
        found["signs"] = tuple((n, -1.0 if grows(n, point, life) else 1.0) for n in names)
        found["units"] = {n: unit_of(n, point, life) for n in (*told, *numbers(life))}

    def outputs(base: Any, steps: Any) -> Any:
        values, accepted, feasible, _ = one_point(asked, base, steps, seen)
        return values, accepted, feasible

    scalar = jax.ShapeDtypeStruct((), dtype)
    base = jax.tree.unflatten(tree, [scalar] * tree.num_leaves)
    closed = jax.make_jaxpr(outputs)(base, [scalar] * len(asked.slots))
    lean, used = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    paths = [dotted(key) for key, _ in jax.tree_util.tree_flatten_with_path(base)[0]]
    text = re.sub(r"0x[0-9a-f]+|at /[^ ]*|/[^ ]*\.py:\d+", "", str(lean))
    reads = dict(zip(paths, used[: len(paths)], strict=True))
    return Reading(reads, tuple(used[len(paths) :]), found["signs"], found["units"], text)


def refuse_unread(groups: list[tuple[Group, Reading]], terms: tuple[str, ...]) -> None:
    """Raise InputError for an axis that no group's outputs read."""
    live: dict[str, bool] = {}
    for group, reading in groups:
        paths = list(reading.reads)
        for column in group.columns:
            mine = [
                read
                for slot, read in zip(group.slots, reading.steps, strict=True)
                if slot.digit == column.digit and _under(paths[slot.leaf], column.path)
            ]
            derived = group.sizes[column.digit] == 1  # adds no points: nothing is wasted
            live[column.path] = live.get(column.path, False) or not mine or any(mine) or derived
    for path, read_somewhere in live.items():
        if not read_somewhere:
            asked = f"a field that {', '.join(terms)} or a constraint depends on"
            raise InputError("space", "axis", path, asked)


def _under(leaf: str, path: str) -> bool:
    of_system = path == "hardware" and leaf.startswith("estimator.")
    return leaf == path or leaf.startswith(f"{path}.") or of_system
