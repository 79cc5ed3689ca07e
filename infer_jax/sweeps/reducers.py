"""Reducers: what a sweep keeps of its grid. Each is a monoid: init, absorb a chunk, merge.

A reducer is a frozen description; its state is a dictionary of arrays of fixed shape. What it
keeps is the set of maximal rows of a strict partial order, so the answer depends on the set of
points alone: not on chunks, devices, processes, order or restarts. Of equal rows the one with
the lowest index wins. ``Pareto`` is in ``pareto.py``.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Int, UInt32

from infer_jax.errors import InputError
from infer_jax.sweeps.digits import before, to_index
from infer_jax.sweeps.paths import Point
from infer_jax.typed_jax import cond

BATCH = 1024  # survivors of a chunk that are inserted together
MAX_WORD = 0xFFFFFFFF
MAX_POINTS = 2**22  # of a grid that is kept whole
Answer = dict[str, Any]  # plain data, of numbers, texts, lists and dictionaries
State = dict[str, Any]  # pytrees of arrays of fixed shape, which the reducer alone knows
Rows = tuple[Array, ...]  # columns of one length, most significant first
Lanes = Float[Array, " lanes"]
Mask = Bool[Array, " lanes"]
Per = str | tuple[str, ...]


class Chunk(NamedTuple):
    """Points side by side: their terms, which of them are feasible, and their grid indices.

    On the device they are the lanes of one step, and on the host, as NumPy arrays, those that
    float64 decides.
    """

    values: dict[str, Lanes]
    accepted: Mask  # a point of the grid that satisfies the constraints
    feasible: Mask  # accepted, and within the estimate's own limits
    shortfall: Lanes  # relative excess over those limits: memory, stages
    words: tuple[UInt32[Array, " lanes"], ...]  # of the global index, most significant first
    group: Int[Array, " lanes"]  # position on the axes that `per` names
    signs: dict[str, float]  # by term: -1 where more of it is better

    def key(self, term: str) -> Lanes:
        """A term as a number to minimise."""
        name, sign = parse(term)
        # + 0 turns -0 into 0, since sorting distinguishes them
        return self.values[name] * (self.signs[name] if sign is None else sign) + 0.0


def parse(term: str) -> tuple[str, float | None]:
    """("max chips") -> ("chips", -1.0); the sign is None where none is given."""
    word, _, rest = term.partition(" ")
    if rest and word in ("max", "min"):
        return rest, -1.0 if word == "max" else 1.0
    return term, None


class Reducer(ABC):
    """What is kept of the points of a grid, separately for each position of the axes ``per``."""

    per: Per

    @property
    @abstractmethod
    def terms(self) -> tuple[str, ...]:
        """Names of the terms it reads, objectives first; a leading max or min is allowed."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Axes for whose positions answers are kept separately."""
        return (self.per,) if isinstance(self.per, str) else tuple(self.per)

    def sized(self, size: int) -> "Reducer":
        """The reducer for a grid of this many points.

        Raises:
            InputError: a grid that is too large for it.
        """
        return self

    def in_float32(self, counts: frozenset[str]) -> "Reducer":
        """The same with rows to spare for float64 to decide; whole ``counts`` are exact."""
        return self

    @abstractmethod
    def absorb(self, state: State, chunk: Chunk) -> State:
        """The state with a chunk's lanes."""


class Monoid(Reducer):
    """A reducer whose states have one size, and can be merged in any order."""

    @abstractmethod
    def init(self, words: int, groups: int, dtype: DTypeLike) -> State:
        """The state of no points; an index has so many words of 32 bits."""

    @abstractmethod
    def merge(self, a: State, b: State) -> State:
        """The state of the points of both."""

    def rows(self, state: State) -> list[int]:
        """The indices of the points kept, in order, which are evaluated again in float64."""
        return []


