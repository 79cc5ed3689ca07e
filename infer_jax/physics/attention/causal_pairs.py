"""How many pairs of query and key does a causal pass have?"""

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
