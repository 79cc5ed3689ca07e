"""Prepares a sweep: reads and checks the space, the estimator and what to keep."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from infer_jax.catalog import Model, System
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.sweeps.axis import Axis
from infer_jax.sweeps.checkpoint import fingerprint
from infer_jax.sweeps.dependency import Reading, read, refuse_unread
from infer_jax.sweeps.digits import limbs_needed
from infer_jax.sweeps.group import Group
from infer_jax.sweeps.lawful import Mask, lawful, masks
from infer_jax.sweeps.paths import is_sequence
from infer_jax.sweeps.point import Program
from infer_jax.sweeps.program import task_of
from infer_jax.sweeps.reducers import Reducer, parse
from infer_jax.sweeps.space import Space
from infer_jax.sweeps.stream import GroupTask

PRECISIONS = {"float32": np.float32, "float64": np.float64}


class Prepared(NamedTuple):
    """A sweep that was read and checked, and not yet run."""

    parts: tuple[GroupTask, ...]
    reducer: Reducer
    keeping: Reducer  # the reducer that runs: with a margin or spare rows where float64 decides
    readings: tuple[Reading, ...]
    spans: tuple[int, ...]
    precision: str
    mark: str
    estimator: Estimator | Sequence[Estimator]
    named: dict[str, System | Model]  # those from the catalog, by name

    @property
    def estimators(self) -> list[Estimator]:
        """The estimators, one or several."""
        given = self.estimator
        return [given] if isinstance(given, Estimator) else list(given)

    @property
    def groups(self) -> list[Group]:
        """The groups of points."""
        return [part.group for part in self.parts]

    @property
    def size(self) -> int:
        """Points of the grid."""
        return sum(p.group.size for p in self.parts)


def prepare(
    estimator: Estimator | Sequence[Estimator],
    space: Space,
    keep: Reducer,
    *,
    precision: str = "float32",
    feasible: str = "feasible",
    legal: bool = True,
) -> Prepared:
    """Read and check a sweep, without running it.

    Unless ``legal`` is False, points that no engine runs are left out, and a value that is illegal
    at every point is refused.
    """
    if precision not in PRECISIONS:
        raise InputError("sweep", "precision", precision, " or ".join(PRECISIONS))
    dtype = PRECISIONS[precision]
    groups = space.groups(estimator)
    total = sum(g.size for g in groups)
    keep = keep.sized(total)
    paths = {c.path: c.digit for c in groups[0].columns}
    for path in keep.axes:
        if path not in paths:
            raise InputError("sweep", "per", path, f"axes: {', '.join(paths)}")
    per = tuple(paths[path] for path in keep.axes)
    spans = tuple(_span(groups, path) for path in keep.axes)
    names = tuple((name, 1.0) for name in dict.fromkeys(parse(term)[0] for term in keep.terms))
    parts: list[GroupTask] = []
    readings: list[Reading] = []
    held: list[list[Mask]] = [[] for _ in groups]
    asked = False
    if legal:
        held, asked = masks(groups)
    where = (*space.where, lawful) if asked else tuple(space.where)
    with jax.enable_x64(precision == "float64"):
        for group, mine in zip(groups, held, strict=True):
            program = Program(
                group.slots, group.sizes, per, names, where, feasible, keep, 0,
                limbs_needed(total), tuple(m.digits for m in mine),
            )  # fmt: skip
            reading = read(program, group, dtype)
            program = program._replace(signs=reading.signs)
            task = task_of(group, per, spans, dtype)._replace(masks=tuple(m.table for m in mine))
            parts.append(GroupTask(group, program, task))
            readings.append(reading)
    _refuse_unknown(space, [name for name, _ in names if any(name in x.drawn for x in readings)])
    refuse_unread(list(zip(groups, readings, strict=True)), [name for name, _ in names])
    keeping = keep.in_float32(readings[0].counts) if precision == "float32" else keep
    tables = [m.table for mine in held for m in mine]
    mark = fingerprint(list(zip(groups, readings, strict=True)), keeping, feasible, dtype, tables)
    return Prepared(
        tuple(parts), keep, keeping, tuple(readings), spans, precision, mark, estimator,
        space.named(),
    )  # fmt: skip


def _refuse_unknown(space: Space, asked: Sequence[str]) -> None:
    """Raise InputError where an energy or a power is asked for of a chip whose power is unknown."""
    given = space.hardware
    systems = given if is_sequence(given) else [given]
    for system in systems if asked and "hardware.power" not in space.axes else ():
        board = getattr(system, "hardware", system).power
        if not isinstance(board, Axis) and not np.any(np.asarray(board)):
            name = getattr(system, "name", "the hardware")
            allowed = f"a system whose profile has a power_w; {name} has none"
            raise InputError("sweep", "keep", asked[0], allowed)


def _span(groups: Sequence[Group], path: str) -> int:
    """Positions of an axis over all groups."""
    return 1 + max(max(c.order) for g in groups for c in g.columns if c.path == path)
