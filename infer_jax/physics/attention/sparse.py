"""Sparse attention: an indexer chooses the tokens that another kind attends to.

DeepSeek-V3.2-Exp, technical report, Section 2.1 (lightning indexer).
"""

from typing import Any

import jax.numpy as jnp
from jax import Array

from infer_jax.physics import matmul
from infer_jax.physics.attention.grouped_query import GroupedQueryLayer
from infer_jax.physics.attention.kind import Cut, Kind, Operands, Row
from infer_jax.physics.attention.latent import LatentLayer
from infer_jax.physics.attention.pairs import pairs
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import UNBOUNDED, Architecture, Format, GroupedQuery, Sparse


class SparseLayer(Kind[Sparse]):
    """Its base over at most ``top_k`` tokens, and the indexer that scores all of them."""

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the base, and the indexer's two."""
        return (*self.base.names, "index queries", "index keys")

    @property
    def family(self) -> str:
        """Its base's."""
        return self.base.family

    @property
    def designed(self) -> dict[str, tuple[str, ...]]:
        """Its base's."""
        return self.base.designed

    @property
    def normed(self) -> tuple[str, ...]:
        """Its base's."""
        return self.base.normed

    def formatted(self, weights: Format) -> Sparse:
        """With the base's projections in that format, which the indexer's follow."""
        return self.attention.replace(base=self.base.formatted(weights))

    @property
    def base(self) -> GroupedQueryLayer | LatentLayer:
        """The attention over the chosen tokens."""
        base = self.attention.base
        return GroupedQueryLayer(base) if isinstance(base, GroupedQuery) else LatentLayer(base)

    @property
    def softmax(self) -> Any:
        """The spec of the base."""
        return self.attention.base

    def matrices(self, width: Array) -> tuple[Matrix, ...]:
        """Its base's, and the indexer's queries, key and head weights."""
        a = self.attention
        return (
            *self.base.matrices(width),
            Matrix(a.index_heads * a.index_width, a.index_query_input),
            Matrix(a.index_width + a.index_heads, width),
        )

    @property
    def output_width(self) -> Array:
        """Its base's."""
        return self.base.output_width

    def held_bytes(self, cache: Format, context: Array) -> Array:
        """Its base's, and the index keys."""
        return self.base.held_bytes(cache, context) + self._index(context)

    def read_bytes(self, cache: Format, context: Array) -> Array:
        """At most ``top_k`` tokens of its base, and all index keys."""
        chosen = jnp.minimum(context, self.attention.top_k)
        return self.base.held_bytes(cache, chosen) + self._index(context)

    def core_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """Its base over the chosen tokens, and 2 n_i d_i a pair for the indexer."""
        a = self.attention
        index = a.index_heads * a.index_width
        scored = 2.0 * index * pairs(new_tokens, cached_tokens, jnp.asarray(UNBOUNDED))
        return self.base.chosen_flops(new_tokens, cached_tokens, a.top_k) + scored

    @property
    def absorbed(self) -> Array:
        """Its base's."""
        return self.base.absorbed

    @property
    def expanded(self) -> Array:
        """Its base's."""
        return self.base.expanded

    @property
    def reach(self) -> Array:
        """The tokens that are chosen."""
        return self.attention.top_k

    @property
    def heads(self) -> tuple[Any, Any]:
        """Its base's; the indexer is copied."""
        return self.base.heads

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Its base's."""
        return self.base.cuts

    def cache_share(self, tp: Array) -> Array:
        """Its base's."""
        return self.base.cache_share(tp)

    def of_rank(self, tp: Array) -> Sparse:
        """Its share of the base; the indexer whole."""
        return self.attention.replace(base=self.base.of_rank(tp))

    def token_bytes(self, cache: Format, tp: Array) -> Array:
        """Its base's share; the index keys are copied to every rank."""
        one = jnp.asarray(1.0)
        whole = self.base.held_bytes(cache, one)
        return whole * self.cache_share(tp) + (self.held_bytes(cache, one) - whole)

    def projection_bytes(self, width: Array, tp: Array) -> Array:
        """Its base's share; the indexer's matrices are copied to every rank."""
        own = self.matrices(width)[len(self.base.names) :]
        index = matmul.elements(own) * self.weights.bytes
        return self.base.projection_bytes(width, tp) + index

    @property
    def operands(self) -> Operands:
        """Its base's."""
        return self.base.operands

    @property
    def grouped_width(self) -> Array:
        """Its base's."""
        return self.base.grouped_width

    @property
    def launches(self) -> Array | float:
        """Sparse."""
        return 2.0

    def row(self, arch: Architecture) -> Row:
        """Its base's, over the chosen tokens, and the indexer."""
        a = self.attention
        return self.base.row(arch)._replace(
            launches=jnp.asarray(self.launches),
            top_k=a.top_k,
            index=a.index_width * a.index_cache.bytes,
            indexing=2.0 * (a.index_heads * a.index_width),
        )

    def _index(self, context: Array) -> Array:
        return self.attention.index_width * self.attention.index_cache.bytes * context
