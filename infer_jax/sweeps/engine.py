"""Passes a grid of any size through the devices, in segments of about one second.

Between segments the host counts, saves, reports progress and reads signals; all else stays on the
devices. Memory is that of one chunk and one state, whatever the size of the grid. What is kept is
decided in float64.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

import jax
import numpy as np
from jax import Device

from infer_jax.doctor import examine
from infer_jax.errors import InputError
from infer_jax.sweeps import digits as radix, refine, writers
from infer_jax.sweeps.histogram import BinCounts
from infer_jax.sweeps.preparing import PRECISIONS, Part, Prepared
from infer_jax.sweeps.program import COUNTS, Program, precise, segment
from infer_jax.sweeps.reducers import Monoid, State
from infer_jax.sweeps.results import SweepResult
from infer_jax.sweeps.states import Devices, DeviceStates, FrontierState

MEMORY = 2**28  # bytes of a frontier's rows
TARGET = 1.0  # seconds of a segment
CHUNKS = {"cpu": 8192, "gpu": 2**18, "tpu": 2**18}  # lanes: those that fit a CPU's cache, a device
MIN_CHUNK = 256  # lanes
# Rows within the margin are decided in float64 at no more than this many positions of a grid, and
# no fewer than this many points apart.
DECISIONS, SPACING = 64, 2**20
LONG = 600.0  # seconds still to run above which a check of the devices, a minute each, is worth it
EARLY = 60.0  # seconds at the start in which compilation makes the pace unreliable
CONTINUE, SAVE, STOP = 0, 1, 2  # votes of a process
Handler = Callable[[int, FrameType | None], object] | int | None
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Progress(NamedTuple):
    """The progress of a sweep."""

    done: int
    total: int
    rate: float  # points per second of the last segment
    seconds_left: float


class Stopped(KeyboardInterrupt):
    """A sweep was asked to stop; says how far it came, and how to resume it."""

    def __init__(self, position: int, total: int, path: Path | None, number: int):
        self.position, self.total, self.path, self.number = position, total, path, number
        on = "without a checkpoint nothing is kept"
        if path:
            on = f"the same command goes on from {path}"
        super().__init__(
            f"stopped after {position:,} of {total:,} points ({position / total:.0%}); {on}"
        )


class Listener:
    """While open, the first Ctrl-C or SIGTERM sets ``stopped``; the second interrupts at once."""

    def __init__(self) -> None:
        self.stopped = False
        self.signal = int(signal.SIGINT)
        self._before: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> "Listener":
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._stop) for s in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        self.stopped, self.signal = True, number


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
    run = SweepRun(ready, devices or jax.devices(), chunk, path, every, memory, progress)
    # the float64 program compiles while the first segment does
    with ThreadPoolExecutor(1) as background:
        if not isinstance(ready.reducer, BinCounts):
            first = np.zeros((1, len(ready.parts[0].group.sizes)), np.int64)
            background.submit(refine.estimates, ready.parts[0], first, "scope")
        run.absorb_all()
    accepted, names = run.counts["accepted"], ", ".join(ready.reducer.terms)
    if not accepted:
        value = f"the constraints, and what engines run, leave none of {ready.size} points"
        raise InputError("sweep", "where", value, "constraints that some legal point keeps")
    if run.counts["undefined"] == accepted:
        raise InputError("sweep", "objective", f"{names}: NaN everywhere", "a defined term")
    on = [str(d) for d in run.mesh.devices.flat]
    counts = {name: str(count) for name, count in run.counts.items()}
    facts = {**ready.provenance, "counts": counts, "seconds": run.seconds}
    facts |= {"devices": on, "chunk": run.chunk}
    if isinstance(ready.reducer, BinCounts):
        assert isinstance(run.kept, DeviceStates)
        return SweepResult(ready, None, ready.reducer.answer(run.kept.merged()), facts, run.notes)
    index = run.kept.index()
    rows = refine.evaluate(ready, sorted(index))
    if ready.precision == "float32":
        chosen = refine.select(ready.reducer, rows)
        facts["decided_in_float64"] = run.kept.decided or len(index)
    else:  # the run was exact already: only the order is to be restored
        position = {point: i for i, point in enumerate(rows.index)}
        chosen = rows.take([position[i] for i in index])
    return SweepResult(ready, chosen, None, facts, run.notes)


class SweepRun:
    """A running sweep: its position in the grid, its state, and the pace of its segments."""

    def __init__(
        self,
        ready: Prepared,
        devices: Sequence[Device],
        chunk: int | None,
        path: Path | None,
        every: float,
        memory: int,
        progress: Callable[[Progress], None] | None,
    ):
        self.ready, self.total, self.dtype = ready, ready.size, PRECISIONS[ready.precision]
        self.path, self.every, self.progress = path, every, progress
        self.devices = Devices(devices, self.dtype)
        usual = CHUNKS.get(devices[0].platform, 2**20)
        few = ready.size <= MIN_CHUNK * len(devices)  # lanes without a point are computed, too
        self.mesh = self.devices.mesh
        self.chunk = chunk or ready.lanes or (MIN_CHUNK if few else usual)
        self.spacing = max(SPACING, -(-self.total // DECISIONS))
        self.words = radix.words_needed(self.total)
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self.notes: list[str] = []
        self.position, self.seconds, self.vote = 0, 0.0, CONTINUE
        self.began = self.last_save = time.monotonic()
        self.checked = False  # the devices
        self.program: Program | None = None  # of the last segment
        self.warm = False  # whether the one before ran the same program, which was compiled then
        self.kept: FrontierState | DeviceStates
        if isinstance(ready.running, Monoid):
            self.kept = DeviceStates(ready.running, self.devices, self.words, ready.positions)
        else:
            self.kept = FrontierState(ready, self.devices, self.words, self.chunk, memory)

    def absorb_all(self) -> None:
        """Absorb every point.

        Raises:
            InputError: a frontier with too many rows, a device that computes wrong, a foreign
                or damaged checkpoint.
            Stopped: by the user or the system; a checkpoint is then on disk.
        """
        self.resume()
        with Listener() as listener:
            for part in self.ready.parts:
                if self.position < part.group.offset + part.group.size:
                    self._run_part(part, listener)
            self._refine(listener)
        if self.path and time.monotonic() - self.last_save >= self.every:
            self.save()  # all that remains is to write the rows
        self.seconds = time.monotonic() - self.began

    def resume(self) -> None:
        """Carry on from the checkpoint, if there is one."""
        checkpoint = writers.load(self.path, self.ready.mark) if self.path else None
        if checkpoint is not None:
            self.position, self.counts = checkpoint.position, dict(checkpoint.counts)
            self.kept.restore(checkpoint.leaves, checkpoint.since, checkpoint.decided)
            self.notes.append(f"carried on at point {self.position}")

    @property
    def stride(self) -> int:
        """Points of one step of all devices."""
        return self.mesh.size * self.chunk

    def _run_part(self, part: Part, listener: Listener) -> None:
        local = self.position - part.group.offset
        self.points = self.stride
        while local < part.group.size:
            self._refine(listener)
            decision = (self.position // self.spacing + 1) * self.spacing
            limit = min(part.group.size - local, radix.MAX_SEGMENT, decision - self.position)
            count = min(self.points, limit)
            began = time.monotonic()
            answer = self._segment(part, local, count)
            if answer is None:
                continue
            state, sums, agreed = answer
            local += count
            self.position += count
            self.kept.accept(state, self.position)
            seconds = max(time.monotonic() - began, 1e-6)
            for name, x in zip(COUNTS, sums, strict=True):
                self.counts[name] += int(x)
            # the first segment of a program compiles it, and a short one tells little
            steady = self.warm and seconds > 0.5 * TARGET
            if count == self.points or seconds > TARGET:
                self._pace(count, seconds)
            self._between(agreed, listener, count / seconds, steady)

    def _refine(self, listener: Listener) -> None:
        """Decide close rows, if the position of the grid is one where that is done."""
        due = self.position == self.total or self.position % self.spacing == 0
        undecided = due and self.kept.since < self.position
        if undecided and not self.kept.refine(self.position, lambda: listener.stopped):
            self._stop(listener)

    def _stop(self, listener: Listener) -> NoReturn:
        path = self.path if self.save() else None
        raise Stopped(self.position, self.total, path, listener.signal)

    def _segment(
        self, part: Part, local: int, count: int
    ) -> tuple[State, np.ndarray, np.ndarray] | None:
        """State, counts and agreed votes of one segment; None if it has to be repeated."""
        program = part.program._replace(reducer=self.kept.reducer, chunk=self.chunk)
        self.warm, self.program, stride = program == self.program, program, self.stride
        vote = np.array([min(self.points // stride, 2**30), self.vote], np.int32)
        votes = self.devices.put(np.tile(vote, (len(self.devices.local), 1)))
        begin = radix.to_digits(local, part.group.sizes)
        words = radix.to_words(part.group.offset + local, self.words)
        try:
            with precise(self.dtype):
                state, *counted = segment(
                    program, self.mesh, self.kept.state, part.task, begin, words,
                    np.int32(count), votes,
                )  # fmt: skip
            sums, reached, agreed = (np.asarray(x.addressable_data(0)) for x in counted)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) or self.chunk <= MIN_CHUNK:
                raise
            self.chunk //= 2
            self.points = self.stride
            self.kept.reset(self.chunk)
            self.notes.append(f"out of memory: chunks of {self.chunk} points")
            return None
        if reached * stride < count:  # again, as far as the rows fit on every device
            self.points = int(reached) * stride
            self.kept.reset(self.chunk)
            return None
        return state, sums, agreed

    def _pace(self, count: int, seconds: float) -> None:
        """Choose the points of the next segment."""
        if self.warm:
            limits = (8 * count, self.kept.max_segment(count), radix.MAX_SEGMENT)
            points = min(count / seconds * TARGET, *limits)
            self.points = int(points // self.stride) * self.stride
        self.points = max(self.points, self.stride)

    def _between(self, agreed: np.ndarray, listener: Listener, rate: float, steady: bool) -> None:
        """Report, save, stop and check devices, which compute for long, between two segments."""
        left = (self.total - self.position) / rate
        if self.progress:
            self.progress(Progress(self.position, self.total, rate, left))
        now, due = time.monotonic(), CONTINUE
        if self.path and now - self.last_save >= self.every:
            due = SAVE
        due = STOP if listener.stopped else due
        self.vote = due
        if jax.process_count() > 1:  # act on what all processes saw, one segment late
            due = int(agreed[1])
            self.points = max(int(agreed[0]), 1) * self.stride
        if due == SAVE:
            self.save()
        if due == STOP:
            self._stop(listener)
        early = now - self.began < EARLY
        if not (self.checked or early) and steady and left > LONG:
            self.checked = True
            # all CPU devices are one processor
            local, name = self.devices.local, np.dtype(self.dtype).name
            cores = [d for d in local if d.platform == "cpu"][:1]
            others = [d for d in local if d.platform != "cpu"]
            for verdict in examine([*cores, *others]):
                if verdict.dtype == name and not verdict.agrees:
                    raise InputError(
                        "sweep", f"device {verdict.device}",
                        f"off by {verdict.worst:.2g} at {verdict.row} in {name}",
                        "a device that agrees with the stored answers (infer-jax doctor)",
                    )  # fmt: skip

    def save(self) -> bool:
        """Write a checkpoint; returns whether it could. On a full disk the last good one stays."""
        kept, leaves = self.kept, self.kept.leaves()
        self.last_save = time.monotonic()
        if jax.process_index() or self.path is None:
            return self.path is not None
        point = writers.Checkpoint(self.position, self.counts, kept.since, kept.decided, leaves)
        try:
            writers.save(self.path, self.ready.mark, point)
        except OSError as error:
            self.notes.append(f"checkpoint not written: {error.strerror or error}")
            return False
        return True
