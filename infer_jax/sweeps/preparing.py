"""Prepares a sweep: reads and checks the space, the estimator and what to keep."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import DTypeLike

from infer_jax import __version__
from infer_jax.catalog import Model, System
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.specs import Output
from infer_jax.sweeps.axis import Axis
from infer_jax.sweeps.digits import words_needed
from infer_jax.sweeps.legality import Masks, is_legal, validity_masks
from infer_jax.sweeps.paths import by_path, is_sequence
from infer_jax.sweeps.program import Evaluation, PointProgram, Program, Task, trace_point
from infer_jax.sweeps.reducers import Reducer, parse
from infer_jax.sweeps.space import Group, Space

PRECISIONS = {"float32": np.float32, "float64": np.float64}


class Part(NamedTuple):
    """A group with its programs, of one point and of a segment, and its numbers."""

    group: Group
    point: PointProgram
    program: Program
    task: Task  # in the sweep's precision


class Prepared(NamedTuple):
    """A sweep that was read and checked, and not yet run."""

    parts: tuple[Part, ...]
    reducer: Reducer
    running: Reducer  # the reducer that runs: with a margin or spare rows where float64 decides
    positions: int  # on the axes of ``per``
    precision: str
    mark: str
    estimators: list[Estimator]
    named: dict[str, System | Model]  # those from the catalog, by name

    @property
    def systems(self) -> dict[str, System]:
        """The systems from the catalog, by name."""
        return {name: x for name, x in self.named.items() if isinstance(x, System)}

    @property
    def models(self) -> list[Model]:
        """The models from the catalog."""
        return [x for x in self.named.values() if isinstance(x, Model)]

    @property
    def provenance(self) -> dict[str, object]:
        """Version, estimators, sources in the catalog, what is kept, precision and points."""
        sources = {
            name: dict(x.sources) if isinstance(x, System) else {"architecture": x.source}
            for name, x in self.named.items()
        }
        return {
            "program": f"infer_jax {__version__}",
            "jax": jax.__version__,
            "fingerprint": self.mark,
            "estimator": [type(e).__name__ for e in self.estimators],
            "sources": sources,
            "keep": repr(self.reducer),
            "precision": self.precision,
            "points": str(self.size),
        }

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

    def locate(self, index: Sequence[int]) -> Iterator[tuple[Part, np.ndarray, np.ndarray]]:
        """Each part with some of these global indices, their positions, and rows of digits."""
        flat = np.asarray(index, np.int64 if self.size < 2**63 else object)
        for part in self.parts:
            rest = flat - part.group.offset
            at = np.flatnonzero((rest >= 0) & (rest < part.group.size))
            rest, digits = rest[at], np.zeros((len(at), len(part.group.sizes)), np.int64)
            for digit, size in reversed([*enumerate(part.group.sizes)]):
                digits[:, digit], rest = rest % size, rest // size
            if len(at):
                yield part, at, digits

    @property
    def declared(self) -> dict[str, Output]:
        """By term, and by number of any estimate, what its field declares."""
        return {name: field for part in self.parts for name, field in part.point.declared.items()}

    @property
    def signs(self) -> dict[str, float]:
        """By term of the reducer: -1 where more of it is better."""
        return self.parts[0].point.signs


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
    masks: list[Masks] = [{} for _ in groups]
    where = tuple(space.where)
    if legal:
        masks, by_point = validity_masks(groups)
        where = (*where, is_legal) if by_point else where
    parts: list[Part] = []
    words = words_needed(total)
    with jax.enable_x64(precision == "float64"):
        for group, own in zip(groups, masks, strict=True):
            evaluation = Evaluation(group.slots, terms, where, feasible)
            program = Program(evaluation, group.sizes, tuple(sizes), keep, 0, words, tuple(own))
            task = _task(group, sizes, own, dtype)
            parts.append(Part(group, trace_point(evaluation, group.base, dtype), program, task))
    _refuse_unknown(space, parts, terms)
    _refuse_unread(parts, terms)
    declared = parts[0].point.declared
    counts = frozenset(name for name in terms if declared[name].kind == "count")
    running = keep.in_float32(counts) if precision == "float32" else keep
    mark = _fingerprint(parts, running, feasible, dtype)
    positions = int(np.prod([*sizes.values()], dtype=np.int64))
    every = [estimator] if isinstance(estimator, Estimator) else list(estimator)
    return Prepared(tuple(parts), keep, running, positions, precision, mark, every, space.entries())


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


def _task(group: Group, sizes: dict[int, int], masks: Masks, dtype: DTypeLike) -> Task:
    """A group's numbers in one precision."""
    cast = partial(np.asarray, dtype=dtype)
    orders = {c.digit: c.order for c in reversed(group.columns)}
    positions = np.zeros((), np.int32)
    for digit, size in sizes.items():
        positions = positions[..., None] * np.int32(size) + np.array(orders[digit], np.int32)
    tables = tuple(cast(t) for t in group.tables)
    base = jax.tree.map(cast, group.base)
    return Task(base, tables, positions.ravel(), tuple(masks.values()))


