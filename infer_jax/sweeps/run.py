"""Runs a prepared sweep over all points, and decides what is kept in float64."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np

from infer_jax.errors import InputError
from infer_jax.sweeps import refine
from infer_jax.sweeps.keeping import Device, Judge
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.preparing import PRECISIONS, Prepared
from infer_jax.sweeps.reducers import Selection, Summary
from infer_jax.sweeps.results import SweepResult, provenance
from infer_jax.sweeps.stream import Outcome, Progress, Stream

MEMORY = 2**28  # bytes of a frontier's rows


def start(
    ready: Prepared,
    *,
    chunk: int | None = None,
    devices: Sequence[Device] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 30.0,
    memory: int = MEMORY,
    progress: Callable[[Progress], None] | None = None,
) -> SweepResult:
    """Run a prepared sweep; its options are those of ``ij.sweep``."""
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
        judge=_judge(ready),
    )
    # the float64 program compiles while the first segment does
    with ThreadPoolExecutor(1) as beside:
        if not isinstance(ready.reducer, Summary):
            beside.submit(refine.warm, ready.parts[0])
        outcome = stream.run()
    _refuse_nothing(ready, outcome)
    return _result(ready, outcome, stream)


def _judge(ready: Prepared) -> Judge | None:
    """A function of indices: which points are feasible, and objectives to minimise, in float64."""
    keep = ready.keeping
    if not (isinstance(keep, Pareto) and keep.margin):
        return None

    def judge(index: list[int]) -> tuple[np.ndarray, np.ndarray]:
        rows = refine.evaluate(ready.parts, index, keep.axes, ready.spans)
        return refine.eligible(keep, rows, dict(ready.readings[0].signs))

    return judge


def _result(ready: Prepared, outcome: Outcome, stream: Stream) -> SweepResult:
    facts = provenance(ready, outcome, [str(d) for d in stream.mesh.devices.flat], stream.chunk)
    reducer, state = outcome.reducer, outcome.state
    if isinstance(reducer, Summary):
        return SweepResult(ready, None, {}, reducer.answer(state), facts, outcome.notes)
    index = reducer.rows(state) if isinstance(reducer, Selection) else state.index()
    rows = refine.evaluate(ready.parts, sorted(index), ready.reducer.axes, ready.spans)
    if ready.precision == "float32":
        chosen = refine.select(ready.reducer, rows, dict(ready.readings[0].signs))
        facts["decided_in_float64"] = outcome.decided or len(index)
    else:  # the run was exact already: only the order is to be restored
        place = {point: i for i, point in enumerate(rows.index)}
        chosen = rows.take([place[i] for i in index])
    units = {k: v for reading in ready.readings for k, v in reading.units.items()}
    return SweepResult(ready, chosen, units, None, facts, outcome.notes)


def _refuse_nothing(ready: Prepared, outcome: Outcome) -> None:
    counts = outcome.counts
    if not counts["accepted"]:
        held = f"the constraints, and what engines run, leave none of {ready.size} points"
        raise InputError("sweep", "where", held, "constraints that some legal point keeps")
    if counts["undefined"] == counts["accepted"]:
        named = ", ".join(ready.reducer.terms)
        raise InputError("sweep", "objective", f"{named}: NaN everywhere", "a defined term")
