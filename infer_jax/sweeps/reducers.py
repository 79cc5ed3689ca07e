"""What is kept of a grid? Reducers are monoids: init, absorb a chunk of lanes, merge.

A reducer is a frozen description; its state is a pytree of arrays of fixed shape. What it
keeps is the set of maximal rows of a strict partial order, so the answer depends on the set of
points alone: not on chunks, devices, processes, order or restarts. Equal rows are told apart
by their index, and the lowest one wins.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

BATCH = 1024  # survivors of a chunk that are inserted together
LAST = 0xFFFFFFFF


class Chunk(NamedTuple):
    """Lanes of one step: the asked terms, which lanes count, and where they are in the grid."""

    values: dict[str, Array]
    accepted: Array  # a point of the grid that keeps the constraints
    ok: Array  # accepted and feasible
    short: Array  # relative excess over the estimate's own limits: memory, stages
    index: tuple[Array, ...]  # limbs of the global index, most significant first
    group: Array  # position on the axes that `per` names
    signs: dict[str, float]  # by term: -1 where more of it is better


class Reducer(Protocol):
    """What the stream asks of a reducer."""

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the terms it looks at, objectives first; a leading max or min allowed."""
        ...

    @property
    def per(self) -> tuple[str, ...]:
        """Axes whose positions have answers of their own."""
        ...

    def init(self, limbs: int, groups: int, dtype: Any) -> Any:
        """The state of no points."""
        ...

    def absorb(self, state: Any, chunk: Chunk) -> Any:
        """The state with a chunk's lanes."""
        ...

    def merge(self, a: Any, b: Any) -> Any:
        """The state of the points of both."""
        ...


def parse(term: str) -> tuple[str, float | None]:
    """("max chips") -> ("chips", -1.0); the sign is None where none is said."""
    word, _, rest = term.partition(" ")
    if rest and word in ("max", "min"):
        return rest, -1.0 if word == "max" else 1.0
    return term, None


def key(chunk: Chunk, term: str) -> Array:
    """A term as a number to minimise."""
    name, sign = parse(term)
    value = chunk.values[name]
    # + 0 makes -0 a 0, which sorting would tell apart
    return value * (chunk.signs[name] if sign is None else sign) + 0.0


Rows = tuple[Any, ...]  # columns, most significant first


def insert_survivors(
    state: Any,
    rows: Rows,
    alive: Array,
    keep: Callable[[Any, Rows], Array],
    insert: Callable[[Any, Rows, Array], Any],
) -> Any:
    """Insert the rows that ``keep`` does not rule out, a batch at a time.

    After a few chunks nearly every lane is ruled out by what is known, so that the costly
    insertion sees few. Every batch may rule out more.
    """
    lanes = alive.shape[0]
    batch = min(BATCH, lanes)
    numbers = jnp.arange(lanes, dtype=jnp.int32)

    def some(state: Any, alive: Array) -> Any:
        # sorted, not counted: one kernel to compile where counting takes ten
        picks = jnp.sort(jnp.where(alive, numbers, lanes))[:batch]
        chosen = tuple(r.at[picks].get(mode="clip") for r in rows)
        state = insert(state, chosen, picks < lanes)
        return state, alive.at[picks].set(False, mode="drop")

    def step(carry: Any) -> Any:
        state, alive = carry
        alive &= keep(state, rows)
        return lax.cond(jnp.any(alive), some, lambda *same: same, state, alive)

    return lax.while_loop(lambda carry: jnp.any(carry[1]), step, (state, alive))[0]


def fill_index(limbs: int, shape: tuple[int, ...]) -> Rows:
    """Limbs of no point: beyond every index."""
    return tuple(np.full(shape, LAST, np.uint32) for _ in range(limbs))


def fold(reducer: Any, states: Any, count: int) -> Any:
    """One state out of ``count`` stacked ones."""
    first = jax.tree.map(lambda x: x[0], states)
    return lax.fori_loop(
        1, count, lambda i, s: reducer.merge(s, jax.tree.map(lambda x: x[i], states)), first
    )
