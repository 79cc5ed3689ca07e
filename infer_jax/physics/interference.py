"""Seconds that the prefills of other requests add to a request in the same passes.

A closed loop: b requests run on a replica, each makes ``osl`` tokens and is replaced at once. In
service a request meets the prefills of the b - 1 others once each. Of this a share falls before its
first token, where requests run in lock-step, and the rest on its decoding.
"""

import jax.numpy as jnp
from jax import Array


def before_first(odds: Array) -> Array:
    """Share of the others' prefills that a request meets before its first token: s / (1 + s)."""
    return odds / (1.0 + odds)


def prefills_per_step(running: Array, steps: Array) -> Array:
    """Prefills of others that begin in one step: max(b - 1, 0) / S, S the steps of a request."""
    return jnp.maximum(running - 1.0, 0.0) / jnp.maximum(steps, 1.0)


def on_decoding(rate: Array, prefill: Array, launches: Array, odds: Array, chunks: Array) -> Array:
    """Seconds that the prefills of others add to one output token.

    (1 - sigma) (r P + E n r / (1 + n r)) for r prefills a step that add P seconds each to the n
    passes they join, and E seconds of uncaptured launches to every pass that has any.
    """
    often = chunks * rate
    return (1.0 - before_first(odds)) * (rate * prefill + launches * often / (1.0 + often))


def on_first(running: Array, prefill: Array, launches: Array, odds: Array) -> Array:
    """Seconds that the prefills of others add to the first token: sigma max(b - 1, 0) (P + E)."""
    return before_first(odds) * jnp.maximum(running - 1.0, 0.0) * (prefill + launches)


def first_wave(running: Array, prefill: Array, waves: Array | float) -> Array:
    """Seconds that a benchmark's start adds to the mean time to first token.

    max(b - 1, 0) P / (2 w): b requests come at once, the mean one waits for the prompts of half of
    the others, and of w b requests in all one in w is of these. Benchmarks that keep a number in
    flight start so: vllm bench serve with --max-concurrency and an infinite --request-rate.
    """
    return jnp.maximum(running - 1.0, 0.0) * prefill / (2.0 * waves)
