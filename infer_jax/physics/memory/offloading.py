"""Bytes of numbers in groups of few bits, and traffic and peak memory of offloading by its order.

An offloading job is a graph of squares: a row is a sample, a column one layer of one token. Weights
are loaded for a column, cache and hidden states for every square; no attention on the CPU.
``weights``: bytes of a layer; ``hidden``: bytes of a hidden state of one token; ``cache``: bytes of
a token's cache in one layer. Source: FlexGen (Sheng et al. 2023, arXiv 2303.06865), Appendix A.2.
"""

from typing import NamedTuple

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