class Ranking(Monoid):
    """Keeps the points with the least of a key; the first ranking that has any is the answer.

    A ranking is a state (key, *words of the index) of so many rows for each position of ``per``;
    rows without a point have an infinite key.
    """

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Rows of each ranking, the answer first."""

    @abstractmethod
    def keys(self, chunk: Chunk, xp: Any = jnp) -> dict[str, tuple[Lanes, Mask]]:
        """What each ranking minimises, and which lanes take part; ``xp``: module of the arrays."""

    def init(self, words: int, groups: int, dtype: DTypeLike) -> State:
        """Rankings without points."""
        return {
            name: (np.full(groups * k, np.inf, dtype),
                   *(np.full(groups * k, MAX_WORD, np.uint32) for _ in range(words)))
            for name, k in self.sizes.items()
        }  # fmt: skip

    def absorb(self, state: State, chunk: Chunk) -> State:
        """The rankings with a chunk's lanes."""
        return {
            name: rank(state[name], (chunk.group, by, *chunk.words), alive, self.sizes[name])
            for name, (by, alive) in self.keys(chunk).items()
        }

    def merge(self, a: State, b: State) -> State:
        """The first rows of both."""
        merged: State = {}
        for name, k in self.sizes.items():
            owner = jnp.repeat(jnp.arange(a[name][0].shape[0] // k, dtype=jnp.int32), k)
            merged[name] = rank(a[name], (owner, *b[name]), jnp.isfinite(b[name][0]), k)
        return merged

    def rows(self, state: State) -> list[int]:
        """The indices of the first ranking that has points, position by position."""
        for name in self.sizes:
            keys, *words = (np.asarray(s) for s in state[name])
            if index := [
                to_index([x[i] for x in words]) for i in np.flatnonzero(np.isfinite(keys))
            ]:
                return index
        return []


def rank(state: Rows, rows: Rows, alive: Mask, k: int) -> Rows:
    """The ranking with the lanes (group, key, *index) that are alive.

    After a few chunks the rows in the state rule out nearly every lane, so that few reach the
    sort. They are inserted a batch at a time, of which each may rule out more.
    """
    groups, lanes = state[0].shape[0] // k, alive.shape[0]
    owner = jnp.repeat(jnp.arange(groups, dtype=jnp.int32), k)
    batch, numbers = min(BATCH, lanes), jnp.arange(lanes, dtype=jnp.int32)

    def insert(state: Rows, rows: Rows, alive: Array) -> Rows:
        group = jnp.where(alive, rows[0], groups)
        columns = [jnp.concatenate([owner, group])]
        columns += [jnp.concatenate(pair) for pair in zip(state, rows[1:], strict=True)]
        columns = lax.sort(columns, num_keys=len(columns), is_stable=False)
        start = jnp.searchsorted(columns[0], jnp.arange(groups + 1, dtype=jnp.int32))
        place = jnp.arange(columns[0].shape[0]) - start[columns[0]]
        to = jnp.where((place < k) & (columns[0] < groups), columns[0] * k + place, groups * k)
        return tuple(s.at[to].set(c, mode="drop") for s, c in zip(state, columns[1:], strict=True))

    def insert_batch(state: Rows, alive: Mask) -> tuple[Rows, Mask]:
        # positions by sorting, which compiles to one kernel where counting takes ten
        picks = jnp.sort(jnp.where(alive, numbers, lanes))[:batch]
        chosen = tuple(r.at[picks].get(mode="clip") for r in rows)
        state = insert(state, chosen, picks < lanes)
        return state, alive.at[picks].set(False, mode="drop")

    def step(carry: tuple[Rows, Mask]) -> tuple[Rows, Mask]:
        state, alive = carry
        last = rows[0] * k + (k - 1)
        alive &= before(rows[1:], tuple(s[last] for s in state))
        return cond(jnp.any(alive), insert_batch, lambda *same: same, state, alive)

    return lax.while_loop(lambda carry: jnp.any(carry[1]), step, (state, alive))[0]


@dataclasses.dataclass(frozen=True)
class TopK(Ranking):
    """The ``k`` feasible points with the best ``by``, for each position of ``per`` if given.

    Ties: the lowest index. In float32 some more are kept, ranked again in float64 and cut.
    """

    k: int
    by: str
    per: Per = ()
    spare: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "per", self.axes)
        if not 1 <= self.k <= 2**16:
            raise InputError("TopK", "k", self.k, "a whole number from 1 to 65536")

    @property
    def terms(self) -> tuple[str, ...]:
        """The objective."""
        return (self.by,)

    @property
    def sizes(self) -> dict[str, int]:
        """One ranking, of ``k`` rows and those to spare."""
        return {"met": self.k + self.spare}

    def in_float32(self, counts: frozenset[str]) -> "TopK":
        """The same reducer with spare rows, which float64 ranks again."""
        return dataclasses.replace(self, spare=max(self.k, 16))

    def keys(self, chunk: Chunk, xp: Any = jnp) -> dict[str, tuple[Lanes, Mask]]:
        """The objective of the feasible points."""
        value = chunk.key(self.by)
        return {"met": (value, chunk.feasible & xp.isfinite(value))}


@dataclasses.dataclass(frozen=True)
class Best(Ranking):
    """The feasible point with the best ``by`` under limits such as ``{"ttft": 0.3}``.

    For a term of which more is better (a rate), the limit is a minimum; of an input, such as
    ``hardware.chip.flops_16``, it is a maximum. If no point meets all
    limits, the answer is ``misses`` points with the smallest excess, the largest relative one of
    each.
    """

    by: str
    under: Mapping[str, float] | tuple[tuple[str, float], ...] = ()
    misses: int = 5
    k: int = 1
    per: Per = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "per", self.axes)
        object.__setattr__(self, "under", self.limits)
        for name, limit in self.limits:
            if not _is_limit(limit):
                raise InputError("Best", f"under.{name}", limit, "a number above 0")

    @property
    def terms(self) -> tuple[str, ...]:
        """The objective and the limited terms."""
        return (self.by, *(name for name, _ in self.limits))

    @property
    def limits(self) -> tuple[tuple[str, float], ...]:
        """Each limited term with its limit, in the order of their names."""
        return tuple(sorted(dict(self.under).items()))

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of the two rankings: of points within the limits, and of near misses."""
        return {"met": self.k, **({"missed": self.misses} if self.misses else {})}

    def in_float32(self, counts: frozenset[str]) -> "Best":
        """The same reducer with spare rows, which float64 ranks again."""
        return dataclasses.replace(self, k=max(16, 2 * self.k), misses=max(16, 2 * self.misses))

    def keys(self, chunk: Chunk, xp: Any = jnp) -> dict[str, tuple[Lanes, Mask]]:
        """The objective of points within the limits, and the excess of those that are not."""
        value, excess, meets = chunk.key(self.by), chunk.shortfall, chunk.feasible
        for name, limit in self.limits:
            term, larger = chunk.values[name], is_least(name, chunk.signs)
            excess = xp.maximum(excess, (limit / term if larger else term / limit) - 1.0)
            # the ratio may round to 1 although the limit is broken
            meets = meets & ((term >= limit) if larger else (term <= limit))
        meets = meets & (excess <= 0)
        near = xp.maximum(excess, 0.0), chunk.accepted & ~meets & xp.isfinite(excess)
        keys = {"met": (value, meets & xp.isfinite(value)), "missed": near}
        return {name: keys[name] for name in self.sizes}


def is_least(name: str, signs: Mapping[str, float]) -> bool:
    """Whether a limit is the least allowed: that of a term of which more is better."""
    return signs[name] < 0 and name.partition(".")[0] not in Point._fields


def _is_limit(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < float("inf")


@dataclasses.dataclass(frozen=True)
class Everything(Monoid):
    """The named terms and feasibility of all points, for grids of at most 4 million."""

    names: tuple[str, ...]
    size: int = 0
    per: Per = ()

    def __init__(self, *names: str, size: int = 0):
        if not names:
            raise InputError("Everything", "terms", "none", "one name or more")
        object.__setattr__(self, "names", tuple(parse(name)[0] for name in names))
        object.__setattr__(self, "size", size)

    @property
    def terms(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    def sized(self, size: int) -> "Everything":
        """For a grid of this many points, at most those that memory is set aside for."""
        if size > MAX_POINTS:
            raise InputError("Everything", "points", size, f"at most {MAX_POINTS}; Pareto or TopK")
        return Everything(*self.names, size=size)

    def init(self, words: int, groups: int, dtype: DTypeLike) -> State:
        """No point is feasible, and every term is NaN."""
        values = {name: np.full(self.size, np.nan, dtype) for name in self.names}
        return {"ok": np.zeros(self.size, bool), "values": values}

    def absorb(self, state: State, chunk: Chunk) -> State:
        """The state with a chunk's accepted lanes written at their indices."""
        at = jnp.where(chunk.accepted, chunk.words[-1].astype(jnp.int32), self.size)
        values = {
            name: old.at[at].set(chunk.values[name].astype(old.dtype), mode="drop")
            for name, old in state["values"].items()
        }
        return {"ok": state["ok"].at[at].set(chunk.feasible, mode="drop"), "values": values}

    def merge(self, a: State, b: State) -> State:
        """Each point from the state that has it."""
        pick = {n: jnp.where(jnp.isnan(x), b["values"][n], x) for n, x in a["values"].items()}
        return {"ok": a["ok"] | b["ok"], "values": pick}

    def rows(self, state: State) -> list[int]:
        """The feasible indices, in order."""
        return np.flatnonzero(np.asarray(state["ok"])).tolist()
