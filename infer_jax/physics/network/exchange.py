"""How long does it take to hand tokens to experts and back, and what does a ring carry?

One layer, seen by one GPU; tokens are its own.
"""

import jax.numpy as jnp
from jax import Array


def seconds(rows: Array, width: Array, size: Array | float, bandwidth: Array) -> Array:
    """Seconds of sending ``rows`` tokens of ``width`` numbers of ``size`` bytes: y H b / w."""
    return rows * width * size / bandwidth


def ring_bytes(ranks: Array, size: Array) -> Array:
    """Bytes that each rank of a ring all-reduce of ``size`` bytes sends: 2 (r - 1) / r size.

    Source: Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms, Section 3.

    >>> float(ring_bytes(jnp.array(4.0), jnp.array(8.0)))
    12.0
    """
    several = ranks > 1.0
    return jnp.where(several, 2.0 * (ranks - 1.0) / jnp.where(several, ranks, 2.0) * size, 0.0)


def others_visited(places: Array, choices: Array) -> Array:
    """Places other than one's own that a token with ``choices`` experts visits, in expectation.

    (n - 1) (1 - (1 - 1/n)^k), experts drawn independently and evenly over n places.

    >>> float(others_visited(jnp.array(2.0), jnp.array(1.0)))
    0.5
    """
    several = places > 1.0
    inverse = 1.0 / jnp.where(several, places, 2.0)
    visited = -jnp.expm1(choices * jnp.log1p(-inverse))
    return jnp.where(several, (places - 1.0) * visited, 0.0)
