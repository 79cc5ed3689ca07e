"""The state of a sweep between segments: one for each device, or one frontier."""

from collections.abc import Callable, Sequence
from operator import itemgetter

import jax
import numpy as np
from jax import Array, Device
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike, DTypeLike

from infer_jax.errors import InputError
from infer_jax.sweeps import refine
from infer_jax.sweeps.front import Front
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.preparing import Prepared
from infer_jax.sweeps.program import LANES, gather_rows, merge_devices, precise
from infer_jax.sweeps.reducers import Monoid, State

BATCH = 2**14  # rows refined at a time; between batches the sweep may be stopped


class Devices:
    """The devices of a sweep, and transfers of this process's part of an array to and from them."""

    def __init__(self, devices: Sequence[Device], dtype: DTypeLike):
        self.mesh, self.dtype = Mesh(np.array(devices), (LANES,)), dtype
        self.split = NamedSharding(self.mesh, PartitionSpec(LANES))
        self.local = [d for d in devices if d.process_index == jax.process_index()]
        self.processes = len({d.process_index for d in devices})
        self.first = jax.process_index() == devices[0].process_index

    def put(self, local: State) -> State:
        """This process's rows as its part of an array over all devices."""

        def part(x: ArrayLike) -> Array:
            return jax.make_array_from_process_local_data(self.split, np.array(x))  # pyright: ignore[reportUnknownMemberType]

        with precise(self.dtype):
            return jax.tree.map(part, local)

    def replicate(self, state: State) -> State:
        """The same numbers on each of this process's devices."""

        def rows(x: np.ndarray) -> np.ndarray:
            return np.broadcast_to(x, (len(self.local), *np.shape(x)))

        return self.put(jax.tree.map(rows, state))

    def fetch(self, state: State) -> State:
        """Copies of this process's rows; views would be donated with the next segment."""

        def rows(x: Array) -> np.ndarray:
            shards = sorted(x.addressable_shards, key=lambda s: s.index[0].start or 0)
            return np.concatenate([np.array(s.data) for s in shards])

        return jax.tree.map(rows, state)

    def collect(self, program: Callable[..., State], *args: object) -> State:
        """The copy on one device of what a program returns on all of them."""

        def copied(x: Array) -> np.ndarray:
            return np.asarray(x.addressable_data(0))

        with precise(self.dtype):
            return jax.tree.map(copied, program(*args))


class DeviceStates:
    """A state of fixed size for each device, merged when the whole is needed."""

    since = decided = 0  # every row is decided at the end

    def __init__(self, reducer: Monoid, devices: Devices, words: int, groups: int):
        self.reducer, self.devices = reducer, devices
        self.empty = reducer.init(words, groups, devices.dtype)
        self._put([self.empty] * len(devices.local))

    def _put(self, states: list[State]) -> None:
        self.accepted = jax.tree.map(lambda *x: np.stack(x), *states)
        self.state = self.devices.put(self.accepted)

    def reset(self, lanes: int) -> None:
        """Restore the states from before the segment."""
        self.state = self.devices.put(self.accepted)

    def accept(self, state: State, position: int) -> bool:
        """Accept a segment's states; returns whether the next one runs another program."""
        self.state, self.accepted = state, self.devices.fetch(state)
        return False

    def max_segment(self, count: int) -> float:
        """The most points that the next segment should have."""
        return float("inf")

    def refine(self, position: int, stopped: Callable[[], bool]) -> bool | None:
        """Nothing to decide; returns False, since the next segment runs the same program."""
        return False

    def merged(self) -> State:
        """The merged state of all devices."""
        mesh = self.devices.mesh
        if mesh.size == 1:
            return jax.tree.map(itemgetter(0), self.accepted)
        states = self.devices.put(self.accepted)
        return self.devices.collect(merge_devices, self.reducer, mesh, states)

    def index(self) -> list[int]:
        """The indices of the points kept, in order."""
        return self.reducer.rows(self.merged())

    def leaves(self) -> list[np.ndarray]:
        """What a checkpoint holds."""
        return [np.asarray(x) for x in jax.tree.leaves(self.merged())]

    def restore(self, leaves: list[np.ndarray], since: int, decided: int) -> None:
        """Go on from a checkpoint."""
        states = [self.empty] * len(self.devices.local)
        if self.devices.first:
            states[0] = jax.tree.unflatten(jax.tree.structure(self.empty), leaves)
        self._put(states)


