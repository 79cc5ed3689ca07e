"""Hit ratio of prompts in a finite prefix cache with least-recently-used eviction.

A prefix stays for a characteristic time T after its last use, the same for all, for which the
cache is full on average: Che, Tung and Wang 2002 (IEEE JSAC 20), Section III; why it is so
accurate: Fricker, Robert and Roberts 2012 (arXiv 1202.3974). They take independent requests; a
prefix here is used again with some probability after an exponential gap, which has their law as
its limit (always again) and covers conversations, too.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.root import crossing

LONG = 30.0  # gaps after which what comes back has come back


class Uses(NamedTuple):
    """Kinds of prefixes, arrays of one length; ``gap`` runs from the arrival before if pinned."""

    tokens: Array  # tokens of cache used per second, 1/s
    again: Array  # probability that they are used again
    gap: Array  # mean time to that, s
    pinned: Array  # of which they cannot be given up, being in use, s


class Hits(NamedTuple):
    """Cached tokens per second that prompts hit, and how long an unused prefix stays."""

    device: Array
    host: Array
    stays: Array


def hits(uses: Uses, room: Array, host_room: Array | float = 0.0) -> Hits:
    """Prompt tokens per second that hit in ``room`` tokens of cache not in use.

    sum r q (1 - exp(-(T + p) / z)), where T solves sum r [q z (exp(-p / z) - exp(-(T + p) / z))
    + (1 - q) T] = room: r tokens used per second, q again after mean gaps z, pinned for p. What
    the device evicts goes to ``host_room`` tokens of host memory, where it hits until both are
    full.
    """

    def hit_rate(stays: Array) -> Array:
        past = 1.0 - jnp.exp(-(stays + uses.pinned) / uses.gap)
        return jnp.sum(uses.tokens * uses.again * past)

    device = characteristic_time(uses, room)
    both = characteristic_time(uses, room + host_room)
    return Hits(hit_rate(device), hit_rate(both) - hit_rate(device), device)


def characteristic_time(uses: Uses, room: Array) -> Array:
    """Time (s) for which an unused prefix stays in ``room`` tokens; long where all fits."""
    once = jnp.sum(uses.tokens * (1.0 - uses.again))
    longest = LONG * jnp.max(uses.gap) + room / jnp.where(once > 0, once, room + 1.0)

    def surplus(stays: Array) -> Array:
        waiting = uses.gap * jnp.exp(-uses.pinned / uses.gap) * -jnp.expm1(-stays / uses.gap)
        filled = uses.again * waiting + (1.0 - uses.again) * stays
        return jnp.sum(uses.tokens * filled) - room

    return crossing(surplus, jnp.asarray(0.0), longest)


def system_prompts(rates: Array, tokens: Array, pinned: Array) -> Uses:
    """Prompts shared by all who send them: used ``rates`` times a second, each for ``pinned`` s."""
    ones = jnp.ones_like(rates)
    return Uses(rates * tokens, ones, 1.0 / rates, pinned * ones)


def conversation(rate: Array, turns: int, setup: Array, answered: Array, gap: Array) -> Uses:
    """``rate`` conversations begin a second; each turn repeats all before, ``gap`` s after it.

    After turn k the cache has k (asked + answered) tokens of it; the last turn is not followed.
    """
    k = jnp.arange(1.0, turns + 1.0)
    return Uses(
        tokens=rate * k * (setup + answered),
        again=jnp.where(k < turns, 1.0, 0.0),
        gap=gap * jnp.ones_like(k),
        pinned=jnp.zeros_like(k),
    )


def tree(rate: Array, depth: int, branches: Array, tokens: Array, gap: Array) -> Uses:
    """``rate`` agents begin a second; each request adds ``tokens`` and leads to ``branches`` more.

    To ``depth`` below the first, one after another, the deepest first, ``gap`` s apart: the
    part added at depth j is used by the (b^(depth - j + 1) - 1) / (b - 1) requests below it.
    """
    level = range(depth + 1)
    below = [sum((branches**i for i in range(depth - j + 1)), jnp.asarray(0.0)) for j in level]
    used = jnp.stack([jnp.asarray(b) for b in below])
    nodes = jnp.stack([jnp.asarray(branches**j) for j in level])
    return Uses(
        tokens=rate * nodes * used * tokens,
        again=1.0 - 1.0 / used,
        gap=gap * jnp.ones_like(used),
        pinned=jnp.zeros_like(used),
    )


def join_uses(*kinds: Uses) -> Uses:
    """Several kinds of prefixes in one cache."""
    return Uses(*(jnp.concatenate(parts) for parts in zip(*kinds, strict=True)))
