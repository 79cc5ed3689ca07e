"""What does one matrix product cost: FLOP, and bytes through memory on a group of chips?

A weight is a ``Matrix``: ``outputs`` x ``inputs``, used once per token.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import square_root
from infer_jax.specs import Chip


class Matrix(NamedTuple):
    """A weight of ``outputs`` rows and ``inputs`` columns."""

    outputs: Array
    inputs: Array

    @property
    def elements(self) -> Array:
        """Elements: outputs * inputs."""
        return self.outputs * self.inputs


def elements(matrices: Sequence[Matrix]) -> Array:
    """Elements of several matrices together."""
    return sum((m.elements for m in matrices), start=jnp.asarray(0.0))


def flops(matrices: tuple[Matrix, ...], tokens: Array) -> Array:
    """FLOP of passing ``tokens`` through the matrices: 2 * elements * tokens."""
    return 2.0 * elements(matrices) * tokens


def streamed_bytes(
    matrix: Matrix, tokens: Array, split: Array, weight_bytes: Array, activation_bytes: Array
) -> Array:
    """Bytes that ``split`` chips move through their memories for one product.

    R = m k p_w + (t1 k + t2 m) n p_a with t1 = clip(sqrt(m t / k), 1, t), t2 = t / t1:
    the weight is sliced t1 x t2 ways so that slices stay near square, each weight is read
    once, each slice reads its inputs and writes its outputs. Symmetric in m and k: with l the
    longer and s the shorter side, t1 k + t2 m = l + t s up to t = l / s and 2 sqrt(m k t) beyond,
    where both have the slope s.
    Source: Erdil 2025 (arXiv 2506.04645), Section 3.6, bytes read.
    """
    m, k = matrix
    longer, along = jnp.maximum(m, k), split * jnp.minimum(m, k)
    square = 2.0 * square_root(split) * square_root(m * k)
    moved = jnp.where(along <= longer, longer + along, square)
    moved = jnp.where(m * k > 0, moved, 0.0)
    return m * k * weight_bytes + moved * (tokens * activation_bytes)


def rate(chip: Chip, bits: Array) -> Array:
    """FLOP/s of a chip at a matmul class: 4 bits and less, 8, or 16."""
    return jnp.where(bits <= 4.0, chip.flops_4, jnp.where(bits <= 8.0, chip.flops_8, chip.flops_16))
