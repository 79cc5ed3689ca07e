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
from infer_jax.sweeps.digits import words_needed
from infer_jax.sweeps.group import Group
from infer_jax.sweeps.legality import Mask, is_legal, validity_masks
from infer_jax.sweeps.paths import is_sequence
from infer_jax.sweeps.point import Program
from infer_jax.sweeps.program import GroupTask, task_of
from infer_jax.sweeps.reducers import Reducer, parse
from infer_jax.sweeps.space import Space

PRECISIONS = {"float32": np.float32, "float64": np.float64}


class Prepared(NamedTuple):
    """A sweep that was read and checked, and not yet run."""

    parts: tuple[GroupTask, ...]
    reducer: Reducer
    running: Reducer  # the reducer that runs: with a margin or spare rows where float64 decides
    readings: tuple[Reading, ...]
    per_sizes: tuple[int, ...]  # positions of each axis of ``per``
    precision: str
    mark: str
    estimator: Estimator | Sequence[Estimator]
    named: dict[str, System | Model]  # those from the catalog, by name

    @property
    def estimators(self) -> list[Estimator]:
        """The estimators, one or several."""
        return [self.estimator] if isinstance(self.estimator, Estimator) else list(self.estimator)

    @property
    def groups(self) -> list[Group]:
        """The groups of points."""
        return [part.group for part in self.parts]

    @property
    def size(self) -> int:
        """Points of the grid."""
        return sum(p.group.size for p in self.parts)

    @property
    def signs(self) -> dict[str, float]:
        """By term of the reducer: -1 where more of it is better."""
        return dict(self.readings[0].declared.signs)


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
    per_sizes = tuple(
        1 + max(max(c.order) for g in groups for c in g.columns if c.path == path)
        for path in keep.axes
    )
    terms = list(dict.fromkeys(parse(term)[0] for term in keep.terms))
    masks: list[list[Mask]] = [[] for _ in groups]
    where = tuple(space.where)
    if legal:
        masks, by_point = validity_masks(groups)
        where = (*where, is_legal) if by_point else where
    parts: list[GroupTask] = []
    readings: list[Reading] = []
    with jax.enable_x64(precision == "float64"):
        for group, own in zip(groups, masks, strict=True):
            signs = tuple((name, 1.0) for name in terms)
            program = Program(
                group.slots, group.sizes, per, signs, where, feasible, keep, 0,
                words_needed(total), tuple(m.digits for m in own),
            )  # fmt: skip
            reading = read(program, group, dtype)
            program = program._replace(signs=reading.declared.signs)
            task = task_of(group, per, per_sizes, dtype)
            task = task._replace(masks=tuple(m.table for m in own))
            parts.append(GroupTask(group, program, task))
            readings.append(reading)
    _refuse_unknown(space, readings, terms)
    pairs = list(zip(groups, readings, strict=True))
    refuse_unread(pairs, terms)
    running = keep.in_float32(readings[0].declared.counts) if precision == "float32" else keep
    tables = [m.table for own in masks for m in own]
    mark = fingerprint(pairs, running, feasible, dtype, tables)
    return Prepared(
        tuple(parts), keep, running, tuple(readings), per_sizes, precision, mark, estimator,
        space.entries(),
    )  # fmt: skip


def _refuse_unknown(space: Space, readings: Sequence[Reading], terms: Sequence[str]) -> None:
    """Raise InputError where a power or an energy is an objective, and a chip has no power."""
    powers = [name for name in terms if any(name in x.declared.powers for x in readings)]
    systems = space.hardware if is_sequence(space.hardware) else [space.hardware]
    for system in systems if powers and "hardware.power" not in space.axes else ():
        board = getattr(system, "hardware", system).power
        if not isinstance(board, Axis) and not np.any(np.asarray(board)):
            name = getattr(system, "name", "the hardware")
            allowed = f"a system whose profile has a power_w; {name} has none"
            raise InputError("sweep", "keep", powers[0], allowed)
