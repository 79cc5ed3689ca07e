"""The rate and the price of tokens."""

from jax import Array


def token_rate(time: Array) -> Array:
    """Tokens per second of a request whose tokens take ``time`` seconds each: 1 / time."""
    return 1.0 / time


def usd_per_million_tokens(chips: Array, usd_per_hour: Array, time: Array, tokens: Array) -> Array:
    """USD per million tokens when ``chips`` chips take ``time`` seconds for ``tokens`` tokens.

    1e6 * chips * time * price / (3600 * tokens).

    >>> import jax.numpy as jnp
    >>> round(float(usd_per_million_tokens(*map(jnp.asarray, (1.0, 3.6, 1.0, 1000.0)))), 6)
    1.0
    """
    return 1e6 / 3600.0 * chips * usd_per_hour * time / tokens
