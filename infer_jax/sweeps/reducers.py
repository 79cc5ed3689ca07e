"""What a sweep keeps of its grid: reducers, which are monoids (init, absorb a chunk, merge).

A reducer is a frozen description; its state is a pytree of arrays of fixed shape. What it
keeps is the set of maximal rows of a strict partial order, so the answer depends on the set of
points alone: not on chunks, devices, processes, order or restarts. Of equal rows the one with
the lowest index wins.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Int, UInt32

from infer_jax.typed_jax import cond, fori_loop

BATCH = 1024  # survivors of a chunk that are inserted together
LAST = 0xFFFFFFFF
Answer = dict[str, Any]  # plain data, of numbers, texts, lists and dictionaries
State = Any  # a pytree of arrays of fixed shape, which its reducer alone knows
Rows = tuple[Array, ...]  # columns of one length, most significant first
Terms = dict[str, Float[Array, " lanes"]]
Mask = Bool[Array, " lanes"]


class Chunk(NamedTuple):
    """Lanes of one step: their terms, which of them are feasible, and their grid indices."""

    values: Terms
    accepted: Mask  # a point of the grid that keeps the constraints
    ok: Mask  # accepted and feasible
    short: Float[Array, " lanes"]  # relative excess over the estimate's own limits: memory, stages
    limbs: tuple[UInt32[Array, " lanes"], ...]  # of the global index, most significant first
    group: Int[Array, " lanes"]  # position on the axes that `per` names
    signs: dict[str, float]  # by term: -1 where more of it is better


class Reducer(ABC):
    """What is kept of the points of a grid, separately for each position of the axes ``per``."""

    per: str | tuple[str, ...]

    @property
    @abstractmethod
    def terms(self) -> tuple[str, ...]:
        """Names of the terms it reads, objectives first; a leading max or min is allowed."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Axes for whose positions answers are kept separately."""
        return (self.per,) if isinstance(self.per, str) else self.per

    def sized(self, size: int) -> "Reducer":
        """The reducer for a grid of this many points.

        Raises:
            InputError: a grid that is too large for it.
        """
        return self

    def in_float32(self, counts: frozenset[str]) -> "Reducer":
        """The same with rows to spare for float64 to decide; ``counts`` are exact if whole."""
        return self

    @abstractmethod
    def absorb(self, state: State, chunk: Chunk) -> State:
        """The state with a chunk's lanes."""


class Monoid(Reducer):
    """A reducer whose states have one size, and can be merged in any order."""

    @abstractmethod
    def init(self, limbs: int, groups: int, dtype: DTypeLike) -> State:
        """The state of no points."""

    @abstractmethod
    def merge(self, a: State, b: State) -> State:
        """The state of the points of both."""


class Selection(Monoid):
    """Keeps points, which are evaluated again in float64."""

    @abstractmethod
    def rows(self, state: State) -> list[int]:
        """The indices kept, in order."""


class Summary(Monoid):
    """Keeps no points: its state is the answer."""

    @abstractmethod
    def answer(self, state: State) -> Answer:
        """The answer as plain data."""


def parse(term: str) -> tuple[str, float | None]:
    """("max chips") -> ("chips", -1.0); the sign is None where none is given."""
    word, _, rest = term.partition(" ")
    if rest and word in ("max", "min"):
        return rest, -1.0 if word == "max" else 1.0
    return term, None


def key(chunk: Chunk, term: str) -> Float[Array, " lanes"]:
    """A term as a number to minimise."""
    name, sign = parse(term)
    value = chunk.values[name]
    # + 0 turns -0 into 0, since sorting distinguishes them
    return value * (chunk.signs[name] if sign is None else sign) + 0.0


def insert_survivors(
    state: Rows,
    rows: Rows,
    alive: Mask,
    keep: Callable[[Rows, Rows], Mask],
    insert: Callable[[Rows, Rows, Array], Rows],
) -> Rows:
    """Insert the rows that pass ``keep``, a batch at a time.

    After a few chunks the rows in the state rule out nearly every lane, so that few reach the
    costly insertion. Each inserted batch may rule out more.
    """
    lanes = alive.shape[0]
    batch = min(BATCH, lanes)
    numbers = jnp.arange(lanes, dtype=jnp.int32)

    def some(state: Rows, alive: Mask) -> tuple[Rows, Mask]:
        # positions by sorting, which compiles to one kernel where counting takes ten
        picks = jnp.sort(jnp.where(alive, numbers, lanes))[:batch]
        chosen = tuple(r.at[picks].get(mode="clip") for r in rows)
        state = insert(state, chosen, picks < lanes)
        return state, alive.at[picks].set(False, mode="drop")

    def same(state: Rows, alive: Mask) -> tuple[Rows, Mask]:
        return state, alive

    def step(carry: tuple[Rows, Mask]) -> tuple[Rows, Mask]:
        state, alive = carry
        alive &= keep(state, rows)
        return cond(jnp.any(alive), some, same, state, alive)

    return lax.while_loop(lambda carry: jnp.any(carry[1]), step, (state, alive))[0]


def fill_index(limbs: int, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Limbs beyond every index, for rows without a point."""
    return tuple(np.full(shape, LAST, np.uint32) for _ in range(limbs))


def fold(reducer: Monoid, states: State, count: int) -> State:
    """One state out of ``count`` stacked ones."""

    def merged(i: Array, state: State) -> State:
        return reducer.merge(state, jax.tree.map(itemgetter(i), states))

    return fori_loop(1, count, merged, jax.tree.map(itemgetter(0), states))
