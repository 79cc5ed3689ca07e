"""Compressed attention: a window of tokens as they are, and all before them pooled into entries.

DeepSeek-V4's two kinds: compressed sparse (4 tokens an entry, an indexer chooses entries) and
heavily compressed (128 tokens an entry, all are seen). Source: DeepSeek-V4 technical report (2026),
Section 2.3; shapes as in transformers 5.10, models/deepseek_v4 (huggingface/transformers).
"""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics import matmul
from infer_jax.physics.attention.kind import LATENT, Cut, Dealt, Kind, Operands
from infer_jax.physics.attention.row import Row, blank, launching
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import UNBOUNDED, Compressed, Format


class CompressedLayer(Kind[Compressed]):
    """One shared head that is key and value at once; heads of queries; a grouped output."""

    core = LATENT  # it runs in the same kernels, its one head in place of the latent

    @property
    def names(self) -> tuple[str, ...]:
        """Down to queries and the shared head, pools, up to queries, out in two, the indexer."""
        down, out = ("queries and keys down", "pools", "queries up"), ("groups out", "output")
        return (*down, *out, "index queries", "index weights and pools")

    @property
    def norm_fields(self) -> tuple[str, ...]:
        """The query latent and the shared head."""
        return ("query_rank", "head_width")

    def matrices(self, width: Array) -> tuple[Matrix, ...]:
        """[Q down, KV], [pool, gate], Q up, O by groups and whole, the indexer's two.

        A pool has two projections of ``overlap`` heads each; so has the indexer's own.
        """
        a, heads = self.attention, self.attention.query_heads * self.attention.head_width
        pooled = jnp.where(a.ratio > 0, 2.0 * a.overlap, 0.0)
        return (
            Matrix(a.query_rank + a.head_width, width),
            Matrix(pooled * a.head_width, width),
            Matrix(heads, a.query_rank),
            Matrix(a.output_rank, heads),
            Matrix(width, a.output_groups * a.output_rank),
            Matrix(a.index_heads * a.index_width, a.query_rank),
            Matrix(a.index_heads + pooled * a.index_width, width),
        )

    @property
    def output_width(self) -> Array:
        """Queries, and the shared head."""
        return (self.attention.query_heads + 1.0) * self.attention.head_width

    def numbers(self, cache: Format, activations: Format) -> Row:
        """Window tokens, and entries counted as one over ``ratio`` of a token each.

        4 n_q d FLOP a pair of query and token of the window, or entry; index keys of the entries
        and the indexer's 2 n_i d_i a pair. Its kernels are those of sparse attention where an
        indexer chooses, else of latent.
        """
        a, size = self.attention, self.attention.head_width * cache.bytes
        chosen = jnp.where(a.index_heads > 0, 1.0, 0.0)
        return blank()._replace(
            launches=launching(sparse=chosen, latent=1.0 - chosen),
            cache=self._share * size,
            heads=a.query_heads,
            index=self._share * a.index_width * a.index_cache.bytes,
            top_k=self._chosen,
            absorbed=self._share * self._pair,
            expanded=self._share * self._pair,
            indexing=self._share * 2.0 * a.index_heads * a.index_width,
            near=a.window,
            near_cache=size,
            near_flops=self._pair,
        )

    @property
    def carried(self) -> Array:
        """Queries and outputs in the shared head's width, for each token of an entry."""
        return self.absorbed / 2.0

    @property
    def reach(self) -> Array:
        """No limit: the entries cover the whole context."""
        return jnp.asarray(UNBOUNDED)

    def absorbed_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """All pairs of the pass: no published model counts an indexer."""
        return self.core_flops(new_tokens, cached_tokens)

    @property
    def heads(self) -> tuple[Array, Array | float]:
        """Query heads, and one shared head that every rank copies."""
        return self.attention.query_heads, 1.0

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Queries by their outputs; groups of the output projection, which stay whole."""
        a = self.attention
        return (
            Cut(a.query_heads * a.head_width, a.weights.rows),
            Cut(a.output_groups * a.output_rank, a.weights.columns),
            Cut(a.output_groups, 1.0),
        )

    def of_rank(self, tp: Array) -> Compressed:
        """Its share of query heads and of groups of the output."""
        a = self.attention
        return a.replace(query_heads=a.query_heads / tp, output_groups=a.output_groups / tp)

    def dealt(self, width: Array) -> Dealt:
        """Queries up and the output are split by heads and groups; the rest is copied.

        Each rank multiplies its heads with its groups' share of the first output matrix.
        """
        down, pool, up, group, out, *index = self.matrices(width)
        split = up.elements + group.elements + out.elements
        copied = down.elements + pool.elements + matmul.elements(index)
        return Dealt(split, jnp.asarray(0.0), copied)

    @property
    def operands(self) -> Operands:
        """Query heads, their width, and the shared head."""
        a = self.attention
        return Operands(a.query_heads, a.query_heads * a.head_width, a.head_width)

    @property
    def grouped_width(self) -> Array:
        """Width of the shared head."""
        return self.attention.head_width

    @property
    def _share(self) -> Array:
        """Entries that a token adds."""
        ratio = self.attention.ratio
        return jnp.where(ratio > 0, 1.0 / jnp.where(ratio > 0, ratio, 1.0), 0.0)

    @property
    def _chosen(self) -> Array:
        """Tokens whose entries a query attends to at most."""
        a = self.attention
        return jnp.minimum(a.top_k * jnp.maximum(a.ratio, 1.0), UNBOUNDED)

    @property
    def _pair(self) -> Array:
        return 4.0 * self.attention.query_heads * self.attention.head_width
