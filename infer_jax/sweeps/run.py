"""One call: a space, an estimator and what to keep of it; back comes a result."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from infer_jax.catalog import Model, System
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.sweeps import refine
from infer_jax.sweeps.axis import Axis
from infer_jax.sweeps.checkpoint import fingerprint
from infer_jax.sweeps.dependency import Reading, read, refuse_unread
from infer_jax.sweeps.digits import limbs_needed
from infer_jax.sweeps.everything import Everything
from infer_jax.sweeps.front import Front
from infer_jax.sweeps.group import Group
from infer_jax.sweeps.keeping import Judge
from infer_jax.sweeps.lawful import lawful, masks
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.point import Program
from infer_jax.sweeps.program import task_of
from infer_jax.sweeps.reducers import parse
from infer_jax.sweeps.results import Result, provenance
from infer_jax.sweeps.space import Space
from infer_jax.sweeps.stream import Outcome, Part, Progress, Stream

PRECISIONS = {"float32": np.float32, "float64": np.float64}
MEMORY = 2**28  # bytes of a frontier's rows


class Prepared(NamedTuple):
    """A sweep that was read and checked, and not yet run."""

    parts: tuple[Part, ...]
    reducer: Any
    keeping: Any  # the reducer as it runs: with a margin where another precision follows
    readings: tuple[Reading, ...]
    spans: tuple[int, ...]
    precision: str
    mark: str
    estimator: Estimator | Sequence[Estimator]
    named: dict[str, System | Model]  # what the catalog knows more of

    @property
    def size(self) -> int:
        """Points of the grid."""
        return sum(p.group.size for p in self.parts)


def sweep(
    estimator: Estimator | Sequence[Estimator],
    space: Space,
    keep: Any,
    *,
    precision: str = "float32",
    feasible: str = "feasible",
    legal: bool = True,
    chunk: int | None = None,
    devices: Sequence[Any] | None = None,
    checkpoint: str | Path | None = None,
    every: float = 30.0,
    memory: int = MEMORY,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """What ``keep`` keeps of all points of a space, under one estimator or a list of them.

    ``keep`` is ``Pareto``, ``TopK``, ``Best``, ``Histogram``, ``Quantiles`` or ``Everything``.
    In float32 what lies within a margin is kept too, and decided in float64. ``feasible``
    names what makes a point count: ``"decode.feasible"`` where prefill is not asked about;
    unless ``legal`` is False, what no engine runs does not.
    ``checkpoint`` names a file from which the same call carries on; ``every`` is in seconds,
    ``memory`` in bytes. Points, devices and chunks may be any number; the answer is the same.

    Raises:
        InputError: an unknown or unread axis, constraints that nothing keeps, an objective
            that is NaN everywhere, a frontier beyond ``memory``, a foreign checkpoint.
    """
    ready = prepare(estimator, space, keep, precision=precision, feasible=feasible, legal=legal)
    return start(
        ready,
        chunk=chunk,
        devices=devices,
        checkpoint=checkpoint,
        every=every,
        memory=memory,
        progress=progress,
    )


def prepare(
    estimator: Estimator | Sequence[Estimator],
    space: Space,
    keep: Any,
    *,
    precision: str = "float32",
    feasible: str = "feasible",
    legal: bool = True,
) -> Prepared:
    """Read and check a sweep, without running it.

    Unless ``legal`` is False, points that no engine runs are left out, and a value that none
    runs wherever it stands is refused.
    """
    if precision not in PRECISIONS:
        raise InputError("sweep", "precision", precision, " or ".join(PRECISIONS))
    dtype = PRECISIONS[precision]
    groups = space.groups(estimator)
    total = sum(g.size for g in groups)
    if isinstance(keep, Everything):
        keep = keep.sized(total)
    paths = {c.path: c.digit for c in groups[0].columns}
    for path in keep.per:
        if path not in paths:
            raise InputError("sweep", "per", path, f"axes: {', '.join(paths)}")
    per = tuple(paths[path] for path in keep.per)
    spans = tuple(_span(groups, path) for path in keep.per)
    names = tuple((name, 1.0) for name in dict.fromkeys(parse(term)[0] for term in keep.terms))
    parts, readings = [], []
    held, asked = masks(groups) if legal else ([[] for _ in groups], False)
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
            parts.append(Part(group, program, task))
            readings.append(reading)
    _refuse_unknown(space, [name for name, _ in names if any(name in x.drawn for x in readings)])
    refuse_unread(list(zip(groups, readings, strict=True)), [name for name, _ in names])
    keeping = keep
    if precision == "float32" and hasattr(keep, "widened"):
        keeping = keep.widened()
    elif precision == "float32" and isinstance(keep, Pareto) and not keep.epsilon:
        keeping = keep.changed(margin=refine.MARGIN, whole=readings[0].counts)
    tables = [m.table for mine in held for m in mine]
    mark = fingerprint(list(zip(groups, readings, strict=True)), keeping, feasible, dtype, tables)
    return Prepared(
        tuple(parts), keep, keeping, tuple(readings), spans, precision, mark, estimator,
        space.named(),
    )  # fmt: skip


def _refuse_unknown(space: Space, asked: Sequence[str]) -> None:
    """Raise InputError where an energy or a power is asked for of a chip whose power is unknown."""
    systems = space.hardware if isinstance(space.hardware, list | tuple) else [space.hardware]
    for system in systems if asked and "hardware.power" not in space.axes else ():
        board = getattr(system, "hardware", system).power
        if not isinstance(board, Axis) and not np.any(np.asarray(board)):
            name = getattr(system, "name", "the hardware")
            allowed = f"a system whose profile has a power_w; {name} has none"
            raise InputError("sweep", "keep", asked[0], allowed)


def start(
    ready: Prepared,
    *,
    chunk: int | None = None,
    devices: Sequence[Any] | None = None,
    checkpoint: str | Path | None = None,
    every: float = 30.0,
    memory: int = MEMORY,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Run a prepared sweep; see ``sweep``."""
    if chunk is not None and (chunk < 1 or chunk > 2**24 or chunk & (chunk - 1)):
        raise InputError("sweep", "chunk", chunk, "a power of two from 1 to 2^24")
    path = Path(checkpoint) if checkpoint else None
    if path is not None and not path.parent.is_dir():
        raise InputError(str(path), "checkpoint", "in no folder", "a file in a folder that exists")
    stream = Stream(
        ready.parts,
        ready.keeping,
        int(np.prod(ready.spans, dtype=np.int64)) if ready.spans else 1,
        PRECISIONS[ready.precision],
        devices=jax.devices() if devices is None else devices,
        chunk=chunk,
        memory=memory,
        path=path,
        mark=ready.mark,
        every=every,
        progress=progress,
        judge=_judge(ready) if getattr(ready.keeping, "margin", 0.0) else None,
    )
    # what decides in the end compiles as the first segment does
    with ThreadPoolExecutor(1) as beside:
        if not hasattr(ready.reducer, "answer"):
            beside.submit(refine.warm, ready.parts[0])
        outcome = stream.run()
    _refuse_nothing(ready, outcome)
    return _result(ready, outcome, stream)


