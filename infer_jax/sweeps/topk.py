"""The k best points by one objective, overall or for each position of some axes."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from infer_jax.errors import InputError
from infer_jax.sweeps.digits import before, to_index
from infer_jax.sweeps.reducers import (
    Chunk,
    Mask,
    Rows,
    Selection,
    State,
    fill_index,
    insert_survivors,
    key,
)


@dataclasses.dataclass(frozen=True)
class TopK(Selection):
    """The ``k`` feasible points with the best ``by``, for each position of ``per`` if given.

    Ties: the lowest index. In float32 some more are kept, ranked again in float64 and cut.
    """

    k: int
    by: str
    per: str | tuple[str, ...] = ()
    spare: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.per, str):
            object.__setattr__(self, "per", (self.per,))
        if not 1 <= self.k <= 2**16:
            raise InputError("TopK", "k", self.k, "a whole number from 1 to 65536")

    @property
    def terms(self) -> tuple[str, ...]:
        """The objective."""
        return (self.by,)

    def in_float32(self, counts: frozenset[str]) -> "TopK":
        """The same reducer with spare rows, which float64 ranks again."""
        return dataclasses.replace(self, spare=max(self.k, 16))

    def init(self, limbs: int, groups: int, dtype: DTypeLike) -> State:
        """The state without rows."""
        shape = (groups * (self.k + self.spare),)
        return (np.full(shape, np.inf, dtype), *fill_index(limbs, shape))

    def absorb(self, state: State, chunk: Chunk) -> State:
        """The best of the rows and of the chunk's feasible lanes."""
        rows = (chunk.group, key(chunk, self.by), *chunk.limbs)
        return rank_in(state, rows, chunk.ok & jnp.isfinite(rows[1]), self.k + self.spare)

    def merge(self, a: State, b: State) -> State:
        """The best of both."""
        return merge_ranked(a, b, self.k + self.spare)

    def rows(self, state: State) -> list[int]:
        """The indices kept, best first, position by position."""
        return ranked_rows(state)


def rank_in(state: Rows, rows: Rows, alive: Mask, k: int) -> Rows:
    """State (key, *limbs) of k rows a group, with the lanes (group, key, *limbs) ranked in."""
    groups = state[0].shape[0] // k
    owner = jnp.repeat(jnp.arange(groups, dtype=jnp.int32), k)

    def keep(state: Rows, rows: Rows) -> Array:
        worst = rows[0] * k + (k - 1)
        return before(rows[1:], tuple(s[worst] for s in state))

    def insert(state: Rows, rows: Rows, alive: Array) -> Rows:
        group = jnp.where(alive, rows[0], groups)
        columns = [jnp.concatenate([owner, group])]
        columns += [jnp.concatenate(pair) for pair in zip(state, rows[1:], strict=True)]
        columns = lax.sort(columns, num_keys=len(columns), is_stable=False)
        start = jnp.searchsorted(columns[0], jnp.arange(groups + 1, dtype=jnp.int32))
        rank = jnp.arange(columns[0].shape[0]) - start[columns[0]]
        to = jnp.where((rank < k) & (columns[0] < groups), columns[0] * k + rank, groups * k)
        return tuple(s.at[to].set(c, mode="drop") for s, c in zip(state, columns[1:], strict=True))

    return insert_survivors(state, rows, alive, keep, insert)


def merge_ranked(a: Rows, b: Rows, k: int) -> Rows:
    """Two states of k rows a group as one."""
    owner = jnp.repeat(jnp.arange(a[0].shape[0] // k, dtype=jnp.int32), k)
    return rank_in(a, (owner, *b), jnp.isfinite(b[0]), k)


def ranked_rows(state: Rows) -> list[int]:
    """The indices of a ranked state in its order."""
    key_, *limbs = (np.asarray(s) for s in state)
    return [to_index([x[i] for x in limbs]) for i in np.flatnonzero(np.isfinite(key_))]
