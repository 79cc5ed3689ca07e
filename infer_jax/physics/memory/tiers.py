"""Bytes of one layer stored on GPU, CPU and disk and moved between them, and the order of the work.

Traffic is of one layer and one block; W the bytes of its weights, KV the bytes of the block's
cache, hidden states likewise. Numbers may be stored in groups of few bits. The order of an
offloading job is one in a graph of squares: a row is a sample, a column one layer of one token;
weights are loaded for a column, cache and hidden states for every square, with no attention on the
CPU. Source: FlexGen (Sheng et al. 2023, arXiv 2303.06865), Appendices A.2 and A.3.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from infer_jax.physics.decoder import total

METADATA = 32.0  # bits of a group: its scale and its minimum in 16 bits each
ABSENT = 1e6  # bytes/s or FLOP/s in place of zero: an absent tier is slow, not infinite


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


Number = Array | float  # an array or a plain number


class Graph(NamedTuple):
    """A model and its requests: layers, prompt s, tokens n, and bytes as above."""

    layers: Number
    prompt: Number
    tokens: Number
    weights: Number
    hidden: Number
    cache: Number


def weight_traffic(graph: Graph, blocks: Number) -> Number:
    """Bytes of weights for ``blocks`` blocks: each loads the whole model once a token, n L W.

    A block is a GPU batch where the schedule is row-by-row.
    """
    return blocks * graph.tokens * graph.layers * graph.weights


def hidden_traffic(graph: Graph, samples: Number) -> Number:
    """Bytes of hidden states, each square's in and out: 2 b L h (s + n - 1)."""
    positions = graph.prompt + graph.tokens - 1.0
    return 2.0 * samples * graph.layers * graph.hidden * positions


def cache_traffic(graph: Graph, samples: Number) -> Number:
    """Bytes of cache, each square's once: b L c (s n + n (n - 1) / 2)."""
    n = graph.tokens
    return samples * graph.layers * graph.cache * (graph.prompt * n + n * (n - 1.0) / 2.0)


def zigzag_peak(graph: Graph, samples: Number) -> Number:
    """Peak bytes of a zig-zag block: W + h b + c b L (s + n)."""
    held = graph.hidden + graph.cache * graph.layers * (graph.prompt + graph.tokens)
    return graph.weights + samples * held


def diagonal_tokens(prompt: Number, tokens: Number) -> Number:
    """Tokens of cache per sample of a diagonal block, whose samples are at all stages.

    Their mean, (2 s + n)(n - 1) / (2 n), one of the samples being new.
    """
    return (2.0 * prompt + tokens) * (tokens - 1.0) / (2.0 * tokens)


def diagonal_peak(graph: Graph, samples: Number) -> Number:
    """Peak bytes of a diagonal block: W + h b + c b L (2 s + n)(n - 1) / (2 n)."""
    mean = diagonal_tokens(graph.prompt, graph.tokens)
    return graph.weights + samples * (graph.hidden + graph.cache * graph.layers * mean)


def zigzag_block(graph: Graph, memory: Number) -> Number:
    """Samples of the largest zig-zag block: (M - W) / (h + c L (s + n))."""
    one = zigzag_peak(graph, 0.0 * memory + 1.0) - graph.weights
    return (memory - graph.weights) / one


def diagonal_block(graph: Graph, memory: Number) -> Number:
    """Samples of the largest diagonal block, in which samples stand at all tokens."""
    one = diagonal_peak(graph, 0.0 * memory + 1.0) - graph.weights
    return (memory - graph.weights) / one


def zigzag_over_optimal(prompt: Number, tokens: Number) -> Number:
    """Weight traffic of zig-zag over the least there can be, for large graphs: at most 2.

    A load serves squares whose caches fit together; over a row these average s + (n + 1) / 2
    tokens, while zig-zag leaves room for s + n. Theorem 4.1 and its proof (Appendix A.2.2).
    """
    return (prompt + tokens) / (prompt + (tokens + 1.0) / 2.0)


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

    def times(self, rates: "TierTraffic") -> dict[str, Array]:
        """Seconds on each link: weights, cache and hidden states in turn, each at its rate."""
        return {
            link: total(seconds(jnp.asarray(m), r) for m, r in zip(moved, rate, strict=True))
            for link, moved, rate in zip(self._fields, self, rates, strict=True)
        }


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
