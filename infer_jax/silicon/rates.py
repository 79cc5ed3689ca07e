"""FLOP/s of arrays."""

import jax.numpy as jnp
from jax import Array


def flops(
    cores: Array | float,
    lanes: Array | float,
    rows: Array | float,
    columns: Array | float,
    clock: Array | float,
    wide: Array | float = 1.0,
) -> Array:
    """Dense FLOP/s of all arrays: 2 n_cores n_lanes r c f, times products an element does a cycle.

    ``cores`` that are switched on; ``wide``: 2 where two 8-bit products take the place of a 16-bit
    one.

    >>> round(float(flops(108, 4, 16, 16, 1.41e9)) / 1e12, 1)  # A100
    311.9
    """
    return jnp.asarray(2.0 * cores * lanes * rows * columns * clock * wide)
