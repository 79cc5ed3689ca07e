"""The state of a sweep between segments: one for each device, or one frontier."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import itemgetter

import jax
import numpy as np
from jax import Array, Device
from jax.sharding import Mesh, NamedSharding
from jax.typing import ArrayLike, DTypeLike

from infer_jax.errors import InputError
from infer_jax.sweeps import refine
from infer_jax.sweeps.pareto import Front, Pareto
from infer_jax.sweeps.paths import Tree
from infer_jax.sweeps.preparing import Prepared
from infer_jax.sweeps.program import LANES, SPLIT, gather_rows, precise
from infer_jax.sweeps.reducers import Monoid, State
from infer_jax.typed_jax import jit

BATCH = 2**14  # rows refined at a time; between batches the sweep may be stopped
Leaves = list[np.ndarray]  # what a checkpoint holds of a state


class Devices:
    """The devices of a sweep, and transfers of this process's part of an array to and from them."""

    def __init__(self, devices: Sequence[Device], dtype: DTypeLike):
        self.mesh, self.dtype = Mesh(np.array(devices), (LANES,)), dtype
        self.local = [d for d in devices if d.process_index == jax.process_index()]
        self.first = jax.process_index() == devices[0].process_index

    def put(self, rows: Tree) -> Tree:
        """This process's rows, one a device, as its part of an array over all devices."""
        split = NamedSharding(self.mesh, SPLIT)

        def part(x: ArrayLike) -> Array:
            return jax.make_array_from_process_local_data(split, np.array(x))  # pyright: ignore[reportUnknownMemberType]

        with precise(self.dtype):
            return jax.tree.map(part, rows)

    def put_copies(self, state: State) -> State:
        """The same numbers on each device."""

        def rows(x: np.ndarray) -> np.ndarray:
            return np.stack([x] * len(self.local))

        return self.put(jax.tree.map(rows, state))

    def fetch(self, state: State) -> State:
        """Copies of this process's rows; views would be donated with the next segment."""

        def rows(x: Array) -> np.ndarray:
            shards = sorted(x.addressable_shards, key=lambda s: s.index[0].start or 0)
            return np.concatenate([np.array(s.data) for s in shards])

        return jax.tree.map(rows, state)

    def fetch_all(self, state: State, size: int | None = None) -> State:
        """Copies of the rows of all processes; with ``size`` that many numbers of each row."""
        if len(self.local) == self.mesh.size:
            return self.fetch(state)
        with precise(self.dtype):
            return jax.tree.map(_copy, gather_rows(self.mesh, size, state))


def _copy(x: Array) -> np.ndarray:
    """The numbers of an array that is the same on all devices."""
    return np.asarray(x.addressable_data(0))


class DeviceStates:
    """A state of fixed size for each device, merged when the whole is needed."""

    since = decided = 0  # every row is decided at the end

    def __init__(self, reducer: Monoid, devices: Devices, words: int, groups: int):
        self.reducer, self.devices = reducer, devices
        self.empty = reducer.init(words, groups, devices.dtype)
        self._put([self.empty] * len(devices.local))

    def _put(self, states: list[State]) -> None:
        self.accepted = jax.tree.map(lambda *x: np.stack(x), *states)
        self.reset(0)

    def reset(self, lanes: int) -> None:
        """Restore the states from before the segment."""
        self.state = self.devices.put(self.accepted)

    def accept(self, state: State, position: int) -> None:
        """Accept a segment's states."""
        self.state, self.accepted = state, self.devices.fetch(state)

    def max_segment(self, count: int) -> float:
        """The most points that the next segment should have."""
        return float("inf")

    def refine(self, position: int, stopped: Callable[[], bool]) -> bool:
        """Nothing to decide."""
        return True

    def merged(self) -> State:
        """The merged state of all devices."""
        every = self.devices.fetch_all(self.state)
        states = [jax.tree.map(itemgetter(i), every) for i in range(self.devices.mesh.size)]
        with precise(self.devices.dtype):
            merge: Callable[[State, State], State] = partial(_merge, self.reducer)
            return jax.device_get(reduce(merge, states))

    def index(self) -> list[int]:
        """The indices of the points kept, in order."""
        return self.reducer.rows(self.merged())

    def leaves(self) -> Leaves:
        """What a checkpoint holds."""
        return [np.asarray(x) for x in jax.tree.leaves(self.merged())]

    def restore(self, leaves: Leaves, since: int, decided: int) -> None:
        """Go on from a checkpoint."""
        states = [self.empty] * len(self.devices.local)
        if self.devices.first:
            states[0] = jax.tree.unflatten(jax.tree.structure(self.empty), leaves)
        self._put(states)


@jit(static=(0,))
def _merge(reducer: Monoid, a: State, b: State) -> State:
    return reducer.merge(a, b)


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
        state = self.reducer.state(self.known, self.ready.positions, lanes)
        self.state = self.devices.put_copies(state)

    def accept(self, state: State, position: int) -> None:
        """Merge a segment's new rows, and send the frontier."""
        self.state, self.before = state, len(self.known)
        counts = self.devices.fetch_all({"count": state["count"]})["count"]
        self.fresh = int(counts.max())  # the largest number on one device
        if not self.fresh:
            return
        size = 8  # in few sizes, each of which is compiled
        while size < self.fresh:
            size *= 8
        fresh = self.devices.fetch_all({"fresh": state["fresh"]}, size)["fresh"]
        columns = (
            np.concatenate([row[:n] for row, n in zip(column, counts, strict=True)])
            for column in fresh
        )
        self.known = self.known.merged(replace(self.known, columns=tuple(columns)))
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
        self.reset(self.lanes)

    def max_segment(self, count: int) -> float:
        """The most points of the next segment: their rows fit, and are merged in time."""
        fits = 0.5 * self.reducer.new_rows * count / max(self.fresh, 1)
        slower = max(len(self.known) / max(self.before, 1), 1.0) if self.known.keys > 2 else 1.0
        return min(fits, 8 * count / slower)

    def refine(self, position: int, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Decide all rows exactly; returns False, with nothing changed, if it was stopped."""
        if not self.reducer.margin or self.known is self.latest:
            self.since = position
            return True
        refined = self.refined.take(np.isin(self.refined.ids, self.known.ids))
        new = self.known.take(~np.isin(self.known.ids, refined.ids)).sort_rows()
        index = new.index()
        parts: list[tuple[np.ndarray, ...]] = []
        for start in range(0, len(index), BATCH):
            if stopped():
                return False
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
            self.known = self.known.take(stays)
            self.reset(self.lanes)
        self.latest = self.known
        return True

    def index(self) -> list[int]:
        """The indices of the frontier, in order."""
        return self.known.index()

    def leaves(self) -> Leaves:
        """What a checkpoint holds."""
        return list(self.known.columns)

    def restore(self, leaves: Leaves, since: int, decided: int) -> None:
        """Go on from a checkpoint."""
        self.known, self.since, self.decided = (
            replace(self.known, columns=tuple(leaves)),
            since,
            decided,
        )
        self.reset(self.lanes)

    @staticmethod
    def _refined(rows: Front, keys: np.ndarray) -> tuple[np.ndarray, ...]:
        return (rows.columns[0], *np.ascontiguousarray(keys.T), *rows.columns[-rows.words :])
