"""The distribution of a term over the grid: counts between edges, and quantiles."""

import dataclasses
from abc import abstractmethod

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from infer_jax.errors import InputError
from infer_jax.sweeps.reducers import Answer, Chunk, Monoid, Per, State, parse

MANTISSA = 8  # bits of a float32's fraction that a bin of a quantile resolves: 0.4 %


class BinCounts(Monoid):
    """Counts of feasible points by the bin of one term; NaN is counted nowhere.

    It keeps no points: its state is the answer.
    """

    term: str

    @property
    @abstractmethod
    def bins(self) -> int:
        """The number of bins."""

    @property
    def terms(self) -> tuple[str, ...]:
        """The term counted."""
        return (parse(self.term)[0],)

    @abstractmethod
    def bin_of(self, value: Array) -> Array:
        """The bin of each value."""

    @abstractmethod
    def answer(self, state: State) -> Answer:
        """The answer as plain data."""

    def init(self, words: int, groups: int, dtype: DTypeLike) -> State:
        """Counts of 0, each in a low and a high word."""
        return {word: np.zeros(self.bins, np.uint32) for word in ("low", "high")}

    def absorb(self, state: State, chunk: Chunk) -> State:
        """The counts with a chunk's feasible lanes."""
        value = chunk.values[self.terms[0]]
        at = jnp.where(chunk.feasible & ~jnp.isnan(value), self.bin_of(value), self.bins)
        new = jnp.zeros(self.bins, jnp.uint32).at[at].add(1, mode="drop")
        return self.merge(state, {"low": new, "high": 0})

    def merge(self, a: State, b: State) -> State:
        """The sums of both counts: two words each, exact without 64-bit integers."""
        low = a["low"] + b["low"]
        carry = (low < b["low"]).astype(jnp.uint32)
        return {"low": low, "high": a["high"] + b["high"] + carry}

    @staticmethod
    def counts(state: State) -> np.ndarray:
        """The counts as 64-bit integers."""
        low, high = (np.asarray(state[word]).astype(np.uint64) for word in ("low", "high"))
        return (high << np.uint64(32)) | low


@dataclasses.dataclass(frozen=True)
class Histogram(BinCounts):
    """Counts of feasible points with ``edges[i] <= term < edges[i + 1]``, and outside all edges."""

    term: str
    edges: tuple[float, ...]
    per: Per = ()

    def __post_init__(self) -> None:
        edges = tuple(float(x) for x in self.edges)
        if len(edges) < 2 or sorted(set(edges)) != list(edges) or not np.isfinite(edges).all():
            raise InputError("Histogram", "edges", self.edges, "two or more, increasing, finite")
        object.__setattr__(self, "edges", edges)

    @property
    def bins(self) -> int:
        """Bins between the edges, and one on each side."""
        return len(self.edges) + 1

    def bin_of(self, value: Array) -> Array:
        """The number of edges at or below each value."""
        return jnp.searchsorted(jnp.asarray(self.edges, value.dtype), value, side="right")

    def answer(self, state: State) -> Answer:
        """Edges and counts; the first and last count lie outside of the edges."""
        counts = self.counts(state).tolist()
        return {"term": self.terms[0], "edges": list(self.edges), "counts": counts}


@dataclasses.dataclass(frozen=True)
class Quantiles(BinCounts):
    """Quantiles of a positive term over feasible points, each as bounds within 0.4 %.

    Bins are the leading bits of the number itself, so no range has to be given.
    """

    term: str
    q: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95)
    per: Per = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", tuple(float(x) for x in self.q))
        if not self.q or not all(0 <= x <= 1 for x in self.q):
            raise InputError("Quantiles", "q", self.q, "shares from 0 to 1")

    @property
    def bins(self) -> int:
        """One for each exponent and each leading part of the fraction."""
        return 1 << (8 + MANTISSA)

    def bin_of(self, value: Array) -> Array:
        """The leading bits of each value."""
        positive = jnp.maximum(value.astype(jnp.float32), 0.0)
        bits = lax.bitcast_convert_type(positive, jnp.uint32)
        return (bits >> (23 - MANTISSA)).astype(jnp.int32)

    def answer(self, state: State) -> Answer:
        """For each q the bounds between which the quantile lies."""
        total = np.cumsum(self.counts(state))
        bounds: list[dict[str, float]] = []
        for q in self.q if total[-1] else ():
            rank = min(int(np.ceil(q * float(total[-1]))), int(total[-1]))
            at = int(np.searchsorted(total, max(rank, 1)))
            ends = np.array([at, at + 1], np.uint32) << np.uint32(23 - MANTISSA)
            low, high = ends.view(np.float32)
            bounds.append({"q": q, "at_least": float(low), "below": float(high)})
        return {"term": self.terms[0], "points": int(total[-1]), "quantiles": bounds}
