"""Sparse attention: an indexer chooses the tokens that another kind attends to.

DeepSeek-V3.2-Exp, technical report, Section 2.1 (lightning indexer).
"""

from jax import Array

from infer_jax.physics import matmul
from infer_jax.physics.attention.grouped_query import GroupedQueryLayer
from infer_jax.physics.attention.kind import Core, Cut, Dealt, Kind, Operands
from infer_jax.physics.attention.latent import LatentLayer
from infer_jax.physics.attention.row import Row, launching
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import Format, GroupedQuery, Latent, Sparse


class SparseLayer(Kind[Sparse]):
    """Its base over at most ``top_k`` tokens, and the indexer that scores all of them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels of the base's projections, and of the indexer's two."""
        return (*self.base.names, "index queries", "index keys")

    @property
    def core(self) -> Core:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The kernels of the base's core."""
        return self.base.core

    def table_sizes(self, stage: str) -> tuple[Array, ...]:
        """The sizes that the base's measured tables are named after."""
        return self.base.table_sizes(stage)

    @property
    def carried(self) -> Array:
        """Numbers of queries and outputs that the base moves beside its cache."""
        return self.base.carried

    @property
    def design_fields(self) -> dict[str, tuple[str, ...]]:
        """Fields of the base by the name that a design calls them."""
        return self.base.design_fields

    @property
    def norm_fields(self) -> tuple[str, ...]:
        """Fields of the base that a norm's vector is as long as."""
        return self.base.norm_fields

    def with_weights(self, weights: Format) -> Sparse:
        """The base's projections stored in that format, which the indexer's follow."""
        return self.attention.replace(base=self.base.with_weights(weights))

    @property
    def base(self) -> GroupedQueryLayer | LatentLayer:
        """The attention over the chosen tokens."""
        base = self.attention.base
        return GroupedQueryLayer(base) if isinstance(base, GroupedQuery) else LatentLayer(base)

    @property
    def softmax(self) -> GroupedQuery | Latent:
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

    def numbers(self, cache: Format, activations: Format) -> Row:
        """The base over the chosen tokens, index keys of all, and 2 n_i d_i a pair to score."""
        a = self.attention
        return self.base.numbers(cache, activations)._replace(
            launches=launching(sparse=1.0),
            top_k=a.top_k,
            index=a.index_width * a.index_cache.bytes,
            indexing=2.0 * (a.index_heads * a.index_width),
        )

    def absorbed_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """All pairs of the pass: no published model counts an indexer."""
        return self.core_flops(new_tokens, cached_tokens)

    @property
    def heads(self) -> tuple[Array, Array | float]:
        """Query heads and KV heads of the base; the indexer is copied."""
        return self.base.heads

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The projections of the base that tensor ranks cut."""
        return self.base.cuts

    def of_rank(self, tp: Array) -> Sparse:
        """One rank's share of the base, and the whole indexer."""
        return self.attention.replace(base=self.base.of_rank(tp))

    def dealt(self, width: Array) -> Dealt:
        """The base as it is dealt; the indexer is copied to every rank."""
        index = matmul.elements(self.matrices(width)[len(self.base.names) :])
        base = self.base.dealt(width)
        return base._replace(copied=base.copied + index)

    @property
    def operands(self) -> Operands:
        """Heads and widths of the base's core."""
        return self.base.operands

    @property
    def grouped_width(self) -> Array:
        """Numbers in a row of the base's cache."""
        return self.base.grouped_width
