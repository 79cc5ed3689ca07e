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
        """The kernels of the base's projections, and of the indexer's two."""
        return (*self.base.names, "index queries", "index keys")

    @property
    def family(self) -> str:
        """Whose kernels the base's core runs in: ``mha`` or ``mla``."""
        return self.base.family

    @property
    def designed(self) -> dict[str, tuple[str, ...]]:
        """Fields of the base by the name that a design calls them."""
        return self.base.designed

    @property
    def normed(self) -> tuple[str, ...]:
        """Fields of the base that a norm's vector is as long as."""
        return self.base.normed

    def formatted(self, weights: Format) -> Sparse:
        """The base's projections stored in that format, which the indexer's follow."""
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
        """The projections of the base, and the indexer's queries, key and head weights."""
        a = self.attention
        return (
            *self.base.matrices(width),
            Matrix(a.index_heads * a.index_width, a.index_query_input),
            Matrix(a.index_width + a.index_heads, width),
        )

    @property
    def output_width(self) -> Array:
        """Numbers per token that the base's input projections hand to its core."""
        return self.base.output_width

    def held_bytes(self, cache: Format, context: Array) -> Array:
        """Bytes of the base's cache and of the index keys."""
        return self.base.held_bytes(cache, context) + self._index(context)

    def read_bytes(self, cache: Format, context: Array) -> Array:
        """Bytes of at most ``top_k`` tokens of the base's cache, and of all index keys."""
        chosen = jnp.minimum(context, self.attention.top_k)
        return self.base.held_bytes(cache, chosen) + self._index(context)

    def core_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """FLOP of the base over the chosen tokens, and 2 n_i d_i a pair for the indexer."""
        a = self.attention
        index = a.index_heads * a.index_width
        scored = 2.0 * index * pairs(new_tokens, cached_tokens, jnp.asarray(UNBOUNDED))
        return self.base.chosen_flops(new_tokens, cached_tokens, a.top_k) + scored

    @property
    def absorbed(self) -> Array:
        """FLOP of a pair of the base, where decoding."""
        return self.base.absorbed

    @property
    def expanded(self) -> Array:
        """FLOP of a pair of the base, where prefilling."""
        return self.base.expanded

    @property
    def reach(self) -> Array:
        """The tokens that are chosen."""
        return self.attention.top_k

    @property
    def heads(self) -> tuple[Any, Any]:
        """Query heads and KV heads of the base; the indexer is copied."""
        return self.base.heads

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The projections of the base that tensor ranks cut."""
        return self.base.cuts

    def cache_share(self, tp: Array) -> Array:
        """The part of the base's keys and values that each of ``tp`` ranks keeps."""
        return self.base.cache_share(tp)

    def of_rank(self, tp: Array) -> Sparse:
        """One rank's share of the base, and the whole indexer."""
        return self.attention.replace(base=self.base.of_rank(tp))

    def token_bytes(self, cache: Format, tp: Array) -> Array:
        """Bytes of one rank's share of the base; the index keys are copied to every rank."""
        one = jnp.asarray(1.0)
        whole = self.base.held_bytes(cache, one)
        return whole * self.cache_share(tp) + (self.held_bytes(cache, one) - whole)

    def projection_bytes(self, width: Array, tp: Array) -> Array:
        """Bytes of one rank's share of the base; the indexer is copied to every rank."""
        own = self.matrices(width)[len(self.base.names) :]
        index = matmul.elements(own) * self.weights.bytes
        return self.base.projection_bytes(width, tp) + index

    @property
    def operands(self) -> Operands:
        """Heads and widths of the base's core."""
        return self.base.operands

    @property
    def grouped_width(self) -> Array:
        """Numbers in a row of the base's cache."""
        return self.base.grouped_width

    @property
    def launches(self) -> Array | float:
        """2: the kernels of sparse attention."""
        return 2.0

    def row(self, arch: Architecture) -> Row:
        """The row of the base over the chosen tokens, with the indexer."""
        a = self.attention
        return self.base.row(arch)._replace(
            launches=jnp.asarray(self.launches),
            top_k=a.top_k,
            index=a.index_width * a.index_cache.bytes,
            indexing=2.0 * (a.index_heads * a.index_width),
        )

    def _index(self, context: Array) -> Array:
        return self.attention.index_width * self.attention.index_cache.bytes * context
