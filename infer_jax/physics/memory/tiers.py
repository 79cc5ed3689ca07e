"""Bytes of one layer stored on GPU, CPU and disk, and moved between them.

Traffic is of one layer and one block; W the bytes of its weights, KV the bytes of the block's
cache, hidden states likewise. Source: FlexGen (Sheng et al. 2023, arXiv 2303.06865), A.3.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

ABSENT = 1e6  # bytes/s or FLOP/s in place of zero: an absent tier is slow, not infinite


class Moved(NamedTuple):
    """An amount for weights, for KV cache and for hidden states."""

    weights: Array | float = 0.0
    cache: Array | float = 0.0
    hidden: Array | float = 0.0

    def times(self, other: "Moved") -> "Moved":
        """The product, kind by kind."""
        return Moved(*(a * b for a, b in zip(self, other, strict=True)))

    @property
    def total(self) -> Array:
        """The three together."""
        return self.weights + self.cache + jnp.asarray(self.hidden)


class Placement(NamedTuple):
    """Fractions of weights, KV cache and hidden states on GPU, CPU and disk; triples sum to 1."""

    gpu: Moved
    cpu: Moved
    disk: Moved

    @property
    def away(self) -> Moved:
        """The shares that are not on the GPU."""
        return Moved(*(c + d for c, d in zip(self.cpu, self.disk, strict=True)))


def make_placement(gpu: Moved, cpu: Moved) -> Placement:
    """The placement with the rest on disk; a rest of rounding alone is none."""
    return Placement(gpu, cpu, Moved(*(rest(g, c) for g, c in zip(gpu, cpu, strict=True))))


def rest(a: Array | float, b: Array | float) -> Array:
    """1 - a - b, and exactly 0 where only rounding is left; the gradient is that of 1 - a - b."""
    left = jnp.asarray(1.0 - a - b)
    nothing = jnp.abs(left) < 32.0 * jnp.finfo(left.dtype).eps
    return left - lax.stop_gradient(jnp.where(nothing, left, 0.0))


class TierTraffic(NamedTuple):
    """Bytes over each link: CPU to GPU, GPU to CPU, disk to CPU, CPU to disk."""

    to_gpu: Moved
    to_cpu: Moved
    read: Moved
    written: Moved


def prefill_traffic(at: Placement, weights: Array, cache: Array, hidden: Array) -> TierTraffic:
    """Bytes of one layer in prefill: weights in, the new cache and the hidden states out and in.

    ``cache``, ``hidden``: bytes of the whole block. What lives on disk passes through the CPU.
    """
    loaded, stored = Moved(weights, 0.0, hidden), Moved(0.0, cache, hidden)
    return TierTraffic(
        to_gpu=at.away.times(loaded),
        to_cpu=at.away.times(stored),
        read=at.disk.times(loaded),
        written=at.disk.times(stored),
    )


def decode_traffic(
    at: Placement,
    weights: Array,
    held: Array,
    fresh: Array,
    hidden: Array,
    crossing: Array | float = 0.0,
    returned: Array | float = 0.0,
) -> TierTraffic:
    """Bytes of one layer for one token of each sample.

    Args:
        held: cache that attention reads, ``fresh``: cache of the new token.
        crossing: the share of the cache away from the GPU that crosses to it: 0 where the CPU
            attends, 1 where the GPU does.
        returned: the share of the new token's cache that is written back: 0 in FlexGen's models.
    """
    return TierTraffic(
        to_gpu=at.away.times(Moved(weights, crossing * held, hidden)),
        to_cpu=at.away.times(Moved(0.0, returned * fresh, hidden)),
        read=at.disk.times(Moved(weights, held, hidden)),
        written=at.disk.times(Moved(0.0, fresh, hidden)),
    )


def seconds(amount: Array, rate: Array | float) -> Array:
    """Time of an amount at a rate; a rate of zero counts as ``ABSENT``, with gradient 0."""
    return amount / jnp.where(rate > 0, rate, ABSENT)


def transfer_time(moved: Moved, rates: Moved) -> Array:
    """Seconds to move weights, cache and hidden states one after the other, each at its rate."""
    return sum(
        (seconds(jnp.asarray(m), r) for m, r in zip(moved, rates, strict=True)),
        start=jnp.asarray(0.0),
    )
