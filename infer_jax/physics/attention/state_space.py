"""Selective state space, the first Mamba (arXiv 2312.00752): a small state for every channel.

Shapes as in transformers, models/jamba; states as vLLM keeps them, MambaStateShapeCalculator and
MambaStateDtypeCalculator in vllm/model_executor/layers/mamba/mamba_utils.py (v0.19).
"""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.attention.kind import SCAN, Cut, Kind, Operands, T, Timing
from infer_jax.physics.attention.row import Row, blank, launching
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import UNBOUNDED, Format, StateSpace


class StateSpaceLayer(Kind[StateSpace]):
    """States of fixed size in place of a cache that grows; ranks share the channels."""

    core = SCAN

    @property
    def names(self) -> tuple[str, ...]:
        """Into channels and their gate, to step, B and C, up to time steps, out."""
        return ("channels in", "steps and states in", "steps up", "channels out")

    def matrices(self, width: Array) -> tuple[Matrix, ...]:
        """[x, gate], [step, B, C] from the channels, the step's second matrix, and O."""
        a = self.attention
        return (
            Matrix(2.0 * a.channels, width),
            Matrix(a.step_rank + 2.0 * a.state_width, a.channels),
            Matrix(a.channels, a.step_rank),
            Matrix(width, a.channels),
        )

    @property
    def convolution(self) -> Array:
        """Weights of the short convolution over the channels."""
        return self.attention.channels * self.attention.conv_width

    @property
    def output_width(self) -> Array:
        """Channels, their gate and time steps, and B and C, which all channels share."""
        return 3.0 * self.attention.channels + 2.0 * self.attention.state_width

    def numbers(self, cache: Format, activations: Format) -> Row:
        """A state of channels x N numbers, and the last conv_width - 1 inputs of the convolution.

        Every pass reads and writes them, at any context. FLOP of a token for a number of the
        state: 2 for its decay exp(step A), 1 for step x B, 2 to update it, 2 to read it with C;
        the convolution beside. A parallel scan has 9 in place of 7
        (github.com/state-spaces/mamba, issue 110).
        """
        a = self.attention
        held = a.channels * a.state_width * a.state.bytes
        held = held + a.channels * (a.conv_width - 1.0) * activations.bytes
        return blank()._replace(
            launches=launching(linear=1.0),
            split=jnp.asarray(UNBOUNDED),
            state=2.0 * held,
            recurring=a.channels * (7.0 * a.state_width + 2.0 * a.conv_width),
        )

    @property
    def heads(self) -> tuple[Array, Array | float]:
        """Channels, which ranks share like heads."""
        return self.attention.channels, self.attention.channels

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The matrices that read channels, by their inputs."""
        return (Cut(self.attention.channels, self.attention.weights.columns),)

    def of_rank(self, tp: Array) -> StateSpace:
        """Its share of the channels."""
        return self.attention.replace(channels=self.attention.channels / tp)

    @property
    def operands(self) -> Operands:
        """No scores: the state is updated token by token."""
        return Operands(jnp.asarray(0.0), self.attention.channels, self.attention.state_width)

    def core_time(self, by: Timing[T]) -> T:
        """The time of updating a state."""
        return by.recurring(self)

    @property
    def grouped_width(self) -> Array:
        """Numbers of a channel's state."""
        return self.attention.state_width
