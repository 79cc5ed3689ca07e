"""The exact Pareto frontier: points that no other point beats.

A beats B where it is at least as good in every objective and better in one, or equal in all
with a lower index. With a ``margin`` (float32 sweeps) A beats B only if it is better by that
share in all, so that points which rounding may have ruled out are kept for float64; whole counts
are exact, and need to be only as good. With ``epsilon`` points are compared
box by box of that relative size, and a box keeps its best point. All three are strict partial
orders, so the maximal points of a union come from the maximal points of its parts.

A device knows the frontier as it was when its segment began; it drops the lanes that this beats and
hands the others to the host, which merges them (``front.py``). So every lane costs the same, and a
segment ends early where more lanes are left than there is room for.
"""

import copy
import dataclasses
import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from infer_jax.errors import InputError
from infer_jax.sweeps.digits import before
from infer_jax.sweeps.front import Front
from infer_jax.sweeps.reducers import Chunk, Mask, Reducer, Rows, State, key, parse
from infer_jax.typed_jax import fori_loop

BLOCK = 128  # known rows compared with the lanes at a time
START = 2048  # room for known rows in the first program
GROWTH = 32  # the next program has room for this many times as many
# For two objectives, and for more: rows that one device hands over at once, and most rows of a
# frontier. For every lane a frontier of two objectives is searched by bisection, of more row by
# row.
FRESH = (2**16, 2**13)
MOST = (2**20, 2**16)
MARGIN = 4e-5  # twice the relative error that the contract tests allow a float32 time
WHOLE = 2**24  # counts below it are exact in float32


