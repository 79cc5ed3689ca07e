"""Prepares a sweep: reads and checks the space, the estimator and what to keep."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import DTypeLike

from infer_jax.catalog import Model, System
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.sweeps.axis import Axis
from infer_jax.sweeps.checkpoint import fingerprint
from infer_jax.sweeps.digits import words_needed
from infer_jax.sweeps.legality import Mask, is_legal, validity_masks
from infer_jax.sweeps.paths import is_sequence
from infer_jax.sweeps.point import Evaluation, Reading, read, refuse_unread
from infer_jax.sweeps.program import Program, Task
from infer_jax.sweeps.reducers import Reducer, parse
from infer_jax.sweeps.space import Group, Space

PRECISIONS = {"float32": np.float32, "float64": np.float64}


class Part(NamedTuple):
    """A group with its program, its numbers in the sweep's precision, and what its outputs read."""

    group: Group
    program: Program
    task: Task
    reading: Reading


class Prepared(NamedTuple):
    """A sweep that was read and checked, and not yet run."""

    parts: tuple[Part, ...]
    reducer: Reducer
    running: Reducer  # the reducer that runs: with a margin or spare rows where float64 decides
    positions: int  # on the axes of ``per``
    precision: str
    mark: str
    estimator: Estimator | Sequence[Estimator]
    named: dict[str, System | Model]  # those from the catalog, by name

    @property
    def estimators(self) -> list[Estimator]:
        """The estimators, one or several."""
        return [self.estimator] if isinstance(self.estimator, Estimator) else list(self.estimator)

    @property
    def lanes(self) -> int:
        """Points that every estimator lets be evaluated at once; 0: any number."""
        return min((x.lanes for x in self.estimators if x.lanes), default=0)

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
        return self.parts[0].reading.declared.signs


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
    sizes = _sizes(groups, keep)
    terms = tuple(dict.fromkeys(parse(term)[0] for term in keep.terms))
    masks: list[list[Mask]] = [[] for _ in groups]
    where = tuple(space.where)
    if legal:
        masks, by_point = validity_masks(groups)
        where = (*where, is_legal) if by_point else where
    parts: list[Part] = []
    with jax.enable_x64(precision == "float64"):
        for group, own in zip(groups, masks, strict=True):
            evaluation = Evaluation(group.slots, terms, where, feasible)
            digits = tuple(m.digits for m in own)
            program = Program(
                evaluation, group.sizes, tuple(sizes), keep, 0, words_needed(total), digits
            )
            task = _task(group, sizes, own, dtype)
            parts.append(Part(group, program, task, read(evaluation, group, dtype)))
    _refuse_unknown(space, parts, terms)
    pairs = [(part.group, part.reading) for part in parts]
    refuse_unread(pairs, terms)
    counts = parts[0].reading.declared.counts
    running = keep.in_float32(counts) if precision == "float32" else keep
    tables = [table for part in parts for table in part.task.masks]
    mark = fingerprint(pairs, running, feasible, dtype, tables)
    positions = int(np.prod([*sizes.values()], dtype=np.int64))
    return Prepared(
        tuple(parts), keep, running, positions, precision, mark, estimator, space.entries()
    )


def _sizes(groups: Sequence[Group], keep: Reducer) -> dict[int, int]:
    """By digit of each axis of ``per``: how many values the user gave it."""
    digits = {c.path: c.digit for c in groups[0].columns}
    for path in keep.axes:
        if path not in digits:
            raise InputError("sweep", "per", path, f"axes: {', '.join(digits)}")
    return {
        digits[path]: 1 + max(max(c.order) for g in groups for c in g.columns if c.path == path)
        for path in keep.axes
    }


def _task(group: Group, sizes: dict[int, int], masks: Sequence[Mask], dtype: DTypeLike) -> Task:
    """A group's numbers in one precision."""
    cast = partial(np.asarray, dtype=dtype)
    positions: list[np.ndarray] = []
    stride = 1
    for digit, size in reversed(sizes.items()):
        order = next(c.order for c in group.columns if c.digit == digit)
        positions.insert(0, np.asarray(order, np.int32) * stride)
        stride *= size
    tables = tuple(cast(t) for t in group.tables)
    legal = tuple(m.table for m in masks)
    return Task(jax.tree.map(cast, group.base), tables, tuple(positions), legal)


def _refuse_unknown(space: Space, parts: Sequence[Part], terms: Sequence[str]) -> None:
    """Raise InputError where a power or an energy is an objective, and a chip has no power."""
    powers = [name for name in terms if any(name in x.reading.declared.powers for x in parts)]
    systems = space.hardware if is_sequence(space.hardware) else [space.hardware]
    for system in systems if powers and "hardware.power" not in space.axes else ():
        board = getattr(system, "hardware", system).power
        if not isinstance(board, Axis) and not np.any(np.asarray(board)):
            name = getattr(system, "name", "the hardware")
            allowed = f"a system whose profile has a power_w; {name} has none"
            raise InputError("sweep", "keep", powers[0], allowed)
