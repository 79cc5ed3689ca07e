"""Linear attention with a matrix state: the gated delta rule (GDN) and Mamba-2."""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.attention.kind import DELTA, Cut, Kind, Operands, T, Timing
from infer_jax.physics.attention.row import Row, blank, launching
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import UNBOUNDED, Format, Linear


class LinearLayer(Kind[Linear]):
    """A state of fixed size in place of a cache that grows."""

    core = DELTA

    @property
    def names(self) -> tuple[str, ...]:
        """One fused product in, one out."""
        return ("linear in", "linear out")

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

    def numbers(self, cache: Format, activations: Format) -> Row:
        """A state (heads x d_k x d_v) and the last conv_width - 1 inputs of the convolution.

        Every pass reads and writes them, at any context. FLOP of a token: 2 d_k d_v to write and
        to read a head's state, d_k d_v to decay it, the convolution; 2 d_k d_v more under the
        delta rule, which reads the state first. A chunked form multiplies more.
        """
        a = self.attention
        held = self._state * a.state.bytes
        held = held + self._convolved * (a.conv_width - 1.0) * activations.bytes
        reads = 5.0 + 2.0 * a.delta
        conv = 2.0 * self._convolved * a.conv_width
        return blank()._replace(
            launches=launching(linear=1.0),
            split=jnp.asarray(UNBOUNDED),
            state=2.0 * held,
            recurring=reads * self._state + conv,
        )

    @property
    def heads(self) -> tuple[Array, Array | float]:
        """Value heads and key heads."""
        return self.attention.value_heads, self.attention.key_heads

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The output projection, by its inputs."""
        a = self.attention
        return (Cut(a.value_heads * a.value_width, a.weights.columns),)

    def of_rank(self, tp: Array) -> Linear:
        """Its share of key and value heads."""
        a = self.attention
        return a.replace(key_heads=a.key_heads / tp, value_heads=a.value_heads / tp)

    @property
    def operands(self) -> Operands:
        """No scores: the state is updated token by token."""
        keys = self.attention.key_heads * self.attention.key_width
        return Operands(jnp.asarray(0.0), keys, keys)

    def core_time(self, by: Timing[T]) -> T:
        """The time of updating a state."""
        return by.recurring(self)

    def table_sizes(self, stage: str) -> tuple[Array, ...]:
        """Taps, key heads and their width, value heads and theirs."""
        a = self.attention
        return a.conv_width, a.key_heads, a.key_width, a.value_heads, a.value_width

    @property
    def grouped_width(self) -> Array:
        """A value head's."""
        return self.attention.value_width

    @property
    def _convolved(self) -> Array:
        a = self.attention
        return 2.0 * (a.key_heads * a.key_width) + a.value_heads * a.value_width

    @property
    def _state(self) -> Array:
        a = self.attention
        return a.value_heads * a.key_width * a.value_width
