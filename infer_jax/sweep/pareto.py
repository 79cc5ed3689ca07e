"""Which points does no other point beat in every objective? The exact Pareto frontier.

A beats B where it is at least as good in every objective and better in one, or equal in all
with a lower index. With a ``margin`` (float32 sweeps) A beats B only if it is better by that
share in all, so that what rounding may have put aside is kept for float64; in a count that
is whole, which no rounding touches, as good is enough. With ``epsilon`` points are compared
box by box of that relative size, and a box keeps its best point. All three are strict partial
orders, so the maximal points of a union come from the maximal points of its parts: the state
is exact as long as it holds them all, and says where it does not.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from infer_jax.errors import InputError
from infer_jax.sweep.digits import before, to_index
from infer_jax.sweep.reducers import Chunk, Rows, fill_index, insert_survivors, key, parse

BLOCK = 128  # kept rows compared with the lanes at a time
START = {2: 2048}  # rows to begin with, by objectives
ROWS = 4096
WHOLE = 2**24  # counts below it are exact in float32
Judge = Callable[[list[int]], list[int]]  # which of these points are on the frontier exactly


@dataclasses.dataclass(frozen=True)
class Pareto:
    """The frontier of two or more objectives: ``Pareto("speed", "cost")``.

    Rates and fractions are maximised, all else minimised; ``"max chips"`` says otherwise.
    ``per`` gives each position of these axes a frontier of its own; ``epsilon`` keeps one
    point a box, so that every point is within that share of a kept one.
    """

    objectives: tuple[str, ...]
    per: tuple[str, ...] = ()
    epsilon: float = 0.0
    capacity: int = 0
    margin: float = 0.0
    whole: frozenset[str] = frozenset()

    def __init__(
        self,
        *objectives: str,
        per: str | tuple[str, ...] = (),
        epsilon: float = 0.0,
        capacity: int = 0,
        margin: float = 0.0,
        whole: frozenset[str] = frozenset(),
    ):
        if len(objectives) < 2 or len(set(objectives)) < len(objectives):
            raise InputError("Pareto", "objectives", objectives, "two or more, all different")
        if not (math.isfinite(epsilon) and 0 <= epsilon < 1):
            raise InputError("Pareto", "epsilon", epsilon, "a share from 0 to below 1")
        given = {
            "objectives": tuple(objectives),
            "per": (per,) if isinstance(per, str) else tuple(per),
            "epsilon": float(epsilon),
            "capacity": capacity or START.get(len(objectives), ROWS),
            "margin": margin,
            "whole": whole,
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)

    @property
    def terms(self) -> tuple[str, ...]:
        """The objectives."""
        return self.objectives

    def changed(self, **changes: Any) -> "Pareto":
        """With some fields changed."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | changes
        return Pareto(*fields.pop("objectives"), **fields)

    def grown(self) -> "Pareto":
        """With twice the capacity."""
        return self.changed(capacity=2 * self.capacity)

    @property
    def _keys(self) -> int:
        return len(self.objectives)

    @property
    def _sorted(self) -> bool:
        """Whether rows are a staircase, sorted by the first of two objectives."""
        return self._keys == 2 and not self.per

    def init(self, limbs: int, groups: int, dtype: Any) -> Any:
        """No rows."""
        shape, ties = (self.capacity,), self._keys if self.epsilon else 0
        rows = tuple(np.full(shape, np.inf, dtype) for _ in range(self._keys + ties))
        owner = () if self._sorted else (np.full(shape, groups, np.int32),)
        return {
            "rows": (*owner, *rows, *fill_index(limbs, shape)),
            "count": np.asarray(0, np.int32),
            "overflow": np.asarray(False),
        }

    def grow(self, state: Any, capacity: int) -> Any:
        """The state with room for ``capacity`` rows."""

        def pad(x: Any) -> Any:
            rest = np.full((*x.shape[:-1], capacity - x.shape[-1]), _worst(x.dtype), x.dtype)
            return np.concatenate([x, rest], axis=-1)

        return {**state, "rows": tuple(pad(np.asarray(x)) for x in state["rows"])}

    def absorb(self, state: Any, chunk: Chunk) -> Any:
        """The frontier of the rows and of the chunk's feasible lanes."""
        keys = [key(chunk, term) for term in self.objectives]
        alive = chunk.ok
        for k in keys:
            alive &= jnp.isfinite(k)
        if self.epsilon:
            alive &= jnp.all(jnp.stack([k != 0 for k in keys]), axis=0)
            keys = [self._box(k) for k in keys] + keys
        owner = () if self._sorted else (chunk.group,)
        return self._insert_all(state, (*owner, *keys, *chunk.index), alive)

    def merge(self, a: Any, b: Any) -> Any:
        """The frontier of both."""
        alive = jnp.arange(self.capacity) < b["count"]
        merged = self._insert_all(a, b["rows"], alive)
        return {**merged, "overflow": merged["overflow"] | b["overflow"]}

    def rows(self, state: Any) -> list[int]:
        """The indices kept, by position of ``per`` and then from the best first objective."""
        columns = [np.asarray(x)[: int(state["count"])] for x in state["rows"]]
        index = self._index(columns)
        return list(dict.fromkeys(index[i] for i in np.lexsort(columns[::-1])))

    def thinned(self, states: Any, judge: Judge) -> Any:
        """Stacked states, each with those rows of all of them that ``judge`` keeps.

        None where they do not fit.
        """
        counts = states["count"]
        columns = [np.concatenate([x[i, :n] for i, n in enumerate(counts)]) for x in states["rows"]]
        place = {point: i for i, point in enumerate(self._index(columns))}
        kept = np.array([place[point] for point in judge(sorted(place))], int)
        columns = [x[kept] for x in columns]
        order = np.lexsort(columns[::-1])
        if len(order) > self.capacity:
            return None
        rows = [np.full_like(x, _worst(x.dtype)) for x in states["rows"]]
        for row, column in zip(rows, columns, strict=True):
            row[:, : len(order)] = column[order]
        return {**states, "rows": tuple(rows), "count": np.full_like(counts, len(order))}

    def _index(self, columns: Sequence[np.ndarray]) -> list[int]:
        """The indices of rows by their limbs, the last columns."""
        ties = self._keys if self.epsilon else 0
        limbs = columns[(0 if self._sorted else 1) + self._keys + ties :]
        return [to_index(words) for words in zip(*(x.tolist() for x in limbs), strict=True)]

    def _box(self, x: Array) -> Array:
        """The number of the box of relative size epsilon that holds x."""
        size = jnp.floor(jnp.log(jnp.abs(x)) / math.log1p(self.epsilon))
        return jnp.where(x < 0, -size, size)

    def _pushed(self, at: int, x: Array) -> Array:
        """What a row's objective must be within to be beaten: worse by the margin."""
        if not self.margin:
            return x
        pushed = x + self.margin * jnp.abs(x)
        if parse(self.objectives[at])[0] not in self.whole:
            return pushed
        return jnp.where((jnp.floor(x) == x) & (jnp.abs(x) < WHOLE), x, pushed)

    def _insert_all(self, state: Any, rows: Rows, alive: Array) -> Any:
        if self._sorted:
            return insert_survivors(state, rows, alive, self._above_stair, self._insert_stair)
        return insert_survivors(state, rows, alive, self._unbeaten, self._insert)

    # Two objectives: rows sorted by the first; the least second one so far decides.

    def _stairs(self, columns: Sequence[Array]) -> tuple[Array, Array]:
        """What each step of the staircase beats: all that is at or beyond both."""
        first, second = (self._pushed(i, columns[i]) for i in (0, 1))
        if parse(self.objectives[0])[0] in self.whole:  # 3 is pushed less than 2.9999 is
            first = lax.cummax(first)
        return first, lax.cummin(second)

    def _above_stair(self, state: Any, rows: Rows) -> Array:
        held = state["rows"]
        first, second = self._stairs(held)
        at = jnp.searchsorted(first, rows[0], side="right") - 1
        last = jnp.maximum(at, 0)
        beaten = (at >= 0) & (second[last] <= rows[1])
        # the row it would be beaten by may be its equal with a higher index
        same = (held[0][last] == rows[0]) & (held[1][last] == rows[1])
        later = same & before(rows[2:], [h[last] for h in held[2:]])
        return ~beaten | later

    def _insert_stair(self, state: Any, rows: Rows, alive: Array) -> Any:
        fresh = [jnp.where(alive, r, jnp.inf) for r in rows[:2]] + list(rows[2:])
        columns = [jnp.concatenate(pair) for pair in zip(state["rows"], fresh, strict=True)]
        columns = lax.sort(columns, num_keys=len(columns), is_stable=False)
        first, second = self._stairs(columns)
        reach = jnp.searchsorted(first, columns[0], side="right") if self.margin else None
        at = jnp.arange(columns[0].shape[0])
        at = (at if reach is None else jnp.minimum(reach, at)) - 1
        beaten = (at >= 0) & (second[jnp.maximum(at, 0)] <= columns[1])
        return self._packed(state, columns, ~beaten & jnp.isfinite(columns[0]))

    # Any number of objectives: every row against every lane, in blocks.

    def _beats(self, a: Rows, b: Rows) -> Array:
        keys = slice(1, 1 + self._keys)
        within, better, same = a[0] == b[0], jnp.asarray(False), jnp.asarray(True)
        for i, (x, y) in enumerate(zip(a[keys], b[keys], strict=True)):
            within = within & (self._pushed(i, x) <= y)
            better = better | (x < y)
            same = same & (x == y)
        if not self.margin:
            ties = slice(1 + self._keys, None)
            better = better | (same & before(a[ties], b[ties]))
        return within & better

    def _unbeaten(self, state: Any, rows: Rows) -> Array:
        lanes = tuple(r[None, :] for r in rows)

        def block(i: Array, kept: Array) -> Array:
            start = jnp.minimum(i * BLOCK, self.capacity - size)
            some = tuple(lax.dynamic_slice(h, (start,), (size,))[:, None] for h in state["rows"])
            return kept & ~jnp.any(self._beats(some, lanes), axis=0)

        size = min(BLOCK, self.capacity)
        blocks = (state["count"] + size - 1) // size
        return lax.fori_loop(0, blocks, block, jnp.ones(rows[0].shape, bool))

    def _insert(self, state: Any, rows: Rows, alive: Array) -> Any:
        fresh = (jnp.where(alive, rows[0], jnp.iinfo(jnp.int32).max), *rows[1:])
        beats = self._beats(tuple(r[:, None] for r in fresh), tuple(r[None, :] for r in fresh))
        alive = alive & ~jnp.any(beats & alive[:, None], axis=0)
        held = state["rows"]
        old = self._beats(tuple(r[:, None] for r in fresh), tuple(h[None, :] for h in held))
        stays = ~jnp.any(old & alive[:, None], axis=0) & (
            jnp.arange(self.capacity) < state["count"]
        )
        columns = [jnp.concatenate(pair) for pair in zip(held, fresh, strict=True)]
        return self._packed(state, columns, jnp.concatenate([stays, alive]))

    def _packed(self, state: Any, columns: Sequence[Array], kept: Array) -> Any:
        """The kept rows at the front, in their order."""
        worst = [jnp.where(kept, c, _worst(c.dtype)) for c in columns]
        _, *rows = lax.sort((~kept, *worst), num_keys=1, is_stable=True)
        rows = tuple(r[: self.capacity] for r in rows)
        count = jnp.sum(kept, dtype=jnp.int32)
        full = count > self.capacity
        return {
            "rows": rows,
            "count": jnp.minimum(count, self.capacity),
            "overflow": state["overflow"] | full,
        }


def _worst(dtype: Any) -> Any:
    """What an empty row holds: it comes after every row there is."""
    return dtype.type(np.inf if dtype.kind == "f" else np.iinfo(dtype).max)
