"""Multi-head latent attention (MLA; DeepSeek-V2, arXiv 2405.04434, Section 2.1)."""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics import matmul
from infer_jax.physics.attention.kind import LATENT, Cut, Dealt, Kind, Operands
from infer_jax.physics.attention.row import Row, blank, launching
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import Format, Latent


class LatentLayer(Kind[Latent]):
    """Keys and values of all heads from one cached latent."""

    core = LATENT

    @property
    def names(self) -> tuple[str, ...]:
        """Down to the latents, up to queries, up to keys and values, out."""
        return ("latents down", "queries up", "keys and values up", "output")

    @property
    def design_fields(self) -> dict[str, tuple[str, ...]]:
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
    def norm_fields(self) -> tuple[str, ...]:
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

    def numbers(self, cache: Format, activations: Format) -> Row:
        """The latent and the shared rotary key of a token, copied to every rank.

        FLOP of a pair: absorbed, queries and outputs in the latent's width, 2 n_q (2 d_c + d_r);
        expanded, keys and values of every head, 2 n_q (d_n + d_r + d_v), and each cached latent
        is expanded once more, 2 n_q d_c (d_n + d_v); new ones the projections expand either way.
        """
        a = self.attention
        heads = 2.0 * a.query_heads
        return blank()._replace(
            launches=launching(latent=1.0),
            cache=(a.kv_rank + a.rope_width) * cache.bytes,
            heads=a.query_heads,
            absorbed=heads * (2.0 * a.kv_rank + a.rope_width),
            expanded=heads * (a.nope_width + a.rope_width + a.value_width),
            reopened=heads * a.kv_rank * (a.nope_width + a.value_width),
        )

    @property
    def heads(self) -> tuple[Array, Array | float]:
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

    def of_rank(self, tp: Array) -> Latent:
        """Its share of query heads."""
        return self.attention.replace(query_heads=self.attention.query_heads / tp)

    def dealt(self, width: Array) -> Dealt:
        """Split by heads; the down-projections serve all heads and are copied."""
        down, *up = self.matrices(width)
        return Dealt(matmul.elements(up), jnp.asarray(0.0), down.elements)

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
    def carried(self) -> Array:
        """Queries and outputs of all heads in the latent's width, n_q (2 d_c + d_r)."""
        return self.absorbed / 2.0

    def table_sizes(self, stage: str) -> tuple[Array, ...]:
        """Query heads, the latent or, expanded, the width of a head without its rotary part."""
        a = self.attention
        inner = a.kv_rank if stage == "decode" else a.nope_width
        return a.query_heads, inner, a.rope_width

    @property
    def grouped_width(self) -> Array:
        """The latent's, with its rotary key."""
        return self.attention.kv_rank + self.attention.rope_width
