"""Grouped-query attention: MHA, GQA and MQA, with a window or without."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.attention.kind import Cut, Kind, Operands, Row
from infer_jax.physics.attention.pairs import pairs
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import UNBOUNDED, Architecture, Format, GroupedQuery


class GroupedQueryLayer(Kind[GroupedQuery]):
    """Queries in heads, keys and values in fewer heads."""

    @property
    def names(self) -> tuple[str, ...]:
        """One fused product in, one out."""
        return ("qkv", "output")

    @property
    def family(self) -> str:
        """Kernels of multi-head attention."""
        return "mha"

    @property
    def designed(self) -> dict[str, tuple[str, ...]]:
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

    @property
    def owns_cache(self) -> Array:
        """1, or 0 where neither K nor V is projected."""
        return jnp.where(self.attention.kv_matrices > 0, 1.0, 0.0)

    def held_bytes(self, cache: Format, context: Array) -> Array:
        """n_kv (d_k + d_v) numbers a token, of at most ``window`` tokens."""
        tokens = jnp.minimum(context, self.attention.window)
        return self._key_value_width * cache.bytes * tokens

    def read_bytes(self, cache: Format, context: Array) -> Array:
        """What is held; without K and V of its own, another layer's, as wide as its heads."""
        owned = self.attention.kv_matrices
        read = self.attention.replace(kv_matrices=jnp.where(owned > 0, owned, 2.0))
        return GroupedQueryLayer(read).held_bytes(cache, context)

    def core_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """2 n_q (d_k + d_v) a pair."""
        a = self.attention
        width = a.head_width + a.value_width
        return 2.0 * a.query_heads * width * pairs(new_tokens, cached_tokens, a.window)

    def chosen_flops(self, new_tokens: Array, cached_tokens: Array, top_k: Array) -> Array:
        """FLOP of the core where a query sees at most ``top_k`` tokens."""
        narrow = self.attention.replace(window=jnp.minimum(self.attention.window, top_k))
        return GroupedQueryLayer(narrow).core_flops(new_tokens, cached_tokens)

    def absorbed_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """2 n_q (d_k + d_v) min(c, window) s; Erdil 2025, Section 3.1."""
        a = self.attention
        width = a.head_width + a.value_width
        seen = jnp.minimum(cached_tokens, a.window)
        return 2.0 * a.query_heads * width * seen * new_tokens

    @property
    def absorbed(self) -> Array:
        """2 n_q (d_k + d_v), decoding or prefilling."""
        a = self.attention
        return 2.0 * a.query_heads * (a.head_width + a.value_width)

    @property
    def reach(self) -> Array:
        """The window."""
        return self.attention.window

    @property
    def heads(self) -> tuple[Any, Any]:
        """Query heads and KV heads."""
        return self.attention.query_heads, self.attention.kv_heads

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The output projection, by its inputs."""
        a = self.attention
        return (Cut(a.query_heads * a.value_width, a.weights.columns),)

    def cache_share(self, tp: Array) -> Array:
        """max(1 / tp, 1 / kv_heads): a head is not split, beyond one head a rank it is copied.

        >>> heads = GroupedQuery.of(query_heads=32, kv_heads=8, head_width=128, value_width=128)
        >>> [float(GroupedQueryLayer(heads).cache_share(jnp.array(tp))) for tp in (1.0, 4.0, 16.0)]
        [1.0, 0.25, 0.125]
        """
        return jnp.maximum(1.0 / tp, 1.0 / jnp.maximum(self.attention.kv_heads, 1.0))

    def of_rank(self, tp: Array) -> GroupedQuery:
        """Its share of query heads, and KV heads no fewer than one."""
        a = self.attention
        kept = a.kv_heads * self.cache_share(tp)
        return a.replace(query_heads=a.query_heads / tp, kv_heads=kept)

    def projection_bytes(self, width: Array, tp: Array) -> Array:
        """Split by heads; K and V are copied beyond one head a rank."""
        a = self.attention
        fused, out = self.matrices(width)
        queries = a.query_heads * a.head_width * (1.0 + a.query_gate)
        kept = (fused.outputs - queries) * self.cache_share(tp)
        elements = fused.inputs * (queries / tp + kept) + out.elements / tp
        return elements * self.weights.bytes

    @property
    def operands(self) -> Operands:
        """Query heads, their width, and the keys of a token."""
        a = self.attention
        return Operands(a.query_heads, a.query_heads * a.head_width, a.kv_heads * a.head_width)

    @property
    def grouped_width(self) -> Array:
        """Width of a key-value head."""
        return self.attention.head_width

    def row(self, arch: Architecture) -> Row:
        """Keys and values over the KV heads."""
        a = self.attention
        open_ended: Any = a.replace(window=jnp.asarray(UNBOUNDED))
        return (
            super()
            .row(arch)
            ._replace(
                cache=GroupedQueryLayer(open_ended).read_bytes(arch.cache, jnp.asarray(1.0)),
                split=a.kv_heads,
                window=a.window,
            )
        )

    @property
    def _key_value_width(self) -> Array:
        a = self.attention
        keys = a.head_width * jnp.minimum(a.kv_matrices, 1.0)
        values = a.value_width * jnp.maximum(a.kv_matrices - 1.0, 0.0)
        return a.kv_heads * (keys + values)
