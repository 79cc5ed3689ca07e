"""How many pairs of query and key does a causal pass have?

Summed over positions, as GPUs compute them, and with tokens as a continuum, without the half token
that the sum adds.
"""

import jax.numpy as jnp
from jax import Array


def pairs(new_tokens: Array, cached_tokens: Array, window: Array) -> Array:
    """Query-key pairs of a causal pass: sum over i = 1..s of min(c + i, window).

    In closed form, for real s: with a = clip(window - c, 0, s) positions below the window,
    a c + a (a + 1) / 2 + (s - a) window. A window that no token reaches leaves no trace in
    float32 either, in value or gradient.

    >>> float(pairs(jnp.array(3.0), jnp.array(2.0), jnp.array(4.0)))
    11.0
    """
    below = jnp.clip(window - cached_tokens, 0.0, new_tokens)
    # an unbounded window of 2^40 would swallow every other term of the gradient in float32
    beyond = jnp.minimum(window, cached_tokens + new_tokens)
    return below * (cached_tokens + (below + 1.0) / 2.0) + (new_tokens - below) * beyond


def every_pair(new_tokens: Array, cached_tokens: Array) -> Array:
    """Query-key pairs of a causal pass without a window: s c + s (s + 1) / 2.

    >>> float(every_pair(jnp.array(3.0), jnp.array(2.0)))
    12.0
    """
    return new_tokens * (cached_tokens + (new_tokens + 1.0) / 2.0)


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
