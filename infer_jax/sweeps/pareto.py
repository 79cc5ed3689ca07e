"""The exact Pareto frontier: points that no other point beats.

A beats B where it is at least as good in every objective and better in one, or equal in all
with a lower index. With a ``margin`` (float32 sweeps) A beats B only if it is better by that
share in all, so that points which rounding may have ruled out are kept for float64; whole counts
are exact, and need to be only as good. With ``epsilon`` points are compared
box by box of that relative size, and a box keeps its best point. All three are strict partial
orders, so the maximal points of a union come from the maximal points of its parts.

A device knows the frontier as it was when its segment began; it drops the lanes that this beats and
hands the others to the host, which merges them (``Front``). So every lane costs the same, and a
segment ends early where more lanes are left than fit. On the host a merge with two objectives is a
sort and a scan, O(n log n) in the new rows and O(n) in the old ones; with more, blocks of rows are
compared, and only blocks whose best corner could beat something. It ends within about a second at
the sizes allowed, so that a sweep can be saved and stopped after it.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from infer_jax.errors import InputError
from infer_jax.physics.pareto import descents
from infer_jax.sweeps.digits import Numbers, before, to_index
from infer_jax.sweeps.reducers import Chunk, Mask, Per, Reducer, Rows, State, parse
from infer_jax.typed_jax import fori_loop

BLOCK, HOST_BLOCK = 128, 256  # known rows compared with the lanes at a time, rows on the host
START = 2048  # capacity for known rows of the first program
GROWTH = 32  # the next program has this many times the capacity
# For two objectives, and for more: rows that one device hands over at once, and most rows of a
# frontier. For every lane a frontier of two objectives is searched by bisection, of more row by
# row.
NEW_ROWS = (2**16, 2**13)
MAX_ROWS = (2**20, 2**16)
MARGIN = 4e-5  # twice the relative error that the contract tests allow a float32 time
WHOLE = 2**24  # counts below it are exact in float32
# (objective, values) -> values at which other rows are beaten
Push = Callable[[int, np.ndarray], np.ndarray]
Pairs = tuple[np.ndarray, np.ndarray]  # rows, and rows that beat them unless both are equal


@dataclasses.dataclass(frozen=True)
class Front:
    """A frontier on the host; its columns: position of ``per``, objectives, ties, index words.

    Rows are sorted by position and first objective. Among rows equal in all objectives, the first
    by ties and index is kept. ``push`` gives a margin; without it the frontier is exact.
    """

    columns: tuple[np.ndarray, ...]
    keys: int
    words: int
    push: Push | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    def take(self, chosen: np.ndarray) -> "Front":
        """The chosen rows: by their numbers in that order, or those that a mask marks."""
        return dataclasses.replace(self, columns=tuple(c[chosen] for c in self.columns))

    @property
    def ids(self) -> np.ndarray:
        """The index of each row: an integer, or bytes where 64 bits do not hold it."""
        words = self.columns[-self.words :]
        if len(words) > 2:
            table = np.ascontiguousarray(np.stack(words, -1).astype(">u4"))
            return table.view(f"V{4 * len(words)}").ravel()
        total = np.zeros(len(self), np.uint64)
        for word in words:
            total = total << np.uint64(32) | word.astype(np.uint64)
        return total

    def index(self) -> list[int]:
        """The indices in order of position, objectives, ties and index."""
        columns = [c.tolist() for c in self.sort_rows().columns[-self.words :]]
        return [to_index(words) for words in zip(*columns, strict=True)]

    def sort_rows(self) -> "Front":
        """All rows in the order of their columns, each index once."""
        rows = self.take(np.lexsort(self.columns[::-1]))
        _, first = np.unique(rows.ids, return_index=True)
        return rows if len(first) == len(rows) else rows.take(np.sort(first))

    def merged(self, fresh: "Front") -> "Front":
        """The frontier of these rows (already a frontier) and fresh ones in any order."""
        fresh = fresh.sort_rows()
        fresh = fresh.take(~beaten(fresh, fresh))
        if len(self):
            fresh = fresh.take(~np.isin(fresh.ids, self.ids))
            fresh = fresh.take(~beaten(fresh, self))
        if not len(fresh):
            return self
        left = self.take(~beaten(self, fresh))
        both = [np.concatenate(pair) for pair in zip(left.columns, fresh.columns, strict=True)]
        rows = dataclasses.replace(self, columns=tuple(both))
        return rows.take(np.argsort(_paired(both[0], both[1]), kind="stable"))

    def pushed(self, at: int) -> np.ndarray:
        """By row, the value of an objective at and beyond which the row beats others."""
        return self.columns[1 + at] if self.push is None else self.push(at, self.columns[1 + at])

    def stairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The frontier of two objectives as steps; each beats what is at or beyond both its values.

        By step: position, first and second objective, and the row that has the second one.
        """
        first = self.pushed(0)
        order = np.argsort(_paired(self.columns[0], first), kind="stable")
        owner, first, second = self.columns[0][order], first[order], self.pushed(1)[order]
        new = descents(_paired(-owner, second))  # restarts with each position
        row = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
        return owner, first, second[row], order[row]


