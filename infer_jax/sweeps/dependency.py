"""The leaves that the wanted outputs depend on, from one trace; other axes are refused."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from jax.extend.core import ClosedJaxpr
from jax.interpreters import partial_eval
from jax.typing import DTypeLike

from infer_jax.errors import InputError
from infer_jax.sweeps.group import Group
from infer_jax.sweeps.paths import by_path, unit_of
from infer_jax.sweeps.point import Program, traced


class Reading(NamedTuple):
    """The result of tracing one point: which inputs its outputs read."""

    reads: dict[str, bool]  # by path of every number of the five pytrees
    steps: tuple[bool, ...]  # by slot: whether its step is read
    signs: tuple[tuple[str, float], ...]
    counts: frozenset[str]
    units: dict[str, str]
    drawn: frozenset[str]
    text: str  # the program of a point, without what differs from run to run


def read(program: Program, group: Group, dtype: DTypeLike) -> Reading:
    """Trace one point and follow back which inputs the terms, constraints and limits read.

    Raises:
        InputError: a name that is no input and no term.
    """
    trace = traced(program, group.base, dtype)
    reads, steps, text = _read(trace.jaxpr, len(program.signs) + 2, len(group.slots))
    paths = list(by_path(group.base))
    axes = [c.path for c in group.columns if not c.is_spec]
    units = {path: unit_of(path, group.base, None) for path in axes} | trace.units
    answers = dict(zip(paths, reads, strict=True))
    return Reading(answers, steps, trace.signs, trace.counts, units, trace.drawn, text)


@lru_cache(maxsize=256)
def _read(
    jaxpr: ClosedJaxpr, answers: int, steps: int
) -> tuple[tuple[bool, ...], tuple[bool, ...], str]:
    """Which leaves and which steps the first outputs read, and the text of that program."""
    asked = [i < answers for i in range(len(jaxpr.jaxpr.outvars))]
    lean, used = partial_eval.dce_jaxpr(jaxpr.jaxpr, asked)
    text = re.sub(r"0x[0-9a-f]+|at /[^ ]*|/[^ ]*\.py:\d+", "", str(lean))
    leaves = len(used) - steps
    return tuple(used[:leaves]), tuple(used[leaves:]), text


def refuse_unread(groups: list[tuple[Group, Reading]], terms: Sequence[str]) -> None:
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
            derived = group.sizes[column.digit] == 1  # a single value, which adds no points
            live[column.path] = live.get(column.path, False) or not mine or any(mine) or derived
    for path, read_somewhere in live.items():
        if not read_somewhere:
            asked = f"a field that {', '.join(terms)} or a constraint depends on"
            raise InputError("space", "axis", path, asked)


def _under(leaf: str, path: str) -> bool:
    of_system = path == "hardware" and leaf.startswith("estimator.")
    return leaf == path or leaf.startswith(f"{path}.") or of_system
