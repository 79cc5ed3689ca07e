"""The exact Pareto frontier: points that no other point beats.

A beats B where it is at least as good in every objective and better in one, or equal in all
with a lower index. With a ``margin`` (float32 sweeps) A beats B only if it is better by that
share in all, so that points which rounding may have ruled out are kept for float64; whole counts
are exact, and need to be only as good. With ``epsilon`` points are compared
box by box of that relative size, and a box keeps its best point. All three are strict partial
orders, so the maximal points of a union come from the maximal points of its parts.

A device knows the frontier as it was when its segment began; it drops the lanes that this beats and
hands the others to the host, which merges them (``front.py``). So every lane costs the same, and a
segment ends early where more lanes are left than fit.
"""

import dataclasses
import math
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from infer_jax.errors import InputError
from infer_jax.sweeps.digits import Numbers, before
from infer_jax.sweeps.front import Front
from infer_jax.sweeps.reducers import Chunk, Mask, Per, Reducer, Rows, State, parse
from infer_jax.typed_jax import fori_loop

BLOCK = 128  # known rows compared with the lanes at a time
START = 2048  # capacity for known rows of the first program
GROWTH = 32  # the next program has this many times the capacity
# For two objectives, and for more: rows that one device hands over at once, and most rows of a
# frontier. For every lane a frontier of two objectives is searched by bisection, of more row by
# row.
NEW_ROWS = (2**16, 2**13)
MAX_ROWS = (2**20, 2**16)
MARGIN = 4e-5  # twice the relative error that the contract tests allow a float32 time
WHOLE = 2**24  # counts below it are exact in float32


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

        def last(x: np.ndarray) -> float:
            return np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max

        ends = [(0, self.capacity - len(x)) for x in columns]
        pairs = zip(columns, ends, strict=True)
        return tuple(np.pad(x, end, constant_values=last(x)) for x, end in pairs)

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
