"""The state of a sweep between segments: one for each device, or one frontier."""

from collections.abc import Callable, Sequence
from operator import itemgetter

import jax
import numpy as np
from jax import Array, Device
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike, DTypeLike

from infer_jax.errors import InputError
from infer_jax.sweeps.front import Front
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.program import LANES, collect, gather, precise
from infer_jax.sweeps.reducers import Monoid, State

ASKED = 2**14  # rows decided at a time; between batches the sweep may be stopped
# (indices) -> (which of them are feasible, their objectives), evaluated in float64
Judge = Callable[[list[int]], tuple[np.ndarray, np.ndarray]]


class Devices:
    """The devices of a sweep, and transfers of this process's part of an array to and from them."""

    def __init__(self, devices: Sequence[Device], dtype: DTypeLike):
        self.mesh, self.dtype = Mesh(np.array(devices), (LANES,)), dtype
        self.split = NamedSharding(self.mesh, PartitionSpec(LANES))
        self.mine = [d for d in devices if d.process_index == jax.process_index()]
        self.processes = len({d.process_index for d in devices})
        self.first = jax.process_index() == devices[0].process_index

    def place(self, local: State) -> State:
        """This process's rows as its part of an array over all devices."""

        def part(x: ArrayLike) -> Array:
            return jax.make_array_from_process_local_data(self.split, np.array(x))  # pyright: ignore[reportUnknownMemberType]

        with precise(self.dtype):
            return jax.tree.map(part, local)

    def alike(self, one: State) -> State:
        """The same numbers on each of this process's devices."""
        count = len(self.mine)

        def rows(x: np.ndarray) -> np.ndarray:
            return np.broadcast_to(x, (count, *np.shape(x)))

        return self.place(jax.tree.map(rows, one))

    def pull(self, state: State) -> State:
        """Copies of this process's rows; views would be donated with the next segment."""

        def rows(x: Array) -> np.ndarray:
            shards = sorted(x.addressable_shards, key=lambda s: s.index[0].start or 0)
            return np.concatenate([np.array(s.data) for s in shards])

        return jax.tree.map(rows, state)


class States:
    """A state of fixed size for each device, merged when the whole is needed."""

    def __init__(self, reducer: Monoid, devices: Devices, limbs: int, groups: int):
        self.reducer, self.devices = reducer, devices
        self.empty = reducer.init(limbs, groups, devices.dtype)
        self.held = self._stack([self.empty] * len(devices.mine))
        self.state = devices.place(self.held)

    @staticmethod
    def _stack(states: list[State]) -> State:
        return jax.tree.map(lambda *x: np.stack(x), *states)

    def again(self, lanes: int) -> None:
        """Restore the states from before the segment."""
        self.state = self.devices.place(self.held)

    def accept(self, state: State, position: int) -> bool:
        """Accept a segment's states; returns whether the next one runs another program."""
        self.state, self.held = state, self.devices.pull(state)
        return False

    def pace(self, count: int) -> float:
        """The most points that the next segment should have."""
        return float("inf")

    def settle(self, position: int, stopped: Callable[[], bool]) -> bool | None:
        """Nothing to decide; returns False, since the next segment runs the same program."""
        return False

    def merged(self) -> State:
        """The merged state of all devices."""
        if self.devices.mesh.size == 1:
            return jax.tree.map(itemgetter(0), self.held)
        with precise(self.devices.dtype):
            state = collect(self.reducer, self.devices.mesh, self.devices.place(self.held))
        return jax.tree.map(_copied, state)

    def leaves(self) -> list[np.ndarray]:
        """What a checkpoint holds."""
        return [np.asarray(x) for x in jax.tree.leaves(self.merged())]

    def restore(self, leaves: list[np.ndarray], since: int, decided: int) -> None:
        """Go on from a checkpoint."""
        states = [self.empty] * len(self.devices.mine)
        if self.devices.first:
            states[0] = jax.tree.unflatten(jax.tree.structure(self.empty), leaves)
        self.held = self._stack(states)
        self.state = self.devices.place(self.held)

    since = decided = 0


