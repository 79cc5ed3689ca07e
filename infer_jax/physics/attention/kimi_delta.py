"""Kimi delta attention (KDA): a matrix state by the delta rule, its decay a number per key channel.

Source: Kimi Linear (arXiv 2510.26692), Section 3. Shapes as in vLLM's KimiDeltaAttention
(vllm/model_executor/layers/kda.py at 01a7e5d), states as in its MambaStateShapeCalculator and
MambaStateDtypeCalculator (vllm/model_executor/layers/mamba/mamba_utils.py).
"""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.attention.kind import DELTA, Cut, Dealt, Kind, Operands, T, Timing
from infer_jax.physics.attention.row import Row, blank, launching
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import UNBOUNDED, Format, KimiDelta


class KimiDeltaLayer(Kind[KimiDelta]):
    """A state of fixed size in place of a cache that grows; ranks share the heads."""

    core = DELTA._replace(table="kda")  # kernels of the same library and form

    @property
    def names(self) -> tuple[str, ...]:
        """In, down to decays and gates, up to both, out."""
        return ("linear in", "decays and gates down", "decays up", "gates up", "linear out")

    def matrices(self, width: Array) -> tuple[Matrix, ...]:
        """[Q, K, V, write strength], [decay, gate] down, each of them up, and O."""
        a, inner = self.attention, self._inner
        return (
            Matrix(3.0 * inner + a.heads, width),
            Matrix(2.0 * a.gate_rank, width),
            Matrix(inner, a.gate_rank),
            Matrix(inner, a.gate_rank),
            Matrix(width, inner),
        )

    @property
    def convolution(self) -> Array:
        """Weights of the short convolutions over queries, keys and values."""
        return 3.0 * self._inner * self.attention.conv_width

    @property
    def output_width(self) -> Array:
        """Queries, keys, values, decays and gates, and a write strength of each head."""
        return 5.0 * self._inner + self.attention.heads

    def numbers(self, cache: Format, activations: Format) -> Row:
        """A state (heads x d x d) and the last conv_width - 1 inputs of the convolutions.

        Every pass reads and writes them, at any context. FLOP of a token and head: d^2 to decay
        the state channel by channel, 2 d^2 to read it for the delta rule, 2 d^2 to write and 2 d^2
        to read it; the convolutions beside. A chunked form multiplies more.
        """
        a = self.attention
        state = self._inner * a.head_width
        held = state * a.state.bytes + 3.0 * self._inner * (a.conv_width - 1.0) * activations.bytes
        return blank()._replace(
            launches=launching(linear=1.0),
            split=jnp.asarray(UNBOUNDED),
            state=2.0 * held,
            recurring=7.0 * state + 2.0 * self.convolution,
        )

    @property
    def heads(self) -> tuple[Array, Array | float]:
        """Heads, which have keys of their own."""
        return self.attention.heads, self.attention.heads

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Projections by their outputs, the output projection by its inputs."""
        a = self.attention
        return (Cut(self._inner, a.weights.rows), Cut(self._inner, a.weights.columns))

    def of_rank(self, tp: Array) -> KimiDelta:
        """Its share of the heads."""
        return self.attention.replace(heads=self.attention.heads / tp)

    def dealt(self, width: Array) -> Dealt:
        """All split by heads but the two matrices down, which are copied."""
        into, down, *others = (m.elements for m in self.matrices(width))
        return Dealt(into + sum(others), jnp.asarray(0.0), down)

    @property
    def operands(self) -> Operands:
        """No scores: the state is updated token by token."""
        return Operands(jnp.asarray(0.0), self._inner, self._inner)

    def core_time(self, by: Timing[T]) -> T:
        """The time of updating a state."""
        return by.recurring(self)

    @property
    def grouped_width(self) -> Array:
        """Width of a head."""
        return self.attention.head_width

    @property
    def _inner(self) -> Array:
        return self.attention.heads * self.attention.head_width
