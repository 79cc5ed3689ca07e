"""The best points within limits, or the nearest misses and the limits they exceed."""

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from infer_jax.errors import InputError
from infer_jax.sweeps.reducers import Chunk, Selection, State, key
from infer_jax.sweeps.topk import TopK, merge_ranked, rank_in, ranked_rows


@dataclasses.dataclass(frozen=True)
class Best(Selection):
    """The feasible point with the best ``by`` under limits such as ``{"ttft": 0.3}``.

    For a term of which more is better (a rate), the limit is a minimum. If no point meets all
    limits, the answer is ``misses`` points with the smallest excess, the largest relative one of
    each.
    """

    by: str
    under: Mapping[str, float] | tuple[tuple[str, float], ...] = ()
    misses: int = 5
    k: int = 1
    per: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.per, str):
            object.__setattr__(self, "per", (self.per,))
        if isinstance(self.under, Mapping):
            object.__setattr__(self, "under", tuple(sorted(self.under.items())))
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

    def in_float32(self, counts: frozenset[str]) -> "Best":
        """The same reducer with spare rows, which float64 ranks again."""
        return dataclasses.replace(self, k=max(16, 2 * self.k), misses=max(16, 2 * self.misses))

    @property
    def _winners(self) -> TopK:
        return TopK(self.k, self.by, self.per)

    def init(self, limbs: int, groups: int, dtype: DTypeLike) -> State:
        """The state without rows."""
        missed = TopK(max(self.misses, 1), self.by, self.per)
        return {
            "met": self._winners.init(limbs, groups, dtype),
            "missed": missed.init(limbs, groups, dtype),
        }

    def excess(self, chunk: Chunk) -> Array:
        """The largest relative excess over a limit; 0 where all hold."""
        worst = chunk.short
        for name, limit in self.limits:
            value = chunk.values[name]
            over = limit / value if chunk.signs[name] < 0 else value / limit
            worst = jnp.maximum(worst, over - 1.0)
        return worst

    def absorb(self, state: State, chunk: Chunk) -> State:
        """The best rows within the limits, and the nearest misses."""
        excess, value = self.excess(chunk), key(chunk, self.by)
        meets = chunk.ok & (excess <= 0)
        for name, limit in self.limits:  # the ratio may round to 1 although the limit is broken
            term = chunk.values[name]
            meets &= (term >= limit) if chunk.signs[name] < 0 else (term <= limit)
        met = (chunk.group, value, *chunk.limbs)
        missed = (chunk.group, jnp.maximum(excess, 0.0), *chunk.limbs)
        near = chunk.accepted & ~meets & jnp.isfinite(excess)
        return {
            "met": rank_in(state["met"], met, meets & jnp.isfinite(value), self.k),
            "missed": rank_in(state["missed"], missed, near, max(self.misses, 1)),
        }

    def merge(self, a: State, b: State) -> State:
        """The best and the nearest of both."""
        return {
            "met": merge_ranked(a["met"], b["met"], self.k),
            "missed": merge_ranked(a["missed"], b["missed"], max(self.misses, 1)),
        }

    def rows(self, state: State) -> list[int]:
        """The indices of the winners; of the near misses where nothing meets the limits."""
        return ranked_rows(state["met"]) or ranked_rows(state["missed"])


def _is_limit(given: object) -> bool:
    return isinstance(given, int | float) and 0 < given < float("inf")
