"""The distribution of a term over the grid: counts between edges, and quantiles."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike
from jaxtyping import UInt32, UInt64

from infer_jax.errors import InputError
from infer_jax.sweeps.reducers import Answer, Chunk, Mask, State, Summary, parse

Words = UInt32[Array | np.ndarray, " bins"]
Counts = dict[str, Words]  # the low and the high words of the counts
MANTISSA = 8  # bits of a float32's fraction that a bin of a quantile resolves: 0.4 %


def _counts(bins: int) -> Counts:
    return {"low": np.zeros(bins, np.uint32), "high": np.zeros(bins, np.uint32)}


def _added(state: Counts, low: Words, high: Words | int = 0) -> Counts:
    """64-bit counts as two words, so that they are exact without 64-bit integers."""
    total = state["low"] + low
    carry = (total < low).astype(jnp.uint32)
    return {"low": total, "high": state["high"] + high + carry}


def _numbers(state: Counts) -> UInt64[np.ndarray, " bins"]:
    low, high = (np.asarray(state[k]).astype(np.uint64) for k in ("low", "high"))
    return (high << np.uint64(32)) | low


@dataclasses.dataclass(frozen=True)
class Histogram(Summary):
    """Counts of feasible points with ``edges[i] <= term < edges[i + 1]``, and outside all edges."""

    term: str
    edges: tuple[float, ...]
    per: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        edges = tuple(float(x) for x in self.edges)
        if len(edges) < 2 or sorted(set(edges)) != list(edges) or not np.isfinite(edges).all():
            raise InputError("Histogram", "edges", self.edges, "two or more, increasing, finite")
        object.__setattr__(self, "edges", edges)

    @property
    def terms(self) -> tuple[str, ...]:
        """The term counted."""
        return (parse(self.term)[0],)

    def init(self, limbs: int, groups: int, dtype: DTypeLike) -> State:
        """No counts."""
        return _counts(len(self.edges) + 1)

    def absorb(self, state: State, chunk: Chunk) -> State:
        """With a chunk's feasible lanes counted; NaN is counted nowhere."""
        value = chunk.values[self.terms[0]]
        edges = jnp.asarray(np.asarray(self.edges), value.dtype)
        return _counted(state, jnp.searchsorted(edges, value, side="right"), value, chunk.ok)

    def merge(self, a: State, b: State) -> State:
        """Both counts."""
        return _added(a, b["low"], b["high"])

    def answer(self, state: Counts) -> Answer:
        """Edges and counts; the first and last count lie outside of the edges."""
        return {
            "term": self.terms[0],
            "edges": list(self.edges),
            "counts": _numbers(state).tolist(),
        }


@dataclasses.dataclass(frozen=True)
class Quantiles(Summary):
    """Quantiles of a positive term over feasible points, each as bounds within 0.4 %.

    Bins are the leading bits of the number itself, so no range has to be given.
    """

    term: str
    q: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95)
    per: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", tuple(float(x) for x in self.q))
        if not self.q or not all(0 <= x <= 1 for x in self.q):
            raise InputError("Quantiles", "q", self.q, "shares from 0 to 1")

    @property
    def terms(self) -> tuple[str, ...]:
        """The term counted."""
        return (parse(self.term)[0],)

    def init(self, limbs: int, groups: int, dtype: DTypeLike) -> State:
        """No counts."""
        return _counts(1 << (8 + MANTISSA))

    def absorb(self, state: State, chunk: Chunk) -> State:
        """With a chunk's feasible lanes counted; NaN is counted nowhere."""
        value = chunk.values[self.terms[0]].astype(jnp.float32)
        bits = lax.bitcast_convert_type(jnp.maximum(value, 0.0), jnp.uint32)
        return _counted(state, (bits >> (23 - MANTISSA)).astype(jnp.int32), value, chunk.ok)

    def merge(self, a: State, b: State) -> State:
        """Both counts."""
        return _added(a, b["low"], b["high"])

    def answer(self, state: Counts) -> Answer:
        """For each q the bounds between which the quantile lies."""
        counts = _numbers(state)
        total = np.cumsum(counts)
        bins: list[dict[str, float]] = []
        for q in self.q if len(total) and total[-1] else ():
            rank = min(int(np.ceil(q * float(total[-1]))), int(total[-1]))
            at = int(np.searchsorted(total, max(rank, 1)))
            ends = np.array([at, at + 1], np.uint32) << np.uint32(23 - MANTISSA)
            low, high = ends.view(np.float32)
            bins.append({"q": q, "at_least": float(low), "below": float(high)})
        return {"term": self.terms[0], "points": int(total[-1]), "quantiles": bins}


def _counted(state: Counts, bins: Array, value: Array, ok: Mask) -> Counts:
    size = state["low"].shape[0]
    at = jnp.where(ok & ~jnp.isnan(value), bins, size)
    return _added(state, jnp.zeros(size, jnp.uint32).at[at].add(1, mode="drop"))


def edges(low: float, high: float, bins: int, *, log: bool = False) -> Sequence[float]:
    """Even edges from ``low`` to ``high``, in logarithm where ``log``."""
    space = np.geomspace if log else np.linspace
    return tuple(space(low, high, bins + 1).tolist())