def _judge(ready: Prepared) -> Judge:
    """What says of some points which count in float64, and their objectives to be minimised."""

    def judge(index: list[int]) -> tuple[np.ndarray, np.ndarray]:
        rows = refine.evaluate(ready.parts, index, ready.reducer.per, ready.spans)
        return refine.judged(ready.reducer, rows, dict(ready.readings[0].signs))

    return judge


def _result(ready: Prepared, outcome: Outcome, stream: Stream) -> Result:
    facts = provenance(ready, outcome, [str(d) for d in stream.mesh.devices.flat], stream.chunk)
    if hasattr(ready.reducer, "answer"):
        answer = outcome.reducer.answer(outcome.state)
        return Result(ready, None, {}, answer, facts, outcome.notes)
    found = outcome.state
    index = found.index() if isinstance(found, Front) else outcome.reducer.rows(found)
    rows = refine.evaluate(ready.parts, sorted(index), ready.reducer.per, ready.spans)
    if ready.precision == "float32":
        chosen = refine.select(ready.reducer, rows, dict(ready.readings[0].signs))
        facts["decided_in_float64"] = outcome.decided or len(index)
    else:  # what ran was exact already: only the order is still to be restored
        place = {point: i for i, point in enumerate(rows.index)}
        chosen = rows.take([place[i] for i in index])
    units = {k: v for reading in ready.readings for k, v in reading.units.items()}
    return Result(ready, chosen, units, None, facts, outcome.notes)


def _span(groups: Sequence[Group], path: str) -> int:
    """Positions of an axis over all groups."""
    return 1 + max(max(c.order) for g in groups for c in g.columns if c.path == path)


def _refuse_nothing(ready: Prepared, outcome: Outcome) -> None:
    counts = outcome.counts
    if not counts["accepted"]:
        held = f"the constraints, and what engines run, leave none of {ready.size} points"
        raise InputError("sweep", "where", held, "constraints that some legal point keeps")
    if counts["undefined"] == counts["accepted"]:
        named = ", ".join(ready.reducer.terms)
        raise InputError("sweep", "objective", f"{named}: NaN everywhere", "a defined term")
