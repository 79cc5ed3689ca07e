"""The leaves that the wanted outputs depend on, from one trace; other axes are refused."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from jax.extend.core import ClosedJaxpr
from jax.interpreters import partial_eval
from jax.typing import DTypeLike

from infer_jax.errors import InputError
from infer_jax.sweeps.group import Group
from infer_jax.sweeps.paths import by_path, unit_of
from infer_jax.sweeps.point import Declarations, Evaluation, traced


class Reading(NamedTuple):
    """The result of tracing one point: which inputs its outputs read, and what these declare."""

    reads: dict[str, bool]  # by path of every number of the five pytrees
    steps: tuple[bool, ...]  # by slot: whether its step is read
    declared: Declarations
    text: str  # the program of a point, without what differs from run to run


def read(evaluation: Evaluation, group: Group, dtype: DTypeLike) -> Reading:
    """Trace one point and follow back which inputs the terms, constraints and limits read.

    Raises:
        InputError: a name that is no input and no term.
    """
    trace = traced(evaluation, group.base, dtype)
    reads, steps, text = _read(trace.jaxpr, len(evaluation.terms) + 2, len(group.slots))
    axes = [c.path for c in group.columns if not c.is_spec]
    units = {path: unit_of(path, group.base, None) for path in axes} | trace.declared.units
    by_name = dict(zip(by_path(group.base), reads, strict=True))
    return Reading(by_name, steps, trace.declared._replace(units=units), text)


@lru_cache(maxsize=256)
def _read(
    jaxpr: ClosedJaxpr, outputs: int, steps: int
) -> tuple[tuple[bool, ...], tuple[bool, ...], str]:
    """Which leaves and which steps the first outputs read, and the text of that program."""
    needed = [i < outputs for i in range(len(jaxpr.jaxpr.outvars))]
    lean, used = partial_eval.dce_jaxpr(jaxpr.jaxpr, needed)
    text = re.sub(r"0x[0-9a-f]+|at /[^ ]*|/[^ ]*\.py:\d+", "", str(lean))
    leaves = len(used) - steps
    return tuple(used[:leaves]), tuple(used[leaves:]), text


def refuse_unread(groups: Iterable[tuple[Group, Reading]], terms: Sequence[str]) -> None:
    """Raise InputError for an axis that no group's outputs read."""
    live: dict[str, bool] = {}
    for group, reading in groups:
        paths = list(reading.reads)
        for column in group.columns:
            reads = [
                read
                for slot, read in zip(group.slots, reading.steps, strict=True)
                if slot.digit == column.digit and _is_under(paths[slot.leaf], column.path)
            ]
            derived = group.sizes[column.digit] == 1  # a single value, which adds no points
            live[column.path] = live.get(column.path, False) or not reads or any(reads) or derived
    for path, is_read in live.items():
        if not is_read:
            allowed = f"a field that {', '.join(terms)} or a constraint depends on"
            raise InputError("space", "axis", path, allowed)


def _is_under(leaf: str, path: str) -> bool:
    of_system = path == "hardware" and leaf.startswith("estimator.")
    return leaf == path or leaf.startswith(f"{path}.") or of_system
