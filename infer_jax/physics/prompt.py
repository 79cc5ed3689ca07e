"""Pairs of query and key tokens of a pass, with tokens as a continuum.

Without the half token that the exact sum over positions adds; ``attention.pairs`` is that sum.
"""

import jax.numpy as jnp
from jax import Array


def attended_pairs(new_tokens: Array, cached_tokens: Array, most: Array) -> Array:
    """Token pairs when each new token sees all before it, ``most`` at the most.

    The integral of min(c + t, K) over t = 0 .. s: s (c + s/2) below K; K s (1 - K / 2s) for c = 0
    and s above K. A limit that nothing reaches leaves no trace in float32.

    >>> float(attended_pairs(*map(jnp.asarray, (8.0, 0.0, 4.0))))
    24.0
    """
    below = jnp.clip(most - cached_tokens, 0.0, new_tokens)
    beyond = jnp.minimum(most, cached_tokens + new_tokens)
    return below * (cached_tokens + below / 2.0) + (new_tokens - below) * beyond


def mean_attended_pairs(new_tokens: Array, cached_tokens: Array, window: Array) -> Array:
    """Token pairs when each new token sees what the mean one would: s min(c + s/2, W).

    At most W^2 / 2 pairs above ``attended_pairs``, which is half of them or less.

    >>> float(mean_attended_pairs(*map(jnp.asarray, (8.0, 0.0, 4.0))))
    32.0
    """
    return new_tokens * jnp.minimum(cached_tokens + new_tokens / 2.0, window)