class Frontier:
    """One frontier, merged on the host after each segment and known to all devices.

    With a ``judge`` the rows are those within a margin, which it decides in float64. They are
    decided at positions that depend on the grid alone, so that stopping and resuming changes
    nothing, or earlier where they outgrow the room. ``decided`` counts the rows that were new then.
    """

    def __init__(
        self, reducer: Pareto, devices: Devices, limbs: int, groups: int, lanes: int, memory: int,
        judge: Judge | None,
    ):  # fmt: skip
        self.reducer, self.devices, self.groups, self.judge = reducer, devices, groups, judge
        self.lanes, self.memory = lanes, memory
        self.known = reducer.empty(limbs, devices.dtype)
        self.exact = Front(self._exact(self.known, np.zeros((0, self.known.keys))),
                           self.known.keys, limbs)  # fmt: skip
        self.since, self.decided, self.fresh, self.before = 0, 0, 0, 0
        self.settled: Front | None = None  # the rows when all had last been decided
        self.again(lanes)

    def again(self, lanes: int) -> None:
        """Send the frontier so far to all devices, with room for chunks of ``lanes`` points."""
        self.lanes = lanes
        self.reducer = self.reducer.fitting(len(self.known))
        self.state = self.devices.alike(self.reducer.state(self.known, self.groups, lanes))

    def accept(self, state: State, position: int) -> bool:
        """Merge a segment's new rows; returns whether the next one runs another program."""
        self.state, self.before = state, len(self.known)
        columns, self.fresh = self._new(state)
        if not self.fresh:
            return False
        self.known = self.known.merged(self._rows(columns))
        if len(self.known) > self._most():
            self.settle(position)
            if len(self.known) > self._most():
                raise outsized(self.reducer, self._most(), position)
        return self._placed()

    def _new(self, state: State) -> tuple[list[np.ndarray], int]:
        """The new rows of all devices, and the largest number on one device."""
        devices = self.devices
        if devices.processes == 1:
            counts = devices.pull(state["count"])
            fresh = devices.pull(state["fresh"]) if counts.any() else state["fresh"]
        else:  # each process gathers those of all
            counts = self._gathered(1, state["count"])
            size = 8
            while size < counts.max():
                size *= 8
            fresh = self._gathered(size, state["fresh"]) if counts.any() else state["fresh"]
        if not counts.any():
            return [], 0
        parts = ([rows[:n] for rows, n in zip(x, counts, strict=True)] for x in fresh)
        return [np.concatenate(part) for part in parts], int(counts.max())

    def _gathered(self, size: int, rows: State) -> State:
        with precise(self.devices.dtype):
            gathered = gather(self.devices.mesh, size, rows)
        return jax.tree.map(_copied, gathered)

    def pace(self, count: int) -> float:
        """The most points of the next segment: their rows fit the room and merge in time."""
        fits = 0.5 * self.reducer.room * count / max(self.fresh, 1)
        slower = max(len(self.known) / max(self.before, 1), 1.0) if self.known.keys > 2 else 1.0
        return min(fits, 8 * count / slower)

    def settle(self, position: int, stopped: Callable[[], bool] = lambda: False) -> bool | None:
        """Decide all rows exactly; returns whether the next segment runs another program.

        Returns None, with nothing changed, if it was asked to stop.
        """
        if self.judge is None or self.known is self.settled:
            self.since = position
            return False
        exact = self.exact.take(np.flatnonzero(np.isin(self.exact.ids, self.known.ids)))
        new = self.known.take(np.flatnonzero(~np.isin(self.known.ids, exact.ids))).ordered()
        index = new.index()
        parts: list[tuple[np.ndarray, ...]] = []
        for start in range(0, len(index), ASKED):
            if stopped():
                return None
            chosen, keys = self.judge(index[start : start + ASKED])
            parts.append(self._exact(new.take(chosen + start), keys[chosen]))
        if parts:
            columns = (np.concatenate(column) for column in zip(*parts, strict=True))
            exact = exact.merged(Front(tuple(columns), new.keys, new.limbs))
        self.decided += sum(i >= self.since for i in index)
        self.exact, self.since = exact, position
        kept = np.isin(self.known.ids, exact.ids)
        if not kept.all():
            self.known = self.known.take(np.flatnonzero(kept))
        self.settled = self.known
        return False if kept.all() else self._placed()

    def merged(self) -> Front:
        """The frontier."""
        return self.known

    def leaves(self) -> list[np.ndarray]:
        """What a checkpoint holds."""
        return list(self.known.columns)

    def restore(self, leaves: list[np.ndarray], since: int, decided: int) -> None:
        """Go on from a checkpoint."""
        self.known, self.since, self.decided = self._rows(leaves), since, decided
        self.again(self.lanes)

    def _placed(self) -> bool:
        before = self.reducer
        self.again(self.lanes)
        return self.reducer is not before

    def _most(self) -> int:
        row = sum(c.itemsize for c in self.known.columns)
        return min(self.reducer.most, self.memory // row)

    def _rows(self, columns: Sequence[np.ndarray]) -> Front:
        held = self.known
        return Front(tuple(columns), held.keys, held.limbs, held.push)

    @staticmethod
    def _exact(rows: Front, keys: np.ndarray) -> tuple[np.ndarray, ...]:
        return (rows.columns[0], *np.ascontiguousarray(keys.T), *rows.columns[-rows.limbs :])


def _copied(x: Array) -> np.ndarray:
    """The copy on one device of an array that all devices hold."""
    return np.asarray(x.addressable_data(0))


def outsized(reducer: Pareto, most: int, position: int) -> InputError:
    """The error of a frontier with too many rows; it names the ways to keep fewer."""
    ways = (
        f"at most {most:,} of {len(reducer.objectives)} objectives: fewer objectives, limits "
        "(where=), a coarser axis, epsilon=0.001 (one point for each 0.1 %), or Best or TopK"
    )
    return InputError("sweep", f"the frontier of the first {position:,} points",
                      f"more than {most:,} rows", ways)  # fmt: skip