def beaten(rows: Front, by: Front) -> np.ndarray:
    """Which rows some row of ``by`` beats."""
    lost = np.zeros(len(rows), bool)
    if not len(rows) or not len(by):
        return lost
    keys, ties = slice(1, 1 + rows.keys), slice(1 + rows.keys, None)
    for lane, who in _below_stairs(rows, by) if rows.keys == 2 else _in_blocks(rows, by, lost):
        same = np.ones(len(lane), bool)
        for x, y in zip(rows.columns[keys], by.columns[keys], strict=True):
            same &= x[lane] == y[who]
        first = before([c[who] for c in by.columns[ties]], [c[lane] for c in rows.columns[ties]])
        lost[lane[~same | first]] = True
    return lost


def _paired(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two columns as complex numbers, which NumPy compares by the first and then by the second."""
    pair = np.empty(len(a), np.complex128)
    pair.real, pair.imag = a, b
    return pair


def _below_stairs(rows: Front, by: Front) -> Iterator[Pairs]:
    """Rows at or beyond the step before them, with the row of that step."""
    owner, first, second, row = by.stairs()
    mine, x, y = rows.columns[:3]
    at = np.searchsorted(_paired(owner, first), _paired(mine, x), side="right") - 1
    last = np.maximum(at, 0)
    lane = np.flatnonzero((at >= 0) & (owner[last] == mine) & (second[last] <= y))
    yield lane, row[last[lane]]


def _in_blocks(rows: Front, by: Front, lost: np.ndarray) -> Iterator[Pairs]:
    """Rows that are not lost, with a row at or before each in all objectives; block by block.

    ``lost`` is read anew for each block: the caller marks what a block has decided.
    """
    pushed, keys = [by.pushed(i) for i in range(by.keys)], slice(1, 1 + rows.keys)
    for start in range(0, len(by), HOST_BLOCK):
        some, left = slice(start, start + HOST_BLOCK), np.flatnonzero(~lost)
        owner, mine = by.columns[0][some], rows.columns[0][left]
        reached = (owner.min() <= mine) & (owner.max() >= mine)
        for push, x in zip(pushed, rows.columns[keys], strict=True):
            reached &= push[some].min() <= x[left]
        lanes = left[reached]
        hit = owner[:, None] == rows.columns[0][lanes]
        for push, x in zip(pushed, rows.columns[keys], strict=True):
            hit &= push[some][:, None] <= x[lanes]
        at, lane = np.nonzero(hit)
        yield lanes[lane], at + start


@dataclasses.dataclass(frozen=True, init=False)
class Pareto(Reducer):
    """The frontier of two or more objectives: ``Pareto("speed", "cost")``.

    Rates and fractions are maximised, all else minimised; ``"max chips"`` overrides this. ``per``
    gives each position of these axes a frontier of its own; ``epsilon`` keeps one point of each
    box of that relative size, so that every point is within that share of a kept one.
    """

    objectives: tuple[str, ...]
    per: Per
    epsilon: float
    capacity: int
    margin: float
    whole: frozenset[str]

    def __init__(
        self,
        *objectives: str,
        per: Per = (),
        epsilon: float = 0.0,
        capacity: int = START,
        margin: float = 0.0,
        whole: frozenset[str] = frozenset(),
    ):
        if len(objectives) < 2 or len(set(objectives)) < len(objectives):
            raise InputError("Pareto", "objectives", objectives, "two or more, all different")
        if not (math.isfinite(epsilon) and 0 <= epsilon < 1):
            raise InputError("Pareto", "epsilon", epsilon, "a share from 0 to below 1")
        per = (per,) if isinstance(per, str) else tuple(per)
        values = (objectives, per, float(epsilon), capacity, margin, whole)
        for field, value in zip(dataclasses.fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    def changed(self, **changes: Any) -> "Pareto":
        """The same reducer with some fields changed."""
        fields = {**vars(self), **changes}
        return Pareto(*fields.pop("objectives"), **fields)

    @property
    def terms(self) -> tuple[str, ...]:
        """The objectives."""
        return self.objectives

    def in_float32(self, counts: frozenset[str]) -> "Pareto":
        """The same reducer with a margin, so that float64 decides close cases."""
        return self if self.epsilon else self.changed(margin=MARGIN, whole=counts)

    def with_capacity(self, count: int) -> "Pareto":
        """The same with capacity for ``count`` known rows, in few sizes: each is compiled."""
        capacity = self.capacity
        while capacity < count:
            capacity *= GROWTH
        return self if capacity == self.capacity else self.changed(capacity=capacity)

    @property
    def max_rows(self) -> int:
        """The most rows: a larger frontier is refused."""
        return MAX_ROWS[len(self.objectives) > 2]

    @property
    def new_rows(self) -> int:
        """The rows that one device can always hand over at once."""
        return NEW_ROWS[len(self.objectives) > 2]

    @property
    def _keys(self) -> int:
        return len(self.objectives)

    @property
    def _ties(self) -> int:
        """Columns that decide between points of one box: their objectives."""
        return self._keys if self.epsilon else 0

    def empty(self, words: int, dtype: DTypeLike) -> Front:
        """A frontier without rows."""
        values = (np.zeros(0, dtype) for _ in range(self._keys + self._ties))
        index = (np.zeros(0, np.uint32) for _ in range(words))
        push = self._pushed if self.margin else None
        return Front((np.zeros(0, np.int32), *values, *index), self._keys, words, push)

    def state(self, known: Front, groups: int, lanes: int) -> State:
        """The state of a device at the start of a segment: known rows, and space for new ones.

        Of two objectives the known rows are the steps of the frontier, and where those of each
        position begin; of more they are listed with objectives moved by the margin.
        """
        ties = known.columns[1 + self._keys : 1 + self._keys + self._ties]
        if self._keys == 2:
            owner, first, second, row = known.stairs()
            starts = np.searchsorted(owner, np.arange(groups + 1, dtype=np.int32))
            steps = self._padded(first, second, *(c[row] for c in ties))
            rows = {"steps": steps, "starts": starts.astype(np.int32)}
        else:
            pushed = (known.pushed(i) for i in range(self._keys))
            listed = self._padded(known.columns[0], *pushed, *ties)
            rows = {"rows": listed, "count": np.asarray(len(known), np.int32)}
        fresh = tuple(np.zeros(self.new_rows + 2 * lanes, c.dtype) for c in known.columns)
        none = {"count": np.asarray(0, np.int32), "overflow": np.asarray(False)}
        return {"known": rows, "fresh": fresh, **none}

    def _padded(self, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
        """Columns of the program's capacity, which end in values that beat nothing."""
        padded: list[np.ndarray] = []
        for x in columns:
            last = np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max
            padded.append(np.append(x, np.full(self.capacity - len(x), last, x.dtype)))
        return tuple(padded)

    def absorb(self, state: State, chunk: Chunk) -> State:
        """The state with a chunk's feasible lanes that no known row beats."""
        keys = [chunk.key(term) for term in self.objectives]
        alive = chunk.feasible
        for k in keys:
            alive &= jnp.isfinite(k)
        if self.epsilon:
            alive &= jnp.all(jnp.stack([k != 0 for k in keys]), axis=0)
            keys = [self.box(k) for k in keys] + keys
        beaten = self._beaten_by_steps if self._keys == 2 else self._beaten_by_rows
        alive &= ~beaten(state["known"], (chunk.group, *keys))
        return self._append(state, (chunk.group, *keys, *chunk.words), alive)

    def _append(self, state: State, rows: Rows, alive: Mask) -> State:
        """The state with the rows that are alive, or marked as overflown if they do not fit."""
        lanes = alive.shape[0]
        numbers = jnp.arange(lanes, dtype=jnp.int32)
        count = jnp.sum(alive, dtype=jnp.int32)
        fits = state["fresh"][0].shape[0] - 2 * lanes  # at least one chunk always does
        full = state["count"] + count > fits + lanes

        def append(carry: tuple[Rows, Array, Array]) -> tuple[Rows, Array, Array]:
            fresh, size, _ = carry
            # positions by sorting, which compiles to one kernel where counting takes ten
            picks = jnp.minimum(jnp.sort(jnp.where(alive, numbers, lanes)), lanes - 1)
            moved = (lax.dynamic_update_slice(f, r[picks], (size,))
                     for f, r in zip(fresh, rows, strict=True))  # fmt: skip
            return tuple(moved), size + count, jnp.asarray(False)

        # a loop of one turn or none: a branch would copy the rows
        begin = (state["fresh"], state["count"], (count > 0) & ~full)
        fresh, size, _ = lax.while_loop(lambda carry: carry[2], append, begin)
        return {**state, "fresh": fresh, "count": size, "overflow": state["overflow"] | full}

    # known rows came earlier in the grid, so that they win over equal ones

    def _beaten_by_steps(self, known: State, rows: Rows) -> Mask:
        """Two objectives: beaten by the step at or before it."""
        (first, second, *ties), starts = known["steps"], known["starts"]
        group, x, y, *own_ties = rows
        begin = starts[group]

        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) // 2
            right = (low < high) & (first[middle] <= x)
            return jnp.where(right, middle + 1, low), jnp.where(right, high, middle)

        low, _ = fori_loop(0, self.capacity.bit_length(), halve, (begin, starts[group + 1]))
        at = jnp.maximum(low - 1, 0)
        beaten = (low > begin) & (second[at] <= y)
        if self.epsilon:  # the best row of a box may be the later one
            same = (first[at] == x) & (second[at] == y)
            beaten &= ~(same & before(own_ties, [t[at] for t in ties]))
        return beaten

    def _beaten_by_rows(self, known: State, rows: Rows) -> Mask:
        """More objectives: beaten by any of the rows, block by block."""
        size = min(BLOCK, self.capacity)
        keys, ties = slice(1, 1 + self._keys), slice(1 + self._keys, None)

        def block(i: Array, beaten: Array) -> Array:
            start = jnp.minimum(i * size, self.capacity - size)
            some = [lax.dynamic_slice(h, (start,), (size,))[:, None] for h in known["rows"]]
            hit = some[0] == rows[0]
            for x, y in zip(some[keys], rows[keys], strict=True):
                hit &= x <= y
            if self.epsilon:
                same = jnp.asarray(True)
                for x, y in zip(some[keys], rows[keys], strict=True):
                    same &= x == y
                hit &= ~(same & before([r[None, :] for r in rows[ties]], some[ties]))
            return beaten | jnp.any(hit, axis=0)

        blocks = (known["count"] + size - 1) // size
        return fori_loop(0, blocks, block, jnp.zeros(rows[0].shape, bool))

    def box(self, x: Numbers, xp: ModuleType = jnp) -> Numbers:
        """The number of the box of relative size epsilon that holds x; ``xp``: x's module."""
        size = xp.floor(xp.log(xp.abs(x)) / math.log1p(self.epsilon))
        return xp.where(x < 0, -size, size)

    def _pushed(self, at: int, x: np.ndarray) -> np.ndarray:
        """The values of an objective at which rows are beaten: worse by the margin."""
        pushed = x + x.dtype.type(self.margin) * np.abs(x)
        if parse(self.objectives[at])[0] not in self.whole:
            return pushed
        return np.where((np.floor(x) == x) & (np.abs(x) < WHOLE), x, pushed)