class FrontierState:
    """One frontier, merged on the host after each segment and known to all devices.

    Where the reducer has a margin, the rows are those within it, which float64 decides: at
    positions that depend on the grid alone, so that stopping and resuming changes nothing, or
    earlier where they outgrow the memory. ``decided`` counts the rows that were new then,
    ``since`` is the point after which rows are undecided.
    """

    def __init__(self, ready: Prepared, devices: Devices, words: int, lanes: int, memory: int):
        assert isinstance(ready.running, Pareto)
        self.ready, self.devices, self.reducer = ready, devices, ready.running
        self.known = self.reducer.empty(words, devices.dtype)
        row = sum(c.itemsize for c in self.known.columns)
        self.max_rows = min(self.reducer.max_rows, memory // row)
        none = self._refined(self.known, np.zeros((0, self.known.keys)))
        self.refined = Front(none, self.known.keys, words)
        self.since, self.decided, self.fresh, self.before = 0, 0, 0, 0
        self.latest: Front | None = None  # the rows when all had last been decided
        self.reset(lanes)

    def reset(self, lanes: int) -> None:
        """Send the frontier so far to all devices, with space for chunks of ``lanes`` points."""
        self.lanes = lanes
        self.reducer = self.reducer.with_capacity(len(self.known))
        self.state = self.devices.replicate(
            self.reducer.state(self.known, self.ready.positions, lanes)
        )

    def _send(self) -> bool:
        """Send the frontier; returns whether the next segment runs another program."""
        before = self.reducer
        self.reset(self.lanes)
        return self.reducer is not before

    def accept(self, state: State, position: int) -> bool:
        """Merge a segment's new rows; returns whether the next one runs another program."""
        self.state, self.before = state, len(self.known)
        columns, self.fresh = self._new(state)
        if not self.fresh:
            return False
        self.known = self.known.merged(self._front(columns))
        if len(self.known) > self.max_rows:
            self.refine(position)
            if len(self.known) > self.max_rows:
                ways = (
                    f"at most {self.max_rows:,} of {self.known.keys} objectives: fewer objectives, "
                    "limits (where=), a coarser axis, epsilon=0.001 (one point for each 0.1 %), or "
                    "Best or TopK"
                )
                where = f"the frontier of the first {position:,} points"
                raise InputError("sweep", where, f"more than {self.max_rows:,} rows", ways)
        return self._send()

    def _new(self, state: State) -> tuple[list[np.ndarray], int]:
        """The new rows of all devices, and the largest number on one device."""
        devices, fresh = self.devices, state["fresh"]
        if devices.processes == 1:
            counts = devices.fetch(state["count"])
            fresh = devices.fetch(fresh) if counts.any() else fresh
        else:  # each process gathers those of all
            counts = devices.collect(gather_rows, devices.mesh, 1, state["count"])
            size = 8
            while size < counts.max():
                size *= 8
            if counts.any():
                fresh = devices.collect(gather_rows, devices.mesh, size, fresh)
        if not counts.any():
            return [], 0
        parts = ([rows[:n] for rows, n in zip(x, counts, strict=True)] for x in fresh)
        return [np.concatenate(part) for part in parts], int(counts.max())

    def max_segment(self, count: int) -> float:
        """The most points of the next segment: their rows fit, and are merged in time."""
        fits = 0.5 * self.reducer.new_rows * count / max(self.fresh, 1)
        slower = max(len(self.known) / max(self.before, 1), 1.0) if self.known.keys > 2 else 1.0
        return min(fits, 8 * count / slower)

    def refine(self, position: int, stopped: Callable[[], bool] = lambda: False) -> bool | None:
        """Decide all rows exactly; returns whether the next segment runs another program.

        Returns None, with nothing changed, if it was stopped.
        """
        if not self.reducer.margin or self.known is self.latest:
            self.since = position
            return False
        refined = self.refined.take(np.flatnonzero(np.isin(self.refined.ids, self.known.ids)))
        new = self.known.take(np.flatnonzero(~np.isin(self.known.ids, refined.ids))).sort_rows()
        index = new.index()
        parts: list[tuple[np.ndarray, ...]] = []
        for start in range(0, len(index), BATCH):
            if stopped():
                return None
            points = refine.evaluate(self.ready, index[start : start + BATCH])
            chosen, keys = refine.eligible(self.reducer, points)
            parts.append(self._refined(new.take(chosen + start), keys[chosen]))
        if parts:
            columns = (np.concatenate(column) for column in zip(*parts, strict=True))
            refined = refined.merged(Front(tuple(columns), new.keys, new.words))
        self.decided += sum(i >= self.since for i in index)
        self.refined, self.since = refined, position
        stays = np.isin(self.known.ids, refined.ids)
        if not stays.all():
            self.known = self.known.take(np.flatnonzero(stays))
        self.latest = self.known
        return False if stays.all() else self._send()

    def index(self) -> list[int]:
        """The indices of the frontier, in order."""
        return self.known.index()

    def leaves(self) -> list[np.ndarray]:
        """What a checkpoint holds."""
        return list(self.known.columns)

    def restore(self, leaves: list[np.ndarray], since: int, decided: int) -> None:
        """Go on from a checkpoint."""
        self.known, self.since, self.decided = self._front(leaves), since, decided
        self.reset(self.lanes)

    def _front(self, columns: Sequence[np.ndarray]) -> Front:
        return Front(tuple(columns), self.known.keys, self.known.words, self.known.push)

    @staticmethod
    def _refined(rows: Front, keys: np.ndarray) -> tuple[np.ndarray, ...]:
        return (rows.columns[0], *np.ascontiguousarray(keys.T), *rows.columns[-rows.words :])
