"""Grouped-query attention: MHA, GQA and MQA, with a window or without."""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.attention.kind import GROUPED, Cut, Dealt, Kind, Operands
from infer_jax.physics.attention.row import Row, blank
from infer_jax.physics.matmul import Matrix
from infer_jax.physics.numerics import at_least
from infer_jax.specs import Format, GroupedQuery


class GroupedQueryLayer(Kind[GroupedQuery]):
    """Queries in heads, keys and values in fewer heads."""

    core = GROUPED

    @property
    def names(self) -> tuple[str, ...]:
        """One fused product in, one out."""
        return ("qkv", "output")

    @property
    def design_fields(self) -> dict[str, tuple[str, ...]]:
        """Heads, KV heads, their width and the window."""
        return {
            "heads": ("query_heads",),
            "kv_heads": ("kv_heads",),
            "head_width": ("head_width", "value_width"),
            "window": ("window",),
        }

    def matrices(self, width: Array) -> tuple[Matrix, ...]:
        """[Q, gate, K, V] and O."""
        a = self.attention
        heads = a.query_heads
        queries = heads * a.head_width * (1.0 + a.query_gate)
        return (
            Matrix(queries + self._key_value_width, width),
            Matrix(width, heads * a.value_width),
        )

    def tensors(self, width: Array) -> list[Array]:
        """Q with its gate, K, V and O."""
        a = self.attention
        fused, out = self.matrices(width)
        queries = a.query_heads * a.head_width * (1.0 + a.query_gate) * width
        key = (fused.elements - queries) / 2.0
        return [queries, key, key, out.elements]

    @property
    def output_width(self) -> Array:
        """Queries, their gate, keys and values."""
        a = self.attention
        queries = a.query_heads * a.head_width
        return queries * (1.0 + a.query_gate) + self._key_value_width

    def numbers(self, cache: Format, activations: Format) -> Row:
        """n_kv (d_k + d_v) numbers a token, of at most ``window`` tokens, split over KV heads.

        2 n_q (d_k + d_v) FLOP a pair, decoding or prefilling. Without K and V of its own a layer
        reads another's, as wide as its heads, and keeps none.
        """
        a = self.attention
        owned = a.kv_matrices > 0
        read = GroupedQueryLayer(a.replace(kv_matrices=jnp.where(owned, a.kv_matrices, 2.0)))
        pair = 2.0 * a.query_heads * (a.head_width + a.value_width)
        return blank()._replace(
            cache=read._key_value_width * cache.bytes,
            owned=jnp.where(owned, 1.0, 0.0),
            split=a.kv_heads,
            heads=a.query_heads,
            window=a.window,
            absorbed=pair,
            expanded=pair,
        )

    @property
    def heads(self) -> tuple[Array, Array | float]:
        """Query heads and KV heads."""
        return self.attention.query_heads, self.attention.kv_heads

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The output projection, by its inputs."""
        a = self.attention
        return (Cut(a.query_heads * a.value_width, a.weights.columns),)

    def of_rank(self, tp: Array) -> GroupedQuery:
        """Its share of query heads, and KV heads no fewer than one."""
        a = self.attention
        kept = a.kv_heads * self.cache_share(tp)
        return a.replace(query_heads=a.query_heads / tp, kv_heads=kept)

    def dealt(self, width: Array) -> Dealt:
        """Split by heads; K and V are copied beyond one head a rank."""
        a = self.attention
        fused, out = self.matrices(width)
        queries = a.query_heads * a.head_width * (1.0 + a.query_gate)
        grouped = fused.inputs * (fused.outputs - queries)
        return Dealt(fused.inputs * queries + out.elements, grouped, jnp.asarray(0.0))

    @property
    def operands(self) -> Operands:
        """Query heads, their width, and the keys of a token."""
        a = self.attention
        return Operands(a.query_heads, a.query_heads * a.head_width, a.kv_heads * a.head_width)

    def table_sizes(self, stage: str) -> tuple[Array, ...]:
        """Query heads, KV heads and their width."""
        return self.attention.query_heads, self.attention.kv_heads, self.attention.head_width

    @property
    def grouped_width(self) -> Array:
        """Width of a key-value head."""
        return self.attention.head_width

    @property
    def _key_value_width(self) -> Array:
        a = self.attention
        keys = a.head_width * jnp.where(a.kv_matrices >= 1.0, 1.0, a.kv_matrices)
        values = a.value_width * at_least(a.kv_matrices - 1.0, 0.0)
        return a.kv_heads * (keys + values)