def _refuse_unknown(space: Space, parts: Sequence[Part], terms: Sequence[str]) -> None:
    """Raise InputError where a power or an energy is an objective, and a chip has no power."""
    powers = [name for name in terms if any(part.point.declared[name].drawn for part in parts)]
    systems = space.hardware if is_sequence(space.hardware) else [space.hardware]
    for system in systems if powers and "hardware.power" not in space.axes else ():
        board = getattr(system, "hardware", system).power
        if not isinstance(board, Axis) and not np.any(np.asarray(board)):
            name = getattr(system, "name", "the hardware")
            allowed = f"a system whose profile has a power_w; {name} has none"
            raise InputError("sweep", "keep", powers[0], allowed)


def _refuse_unread(parts: Sequence[Part], terms: Sequence[str]) -> None:
    """Raise InputError for an axis that no group's outputs read."""
    live: dict[str, bool] = {}
    for group, point, *_ in parts:
        paths = list(by_path(group.base))
        for c in group.columns:
            # a system has coefficients of the estimator, too
            below = (f"{c.path}.", *(["estimator."] if c.path == "hardware" else []))
            reads = [
                is_read
                for slot, is_read in zip(group.slots, point.steps_read, strict=True)
                if slot.digit == c.digit and f"{paths[slot.leaf]}.".startswith(below)
            ]
            derived = group.sizes[c.digit] == 1  # a single value, which adds no points
            live[c.path] = live.get(c.path, False) or not reads or any(reads) or derived
    for path, is_read in live.items():
        if not is_read:
            allowed = f"a field that {', '.join(terms)} or a constraint depends on"
            raise InputError("space", "axis", path, allowed)


def _fingerprint(parts: Sequence[Part], reducer: Reducer, feasible: str, dtype: DTypeLike) -> str:
    """A hash of the points' programs, all numbers, axes, reducer, precision and JAX version.

    Chunk size, devices and processes are left out, because they do not change the answer.
    """
    digest = hashlib.sha256()
    facts = (repr(reducer), feasible, np.dtype(dtype).name, jax.__version__)
    digest.update("\n".join((*facts, jax.default_backend())).encode())
    for group, point, *_ in parts:
        digest.update(f"{point.text}\n{group.sizes}\n{tuple(point.signs.items())}".encode())
        digest.update(repr([(s.leaf, s.digit) for s in group.slots]).encode())
        digest.update(repr([(c.path, c.order) for c in group.columns]).encode())
        for x in (*jax.tree.leaves(group.base), *group.tables):
            digest.update(np.ascontiguousarray(x, np.float64).tobytes())
    for table in (table for part in parts for table in part.task.masks):
        digest.update(np.ascontiguousarray(table).tobytes())
    return digest.hexdigest()
