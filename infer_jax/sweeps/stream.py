"""Passes a grid of any size through the devices, in segments of about one second.

Between segments the host counts, saves, reports progress and reads signals; all else stays on the
devices. Memory is that of one chunk and one state, whatever the size of the grid.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import jax
import numpy as np
from jax.typing import DTypeLike

from infer_jax.sweeps import checkpoint as held, digits as radix, guard
from infer_jax.sweeps.group import Group
from infer_jax.sweeps.interrupt import Listener, Stopped
from infer_jax.sweeps.keeping import Device, Devices, Frontier, Judge, States
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.point import Program
from infer_jax.sweeps.program import COUNTS, Task, precise, segment
from infer_jax.sweeps.reducers import Monoid, Reducer, State

TARGET = 1.0  # seconds of a segment
CHUNKS = {"cpu": 8192, "gpu": 2**20, "tpu": 2**18}  # lanes: those that fit a CPU's cache, a device
LEAST = 256  # lanes
# Rows within the margin are decided in float64 at no more than this many positions of a grid, and
# no fewer than this many points apart.
DECISIONS, APART = 64, 2**20
QUIET, SAVE, STOP = 0, 1, 2


class Progress(NamedTuple):
    """The progress of a sweep."""

    done: int
    total: int
    rate: float  # points per second of the last segment
    seconds_left: float


class GroupTask(NamedTuple):
    """A group with its program and its numbers."""

    group: Group
    program: Program
    task: Task


class Outcome(NamedTuple):
    """The merged state with its reducer, and the counts of points."""

    reducer: Reducer
    state: State  # for Pareto a Front
    counts: dict[str, int]
    seconds: float
    notes: list[str]
    decided: int  # rows within the margin that float64 decided


class Stream:
    """A running sweep."""

    def __init__(
        self,
        parts: Sequence[GroupTask],
        reducer: Reducer,
        groups: int,
        dtype: DTypeLike,
        *,
        devices: Sequence[Device],
        chunk: int | None,
        memory: int,
        path: Path | None,
        mark: str,
        every: float,
        progress: Callable[[Progress], None] | None,
        judge: Judge | None = None,
    ):
        self.parts, self.reducer, self.dtype = parts, reducer, dtype
        self.devices = Devices(devices, dtype)
        self.mesh, self.chunk = self.devices.mesh, chunk or CHUNKS.get(devices[0].platform, 2**20)
        self.path, self.mark, self.every, self.progress = path, mark, every, progress
        self.total = sum(p.group.size for p in parts)
        self.apart = max(APART, -(-self.total // DECISIONS))
        self.limbs = radix.limbs_needed(self.total)
        self.position = 0
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self.notes: list[str] = []
        self.begun = 0.0
        if isinstance(reducer, Pareto):
            self.kept: Frontier | States = Frontier(
                reducer, self.devices, self.limbs, groups, self.chunk, memory, judge
            )
        else:
            assert isinstance(reducer, Monoid)
            self.kept = States(reducer, self.devices, self.limbs, groups)

    def run(self) -> Outcome:
        """Absorb every point.

        Raises:
            InputError: a frontier with too many rows, a device that computes wrong, a foreign
                or damaged checkpoint.
            Stopped: by the user or the system; a checkpoint is then on disk.
        """
        self.begun = time.monotonic()
        self._begin()
        with Listener() as listener:
            for part in self.parts:
                if self.position < part.group.offset + part.group.size:
                    self._part(part, listener)
            self._decide(listener)
        if self.path and time.monotonic() - self.last_save >= self.every:
            self.save()  # all that remains is to write the rows
        seconds = time.monotonic() - self.begun
        decided = self.kept.decided
        return Outcome(self.reducer, self.kept.merged(), self.counts, seconds, self.notes, decided)

    def _begin(self) -> None:
        checkpoint = held.load(self.path, self.mark) if self.path else None
        if checkpoint is not None:
            self.position, self.counts = checkpoint.position, dict(checkpoint.counts)
            self.kept.restore(checkpoint.leaves, checkpoint.since, checkpoint.decided)
            self.notes.append(f"carried on at point {self.position}")
        self.last_save, self.guarded, self.wish = time.monotonic(), False, QUIET
        self.warm = False  # a run that carries on at the end has rows to decide and no part to run

    def _part(self, part: GroupTask, listener: Listener) -> None:
        local = self.position - part.group.offset
        self.warm = False  # another program: its first segment compiles
        self.points = self.mesh.size * self.chunk
        while local < part.group.size:
            self._decide(listener)
            decision = (self.position // self.apart + 1) * self.apart
            least = min(part.group.size - local, radix.MOST, decision - self.position)
            count = min(self.points, least)
            begun = time.monotonic()
            answer = self._segment(part, local, count)
            if answer is None:
                continue
            sums, agreed = answer
            local += count
            self.position += count
            anew = self.kept.accept(self.state_after, self.position)
            seconds = max(time.monotonic() - begun, 1e-6)
            for name, x in zip(COUNTS, sums, strict=True):
                self.counts[name] += int(x)
            # the first segment of a program compiles it, and a short one tells little
            settled = self.warm and seconds > 0.5 * TARGET
            if count == self.points or seconds > TARGET:
                self._pace(count, seconds)
            self.warm = self.warm and not anew
            self._between(agreed, listener, count / seconds, settled)

    def _decide(self, listener: Listener) -> None:
        """Decide close rows, if the position of the grid is one where that is done."""
        here = self.position == self.total or self.position % self.apart == 0
        if here and self.kept.since < self.position:
            anew = self.kept.settle(self.position, lambda: listener.stopped)
            if anew is None:
                self._stop(listener)
            self.warm = self.warm and not anew

    def _stop(self, listener: Listener) -> NoReturn:
        saved = self.save()
        raise Stopped(self.position, self.total, self.path if saved else None, listener.signal)

    def _segment(
        self, part: GroupTask, local: int, count: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Counts and agreed wishes of one segment; None if it has to be repeated."""
        reducer = self.kept.reducer
        program = part.program._replace(reducer=reducer, chunk=self.chunk)
        stride = self.mesh.size * self.chunk
        wish = np.array([min(self.points // stride, 2**30), self.wish], np.int32)
        wishes = self.devices.place(np.tile(wish, (len(self.devices.mine), 1)))
        start = radix.to_digits(local, part.group.sizes)
        limbs = radix.to_limbs(part.group.offset + local, self.limbs)
        try:
            with precise(self.dtype):
                self.state_after, *counted = segment(
                    program, self.mesh, self.kept.state, part.task, start, limbs,
                    np.int32(count), wishes,
                )  # fmt: skip
            sums, reached, agreed = (np.asarray(x.addressable_data(0)) for x in counted)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) or self.chunk <= LEAST:
                raise
            self.chunk //= 2
            self.points, self.warm = self.mesh.size * self.chunk, False
            self.kept.again(self.chunk)
            self.notes.append(f"out of memory: chunks of {self.chunk} points")
            return None
        if reached * stride < count:  # again, as far as there is room on every device
            self.points = int(reached) * stride
            self.kept.again(self.chunk)
            return None
        return sums, agreed

    def _pace(self, count: int, seconds: float) -> None:
        stride = self.mesh.size * self.chunk
        if self.warm:
            wished = min(count / seconds * TARGET, 8 * count, self.kept.pace(count), radix.MOST)
            self.points = int(wished // stride) * stride
        self.points, self.warm = max(self.points, stride), True

    def _between(self, agreed: np.ndarray, listener: Listener, rate: float, settled: bool) -> None:
        left = (self.total - self.position) / rate
        if self.progress:
            self.progress(Progress(self.position, self.total, rate, left))
        now, due = time.monotonic(), QUIET
        if self.path and now - self.last_save >= self.every:
            due = SAVE
        due = STOP if listener.stopped else due
        self.wish = due
        if jax.process_count() > 1:  # act on what all processes saw, one segment late
            due = int(agreed[1])
            self.points = max(int(agreed[0]), 1) * self.mesh.size * self.chunk
        if due == SAVE:
            self.save()
        if due == STOP:
            self._stop(listener)
        early = now - self.begun < guard.EARLY
        if not (self.guarded or early) and settled and left > guard.LONG:
            guard.check(self.devices.mine, np.dtype(self.dtype).name)
            self.guarded = True

    def save(self) -> bool:
        """Write a checkpoint; returns whether it could. On a full disk the last good one stays."""
        leaves = self.kept.leaves()
        self.last_save = time.monotonic()
        if jax.process_index() or self.path is None:
            return self.path is not None
        since, decided = self.kept.since, self.kept.decided
        try:
            point = held.Checkpoint(self.position, self.counts, since, decided, leaves)
            held.save(self.path, self.mark, point)
        except OSError as error:
            self.notes.append(f"checkpoint not written: {error.strerror or error}")
            return False
        return True
