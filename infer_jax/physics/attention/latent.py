"""Multi-head latent attention (MLA; DeepSeek-V2, arXiv 2405.04434, Section 2.1)."""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from infer_jax.physics import matmul
from infer_jax.physics.attention.kind import Cut, Kind, Operands, Row
from infer_jax.physics.attention.pairs import pairs
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import UNBOUNDED, Architecture, Format, Latent


class LatentLayer(Kind[Latent]):
    """Keys and values of all heads from one cached latent."""

    @property
    def names(self) -> tuple[str, ...]:
        """Down to the latents, up to queries, up to keys and values, out."""
        return ("latents down", "queries up", "keys and values up", "output")

    @property
    def family(self) -> str:
        """Kernels of latent attention."""
        return "mla"

    @property
    def designed(self) -> dict[str, tuple[str, ...]]:
        """Heads, ranks and the parts of a head."""
        return {
            "heads": ("query_heads",),
            "kv_rank": ("kv_rank",),
            "query_rank": ("query_rank",),
            "nope_width": ("nope_width",),
            "rope_width": ("rope_width",),
            "latent_value_width": ("value_width",),
        }

    @property
    def normed(self) -> tuple[str, ...]:
        """Both latents."""
        return ("kv_rank", "query_rank")

    def matrices(self, width: Array) -> tuple[Matrix, ...]:
        """The two down-projections fused, Q up, K and V up, O.

        Without a query latent (rank 0) Q comes from the model width.
        """
        a = self.attention
        heads, ranked = a.query_heads, a.query_rank > 0
        query = heads * (a.nope_width + a.rope_width)
        down = a.kv_rank + a.rope_width
        return (
            Matrix(down + a.query_rank, width),
            Matrix(query, jnp.where(ranked, a.query_rank, width)),
            Matrix(heads * (a.nope_width + a.value_width), a.kv_rank),
            Matrix(width, heads * a.value_width),
        )

    @property
    def output_width(self) -> Array:
        """Queries, expanded keys and values."""
        a = self.attention
        return a.query_heads * (2.0 * a.nope_width + a.rope_width + a.value_width)

    def held_bytes(self, cache: Format, context: Array) -> Array:
        """The latent and the shared rotary key of every token."""
        return (self.attention.kv_rank + self.attention.rope_width) * cache.bytes * context

    def core_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """The cheaper of absorbed and expanded.

        Absorbed, 2 n_q (2 d_c + d_r) a pair; expanded, 2 n_q (d_n + d_r + d_v) a pair with the
        cached latents expanded once more (new ones are expanded by the projections either way).
        """
        return self._core(pairs(new_tokens, cached_tokens, jnp.asarray(UNBOUNDED)), cached_tokens)

    def chosen_flops(self, new_tokens: Array, cached_tokens: Array, top_k: Array) -> Array:
        """FLOP of the core where each new token may choose ``top_k`` others to expand."""
        seen = pairs(new_tokens, cached_tokens, top_k)
        return self._core(seen, jnp.minimum(cached_tokens, new_tokens * top_k))

    def absorbed_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """2 n_q (2 d_c + d_r) c s; Erdil 2025, Section 3.6."""
        a = self.attention
        width = 2.0 * a.kv_rank + a.rope_width
        return 2.0 * a.query_heads * width * cached_tokens * new_tokens

    @property
    def absorbed(self) -> Array:
        """2 n_q (2 d_c + d_r): queries and outputs in the latent's width."""
        return (
            2.0
            * self.attention.query_heads
            * (2.0 * self.attention.kv_rank + self.attention.rope_width)
        )

    @property
    def expanded(self) -> Array:
        """2 n_q (d_n + d_r + d_v): keys and values of every head."""
        a = self.attention
        return 2.0 * a.query_heads * (a.nope_width + a.rope_width + a.value_width)

    @property
    def heads(self) -> tuple[Any, Any]:
        """Query heads, and one latent that every rank copies."""
        return self.attention.query_heads, 1.0

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Both up-projections by their outputs, the output projection by its inputs."""
        a, n = self.attention, self.attention.query_heads
        return (
            Cut(n * (a.nope_width + a.rope_width), a.weights.rows),
            Cut(n * (a.nope_width + a.value_width), a.weights.rows),
            Cut(n * a.value_width, a.weights.columns),
        )

    def cache_share(self, tp: Array) -> Array:
        """1: the latent serves all heads and is copied to every rank."""
        return jnp.asarray(1.0)

    def of_rank(self, tp: Array) -> Latent:
        """Its share of query heads."""
        return self.attention.replace(query_heads=self.attention.query_heads / tp)

    def projection_bytes(self, width: Array, tp: Array) -> Array:
        """Split by heads; the down-projections serve all heads and are copied."""
        matrices = self.matrices(width)
        elements = matrices[0].elements + matmul.elements(matrices[1:]) / tp
        return elements * self.weights.bytes

    def economics_weights(self, width: Array) -> tuple[Matrix, ...]:
        """Two latents of width d_c, keys and values apart, and no rotary part."""
        a = self.attention
        heads = a.query_heads
        return (
            Matrix(2.0 * a.kv_rank + a.query_rank, width),
            Matrix(2.0 * heads * a.value_width, a.kv_rank),
            Matrix(heads * a.value_width, a.query_rank),
            Matrix(width, heads * a.value_width),
        )

    def economics_products(self, width: Array) -> tuple[Matrix, ...]:
        """The up-projections as one product from both latents to queries, keys and values."""
        a = self.attention
        latents = a.kv_rank + a.query_rank
        heads = a.query_heads * a.value_width
        return (Matrix(latents, width), Matrix(3.0 * heads, latents), Matrix(width, heads))

    @property
    def operands(self) -> Operands:
        """Query heads, their width, and the latent with its rotary key."""
        a = self.attention
        queries = a.query_heads * (a.nope_width + a.rope_width)
        return Operands(a.query_heads, queries, a.kv_rank + a.rope_width)

    @property
    def grouped_width(self) -> Array:
        """The latent's, with its rotary key."""
        return self.attention.kv_rank + self.attention.rope_width

    @property
    def launches(self) -> Array | float:
        """1: the kernels of latent attention."""
        return 1.0

    def row(self, arch: Architecture) -> Row:
        """The latent on every rank."""
        return (
            super()
            .row(arch)
            ._replace(
                cache=self.read_bytes(arch.cache, jnp.asarray(1.0)),
            )
        )

    def _core(self, seen: Array, cached_tokens: Array) -> Array:
        a = self.attention
        heads = 2.0 * a.query_heads
        absorbed = heads * (2.0 * a.kv_rank + a.rope_width) * seen
        per_pair = a.nope_width + a.rope_width + a.value_width
        expansion = a.kv_rank * (a.nope_width + a.value_width)
        expanded = heads * (per_pair * seen + expansion * cached_tokens)
        return lax.select(absorbed < expanded, absorbed, expanded)
