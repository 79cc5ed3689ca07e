"""How does a grid of any size pass through the devices? In segments of about one second.

Between segments the host counts, saves, reports and listens; all else stays on the devices.
Memory is that of one chunk and one state, whatever the size of the grid.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from infer_jax.errors import InputError
from infer_jax.sweep import checkpoint as saved, digits as wide, guard
from infer_jax.sweep.group import Group
from infer_jax.sweep.interrupt import Listener
from infer_jax.sweep.point import Program
from infer_jax.sweep.program import COUNTS, LANES, Task, collect, precise, segment

TARGET = 1.0  # seconds of a segment
CHUNKS = {"cpu": 8192, "gpu": 2**20, "tpu": 2**18}  # lanes: a cache's worth, a device's worth
LEAST = 256  # lanes
SLACK = 1024  # rows within the margin that are kept unexamined
QUIET, SAVE, STOP = 0, 1, 2


class Progress(NamedTuple):
    """Where a sweep stands."""

    done: int
    total: int
    rate: float  # points per second of the last segment
    seconds_left: float


class Part(NamedTuple):
    """A group with its program and its numbers."""

    group: Group
    program: Program
    task: Task


class Outcome(NamedTuple):
    """The merged state with the reducer it belongs to, and what was counted."""

    reducer: Any
    state: Any
    counts: dict[str, int]
    seconds: float
    notes: list[str]


class Stream:
    """One sweep under way."""

    def __init__(
        self,
        parts: Sequence[Part],
        reducer: Any,
        groups: int,
        dtype: Any,
        *,
        devices: Sequence[Any],
        chunk: int | None,
        memory: int,
        path: Path | None,
        mark: str,
        every: float,
        progress: Callable[[Progress], None] | None,
        judge: Callable[[list[int]], list[int]] | None = None,
    ):
        self.parts, self.reducer, self.groups, self.dtype = parts, reducer, groups, dtype
        self.mesh = Mesh(np.array(devices), (LANES,))
        self.split = NamedSharding(self.mesh, PartitionSpec(LANES))
        self.mine = [d for d in devices if d.process_index == jax.process_index()]
        self.chunk = chunk or CHUNKS.get(devices[0].platform, 2**20)
        self.memory, self.path, self.mark, self.every = memory, path, mark, every
        self.progress, self.judge = progress, judge
        self.thin, self.thinned_at = 0, -1  # rows left by the last thinning, and where it was
        self.total = sum(p.group.size for p in parts)
        self.limbs = wide.limbs_needed(self.total)
        self.position = 0
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self.notes: list[str] = []
        self.begun = 0.0
        self.held: Any = None  # this process's states as of the last good segment

    def run(self) -> Outcome:
        """Absorb every point.

        Raises:
            InputError: a frontier beyond the memory, a device that computes wrong, a foreign
                or damaged checkpoint.
            KeyboardInterrupt: stopped by the user; a checkpoint is then on disk.
        """
        self.begun = time.monotonic()
        self._begin()
        with Listener() as listener:
            for part in self.parts:
                if self.position < part.group.offset + part.group.size:
                    self._part(part, listener)
        state = self._merged()
        return Outcome(self.reducer, state, self.counts, time.monotonic() - self.begun, self.notes)

    def _begin(self) -> None:
        empty = self._empty()
        self.held = self._stack([empty] * len(self.mine))
        found = saved.load(self.path, self.mark) if self.path else None
        if found is None:
            self._reset_clock()
            return
        if found.capacity and found.capacity != self.reducer.capacity:
            self.reducer = self.reducer.changed(capacity=found.capacity)
            empty = self._empty()
        self.position, self.counts = found.position, dict(found.counts)
        state = jax.tree.unflatten(jax.tree.structure(empty), found.leaves)
        first = jax.process_index() == self.mesh.devices.flat[0].process_index
        states = [empty] * len(self.mine)
        if first:
            states[0] = state
        self.held = self._stack(states)
        self.notes.append(f"carried on at point {self.position}")
        self._reset_clock()

    def _reset_clock(self) -> None:
        self.state = self._place(self.held)
        self.last_save, self.guarded = time.monotonic(), False
        self.points, self.warm = self.mesh.size * self.chunk, False
        self.wish = QUIET

    def _part(self, part: Part, listener: Listener) -> None:
        local = self.position - part.group.offset
        self.warm = False  # another program: its first segment compiles
        self.points = self.mesh.size * self.chunk
        while local < part.group.size:
            count = min(self.points, part.group.size - local, wide.MOST)
            begun = time.monotonic()
            answer = self._segment(part, local, count)
            if answer is None:
                continue
            sums, agreed = answer
            seconds = max(time.monotonic() - begun, 1e-6)
            local += count
            self.position += count
            for name, x in zip(COUNTS, sums, strict=True):
                self.counts[name] += int(x)
            # the first segment of a program compiles it, and a short one tells little
            settled = self.warm and seconds > 0.5 * TARGET
            self._pace(count, seconds)
            self._between(agreed, listener, count / seconds, settled)

    def _segment(self, part: Part, local: int, count: int) -> tuple[Any, Any] | None:
        """Counts and agreements of one segment; None where it has to be tried again."""
        program = part.program._replace(reducer=self.reducer, chunk=self.chunk)
        stride = self.mesh.size * self.chunk
        wish = np.array([min(self.points // stride, 2**30), self.wish], np.int32)
        wishes = self._place(np.tile(wish, (len(self.mine), 1)))
        start = wide.to_digits(local, part.group.sizes)
        limbs = wide.to_limbs(part.group.offset + local, self.limbs)
        try:
            with precise(self.dtype):
                state, sums, full, agreed = segment(
                    program, self.mesh, self.state, part.task, start, limbs, np.int32(count), wishes
                )
            sums, full, agreed = (np.asarray(x.addressable_data(0)) for x in (sums, full, agreed))
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) or self.chunk <= LEAST:
                raise
            self.chunk //= 2
            self.points, self.warm = self.mesh.size * self.chunk, False
            self.state = self._place(self.held)
            self.notes.append(f"out of memory: chunks of {self.chunk} points")
            return None
        if full:
            self._make_room()
            return None
        self.state, self.held = state, self._pull(state)
        if self.judge and np.max(self.held["count"]) > 2 * self.thin + SLACK:
            self._thin()
        return sums, agreed

    def _make_room(self) -> None:
        """Go back to the last good states: without what is beaten exactly, or with more rows."""
        if self.judge and self.thinned_at != self.position:  # once a place: then grow
            self._thin()
            self.thinned_at = self.position
        else:
            self._grow()

    def _thin(self) -> bool:
        """Drop the rows within the margin that are beaten exactly; all states share the rest."""
        assert self.judge is not None
        found = self.reducer.thinned(self.held, self.judge)
        self.held = self.held if found is None else found
        self.thin = int(np.max(self.held["count"]))
        self.state = self._place(self.held)
        return found is not None

    def _grow(self) -> None:
        """Go back to the last good states, with room for twice as many rows."""
        larger = self.reducer.grown()
        row = sum(x.itemsize for x in self.held["rows"])
        if larger.capacity * row > self.memory:
            kept = f"more than {self.reducer.capacity} points"
            allowed = f"Pareto(..., epsilon=0.01), a coarser grid, or memory= over {self.memory}"
            raise InputError("sweep", "the frontier", kept, allowed)
        self.held = self.reducer.grow(self.held, larger.capacity)
        self.reducer, self.warm = larger, False
        self.state = self._place(self.held)

    def _pace(self, count: int, seconds: float) -> None:
        stride = self.mesh.size * self.chunk
        if self.warm:
            wished = count / seconds * TARGET
            self.points = int(min(wished, 8 * count, wide.MOST) // stride) * stride
        self.points, self.warm = max(self.points, stride), True

    def _between(self, agreed: Any, listener: Listener, rate: float, settled: bool) -> None:
        left = (self.total - self.position) / rate
        now, due = time.monotonic(), QUIET
        if self.path and now - self.last_save >= self.every:
            due = SAVE
        due = STOP if listener.stopped else due
        self.wish = due
        if jax.process_count() > 1:  # act on what all processes saw, one segment late
            due = int(agreed[1])
            self.points = max(int(agreed[0]), 1) * self.mesh.size * self.chunk
        if due >= SAVE and self.path:
            self.save()
        if self.progress:
            self.progress(Progress(self.position, self.total, rate, left))
        if due == STOP:
            raise KeyboardInterrupt
        early = now - self.begun < guard.EARLY
        if not (self.guarded or early) and settled and left > guard.LONG:
            guard.check(self.mine, np.dtype(self.dtype).name)
            self.guarded = True

    def save(self) -> None:
        """Write a checkpoint; a full disk is noted, and the last good one stays."""
        state = self._merged()
        self.last_save = time.monotonic()
        if jax.process_index() or self.path is None:
            return
        capacity = getattr(self.reducer, "capacity", 0)
        leaves = [np.asarray(x) for x in jax.tree.leaves(state)]
        try:
            point = saved.Checkpoint(self.position, self.counts, capacity, leaves)
            saved.save(self.path, self.mark, point)
        except OSError as error:
            self.notes.append(f"checkpoint not written: {error.strerror or error}")

    def _merged(self) -> Any:
        while True:
            states, shared = self.held, bool(self.judge) and self._thin()
            if shared:  # the first state has them all, and copies within the margin would stay
                states = {
                    **self.held,
                    "count": self.held["count"] * (np.arange(len(self.mine)) < 1),
                }
            if self.mesh.size == 1 or (shared and len(self.mine) == self.mesh.size):
                return jax.tree.map(lambda x: x[0], states)
            with precise(self.dtype):
                found = collect(self.reducer, self.mesh, self._place(states))
            found = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), found)
            if not (isinstance(found, dict) and found.get("overflow", False)):
                return found
            self._grow()

    def _empty(self) -> Any:
        return self.reducer.init(self.limbs, self.groups, self.dtype)

    @staticmethod
    def _stack(states: list[Any]) -> Any:
        return jax.tree.map(lambda *x: np.stack(x), *states)

    def _place(self, local: Any) -> Any:
        """This process's rows as its part of an array over all devices."""
        with precise(self.dtype):
            return jax.tree.map(
                lambda x: jax.make_array_from_process_local_data(self.split, np.array(x)), local
            )

    def _pull(self, state: Any) -> Any:
        """Copies of this process's rows; views would be donated with the next segment."""

        def rows(x: Any) -> np.ndarray:
            shards = sorted(x.addressable_shards, key=lambda s: s.index[0].start or 0)
            return np.concatenate([np.array(s.data) for s in shards])

        return jax.tree.map(rows, state)
