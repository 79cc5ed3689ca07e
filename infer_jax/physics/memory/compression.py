"""How many bytes does a number take that is stored in groups of few bits?"""

import jax.numpy as jnp
from jax import Array

METADATA = 32.0  # bits of a group: its scale and its minimum in 16 bits each


def grouped_bytes(bits: Array, group: Array) -> Array:
    """Stored bytes per element: (bits + 32 / group) / 8; a group of 0 stores no metadata.

    Source: FlexGen (arXiv 2303.06865), Section 5: 4 bits in groups of 64 elements, which with
    scale and minimum are 4.5 bits an element.

    >>> float(grouped_bytes(jnp.array(4.0), jnp.array(64.0))) * 8
    4.5
    """
    return (bits + jnp.where(group > 0, METADATA / jnp.where(group > 0, group, 1.0), 0.0)) / 8.0


def padding_ratio(width: Array, group: Array) -> Array:
    """Stored over true elements of a dimension that is cut into whole groups.

    group ceil(width / group) / width; a group of 0 pads nothing.

    >>> round(float(padding_ratio(jnp.array(80.0), jnp.array(64.0))), 6)
    1.6
    """
    size = jnp.where(group > 0, group, 1.0)
    return jnp.where(group > 0, size * jnp.ceil(width / size) / width, 1.0)
