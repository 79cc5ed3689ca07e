"""Keeps all points of a small grid: the wanted terms in the order of the index."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from infer_jax.errors import InputError
from infer_jax.sweeps.reducers import Chunk, Selection, State, parse

LARGEST = 2**22  # points


@dataclasses.dataclass(frozen=True)
class Everything(Selection):
    """The named terms and feasibility of all points, for grids of at most 4 million."""

    names: tuple[str, ...]
    size: int = 0
    per: str | tuple[str, ...] = ()

    def __init__(self, *names: str, size: int = 0):
        if not names:
            raise InputError("Everything", "terms", "none", "one name or more")
        object.__setattr__(self, "names", tuple(parse(n)[0] for n in names))
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "per", ())

    @property
    def terms(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    def sized(self, size: int) -> "Everything":
        """For a grid of this many points.

        Raises:
            InputError: a grid that is too large to be held.
        """
        if size > LARGEST:
            raise InputError("Everything", "points", size, f"at most {LARGEST}; Pareto or TopK")
        return Everything(*self.names, size=size)

    def init(self, limbs: int, groups: int, dtype: DTypeLike) -> State:
        """The state of no points."""
        return {
            "ok": np.zeros(self.size, bool),
            "values": {name: np.full(self.size, np.nan, dtype) for name in self.names},
        }

    def absorb(self, state: State, chunk: Chunk) -> State:
        """The state with a chunk's accepted lanes written to their places."""
        place = chunk.limbs[-1].astype(jnp.int32)
        at = jnp.where(chunk.accepted, place, self.size)
        values = {
            name: old.at[at].set(chunk.values[name].astype(old.dtype), mode="drop")
            for name, old in state["values"].items()
        }
        return {"ok": state["ok"].at[at].set(chunk.ok, mode="drop"), "values": values}

    def merge(self, a: State, b: State) -> State:
        """Each point from the state that has it."""
        pick = {n: jnp.where(jnp.isnan(x), b["values"][n], x) for n, x in a["values"].items()}
        return {"ok": a["ok"] | b["ok"], "values": pick}

    def rows(self, state: State) -> list[int]:
        """The feasible indices, in order."""
        return np.flatnonzero(np.asarray(state["ok"])).tolist()
