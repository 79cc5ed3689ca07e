"""Linear attention with a matrix state: the gated delta rule (GDN) and Mamba-2."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.attention.kind import Cut, Kind, Operands, Row
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import Architecture, Format, Linear


class LinearLayer(Kind[Linear]):
    """A state of fixed size in place of a cache that grows."""

    recurrent = True

    @property
    def names(self) -> tuple[str, ...]:
        """One fused product in, one out."""
        return ("linear in", "linear out")

    @property
    def family(self) -> str:
        """Kernels of the gated delta rule."""
        return "gdn"

    def matrices(self, width: Array) -> tuple[Matrix, ...]:
        """[Q, K, V, Z, gates] and O."""
        a = self.attention
        keys = a.key_heads * a.key_width
        values = a.value_heads * a.value_width
        gates = a.head_gates * a.value_heads
        return (Matrix(2.0 * keys + 2.0 * values + gates, width), Matrix(width, values))

    @property
    def convolution(self) -> Array:
        """Weights of the short convolution over queries, keys and values."""
        return self._convolved * self.attention.conv_width

    @property
    def output_width(self) -> Array:
        """Outputs of the fused input projection."""
        return self.matrices(jnp.asarray(1.0))[0].outputs

    def held_bytes(self, cache: Format, context: Array) -> Array:
        """The state (heads x d_k x d_v) and the last conv_width - 1 inputs of the convolution.

        At any context.
        """
        taps = self._convolved * (self.attention.conv_width - 1.0)
        return self._state * self.attention.state.bytes + taps * cache.bytes

    def read_bytes(self, cache: Format, context: Array) -> Array:
        """The state, read and written back."""
        return 2.0 * self.held_bytes(cache, context)

    def core_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """2 d_k d_v to write and to read a head's state, d_k d_v to decay it, the convolution.

        2 d_k d_v more under the delta rule, which reads the state first; a chunked form multiplies
        more.
        """
        reads = 5.0 + 2.0 * self.attention.delta
        conv = 2.0 * self._convolved * self.attention.conv_width
        return (reads * self._state + conv) * new_tokens

    @property
    def heads(self) -> tuple[Any, Any]:
        """Value heads and key heads."""
        return self.attention.value_heads, self.attention.key_heads

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The output projection, by its inputs."""
        a = self.attention
        return (Cut(a.value_heads * a.value_width, a.weights.columns),)

    def cache_share(self, tp: Array) -> Array:
        """1 / tp: heads are split."""
        return 1.0 / tp

    def of_rank(self, tp: Array) -> Linear:
        """Its share of key and value heads."""
        a = self.attention
        return a.replace(key_heads=a.key_heads / tp, value_heads=a.value_heads / tp)

    def token_bytes(self, cache: Format, tp: Array) -> Array:
        """0: nothing grows with the context."""
        return jnp.asarray(0.0)

    def state_bytes(self, activations: Format, tp: Array) -> Array:
        """The state in its own format, the inputs of the convolution as activations."""
        return self.held_bytes(activations, jnp.asarray(0.0)) * self.cache_share(tp)

    @property
    def operands(self) -> Operands:
        """No scores: the state is updated token by token."""
        keys = self.attention.key_heads * self.attention.key_width
        return Operands(jnp.asarray(0.0), keys, keys)

    @property
    def grouped_width(self) -> Array:
        """A value head's."""
        return self.attention.value_width

    @property
    def launches(self) -> Array | float:
        """3: the kernels of linear attention."""
        return 3.0

    def row(self, arch: Architecture) -> Row:
        """A state that every pass moves, and the recurrence."""
        zero = jnp.asarray(0.0)
        return (
            super()
            .row(arch)
            ._replace(
                state=self.read_bytes(arch.activations, zero),
                recurring=self.core_flops(jnp.asarray(1.0), zero),
            )
        )

    @property
    def _convolved(self) -> Array:
        a = self.attention
        return 2.0 * (a.key_heads * a.key_width) + a.value_heads * a.value_width

    @property
    def _state(self) -> Array:
        a = self.attention
        return a.value_heads * a.key_width * a.value_width