@dataclasses.dataclass(frozen=True)
class Pareto(Reducer):
    """The frontier of two or more objectives: ``Pareto("speed", "cost")``.

    Rates and fractions are maximised, all else minimised; ``"max chips"`` overrides this. ``per``
    gives each position of these axes a frontier of its own; ``epsilon`` keeps one point of each
    box of that relative size, so that every point is within that share of a kept one.
    """

    objectives: tuple[str, ...]
    per: str | tuple[str, ...] = ()
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
            "capacity": capacity or START,
            "margin": margin,
            "whole": whole,
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)

    @property
    def terms(self) -> tuple[str, ...]:
        """The objectives."""
        return self.objectives

    def in_float32(self, counts: frozenset[str]) -> "Pareto":
        """The same reducer with a margin, so that float64 decides close cases."""
        return self if self.epsilon else self.changed(margin=MARGIN, whole=counts)

    def changed(self, **changes: object) -> "Pareto":
        """The same reducer with some fields changed."""
        other = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(other, name, value)
        return other

    def fitting(self, count: int) -> "Pareto":
        """The same with room for ``count`` known rows, in few sizes since each is compiled."""
        capacity = self.capacity
        while capacity < count:
            capacity *= GROWTH
        return self if capacity == self.capacity else self.changed(capacity=capacity)

    @property
    def most(self) -> int:
        """The most rows: a larger frontier is refused."""
        return MOST[len(self.objectives) > 2]

    @property
    def room(self) -> int:
        """The least room for rows that one device hands over at once."""
        return FRESH[len(self.objectives) > 2]

    @property
    def _keys(self) -> int:
        return len(self.objectives)

    def empty(self, limbs: int, dtype: DTypeLike) -> Front:
        """A frontier without rows."""
        ties = self._keys if self.epsilon else 0
        columns = (np.zeros(0, np.int32), *(np.zeros(0, dtype) for _ in range(self._keys + ties)))
        index = tuple(np.zeros(0, np.uint32) for _ in range(limbs))
        return Front((*columns, *index), self._keys, limbs, self._pushed if self.margin else None)

    def state(self, known: Front, groups: int, lanes: int) -> State:
        """The state of a device at the start of a segment: known rows, and room for new ones."""
        fresh = tuple(np.zeros(self.room + 2 * lanes, c.dtype) for c in known.columns)
        rows = self._steps(known, groups) if self._keys == 2 else self._listed(known)
        none = {"count": np.asarray(0, np.int32), "overflow": np.asarray(False)}
        return {"known": rows, "fresh": fresh, **none}

    def _padded(self, x: np.ndarray) -> np.ndarray:
        worst = np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max
        return np.pad(x, (0, self.capacity - len(x)), constant_values=worst)

    def _steps(self, known: Front, groups: int) -> State:
        """For two objectives: the steps of the frontier, and where those of each position begin."""
        owner, first, second, row = known.stairs()
        ties = [known.columns[3 + i][row] for i in range(self._keys if self.epsilon else 0)]
        starts = np.searchsorted(owner, np.arange(groups + 1, dtype=np.int32))
        steps = [self._padded(x) for x in (first, second, *ties)]
        return {"steps": tuple(steps), "starts": starts.astype(np.int32)}

    def _listed(self, known: Front) -> State:
        """For more objectives: position, objectives moved by the margin, ties."""
        ties = known.columns[1 + self._keys : 1 + 2 * self._keys] if self.epsilon else ()
        columns = (known.columns[0], *(known.pushed(i) for i in range(self._keys)), *ties)
        count = np.asarray(len(known), np.int32)
        return {"rows": tuple(self._padded(x) for x in columns), "count": count}

    def absorb(self, state: State, chunk: Chunk) -> State:
        """The state with a chunk's feasible lanes that no known row beats."""
        keys = [key(chunk, term) for term in self.objectives]
        alive = chunk.ok
        for k in keys:
            alive &= jnp.isfinite(k)
        if self.epsilon:
            alive &= jnp.all(jnp.stack([k != 0 for k in keys]), axis=0)
            keys = [self._box(k) for k in keys] + keys
        alive &= ~(self._below if self._keys == 2 else self._listed_before)(
            state["known"], (chunk.group, *keys)
        )
        return self._appended(state, (chunk.group, *keys, *chunk.limbs), alive)

    def _appended(self, state: State, rows: Rows, alive: Mask) -> State:
        """The state with the rows that are alive, or marked as overflown if they do not fit."""
        lanes = alive.shape[0]
        numbers = jnp.arange(lanes, dtype=jnp.int32)
        count = jnp.sum(alive, dtype=jnp.int32)
        room = state["fresh"][0].shape[0] - 2 * lanes  # at least one chunk always fits
        full = state["count"] + count > room + lanes

        def some(carry: tuple[Rows, Array, Array]) -> tuple[Rows, Array, Array]:
            fresh, held, _ = carry
            # positions by sorting, which compiles to one kernel where counting takes ten
            picks = jnp.minimum(jnp.sort(jnp.where(alive, numbers, lanes)), lanes - 1)
            moved = (lax.dynamic_update_slice(f, r[picks], (held,))
                     for f, r in zip(fresh, rows, strict=True))  # fmt: skip
            return tuple(moved), held + count, jnp.asarray(False)

        # a loop of one turn or none: a branch would copy the rows
        begin = (state["fresh"], state["count"], (count > 0) & ~full)
        fresh, held, _ = lax.while_loop(lambda carry: carry[2], some, begin)
        return {**state, "fresh": fresh, "count": held, "overflow": state["overflow"] | full}

    # known rows came earlier in the grid, so that they win over equal ones

    def _below(self, known: State, rows: Rows) -> Mask:
        """Two objectives: beaten by the step at or before it."""
        (first, second, *ties), starts = known["steps"], known["starts"]
        group, x, y, *mine = rows
        low, high = starts[group], starts[group + 1]
        begin = low

        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) // 2
            right = (low < high) & (first[middle] <= x)
            return jnp.where(right, middle + 1, low), jnp.where(right, high, middle)

        low, _ = fori_loop(0, self.capacity.bit_length(), halve, (low, high))
        at = jnp.maximum(low - 1, 0)
        beaten = (low > begin) & (second[at] <= y)
        if self.epsilon:  # the best row of a box may be the later one
            same = (first[at] == x) & (second[at] == y)
            beaten &= ~(same & before(mine, [t[at] for t in ties]))
        return beaten

    def _listed_before(self, known: State, rows: Rows) -> Mask:
        """More objectives: beaten by any of the rows, block by block."""
        size = min(BLOCK, self.capacity)

        def block(i: Array, beaten: Array) -> Array:
            start = jnp.minimum(i * size, self.capacity - size)
            some = [lax.dynamic_slice(h, (start,), (size,))[:, None] for h in known["rows"]]
            hit = some[0] == rows[0]
            for x, y in zip(some[1 : 1 + self._keys], rows[1:], strict=False):
                hit &= x <= y
            if self.epsilon:
                same = jnp.asarray(True)
                for x, y in zip(some[1 : 1 + self._keys], rows[1:], strict=False):
                    same &= x == y
                ties = slice(1 + self._keys, None)
                hit &= ~(same & before([r[None, :] for r in rows[ties]], some[ties]))
            return beaten | jnp.any(hit, axis=0)

        blocks = (known["count"] + size - 1) // size
        return fori_loop(0, blocks, block, jnp.zeros(rows[0].shape, bool))

    def _box(self, x: Array) -> Array:
        """The number of the box of relative size epsilon that holds x."""
        size = jnp.floor(jnp.log(jnp.abs(x)) / math.log1p(self.epsilon))
        return jnp.where(x < 0, -size, size)

    def _pushed(self, at: int, x: np.ndarray) -> np.ndarray:
        """The values of an objective at which rows are beaten: worse by the margin."""
        pushed = x + x.dtype.type(self.margin) * np.abs(x)
        if parse(self.objectives[at])[0] not in self.whole:
            return pushed
        return np.where((np.floor(x) == x) & (np.abs(x) < WHOLE), x, pushed)
