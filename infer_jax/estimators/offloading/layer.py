"""What is one layer of the model to an offloading job: bytes and FLOP of the mean layer?

A block's time is a sum over layers of largest terms; layers that differ are taken as their
mean, which is exact for a model of equal layers. Buffers are those of the largest layer.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics import attention as att, decoder, feedforward as ffn, matmul
from infer_jax.physics.compression import padded
from infer_jax.physics.decoder import total
from infer_jax.specs import Architecture, Experts, Feedforward


class Buffers(NamedTuple):
    """Bytes that one token of the largest layer needs while it is computed.

    ``inner``: input, queries, keys and values; ``hidden``: one hidden state; ``query``: all
    heads' queries; ``cache``: a token's keys; ``score``: one score of every head; ``mlp``:
    input and hidden layer of the feedforward.
    """

    inner: Array
    hidden: Array
    query: Array
    cache: Array
    score: Array
    mlp: Array


class Layer(NamedTuple):
    """The mean layer of a model; bytes of its weights as ``bits`` say, the cache likewise."""

    count: Array
    width: Array
    weights: Array  # bytes as stored
    loaded: Array  # bytes as multiplied, in the format of activations
    flops: Array  # per token
    buffers: Buffers
    cache: Callable[[Array], Array]  # stored bytes of one sequence's context of so many tokens
    opened: Callable[[Array], Array]  # the same as attention reads them
    attend: Callable[[Array, Array], Array]  # FLOP of so many queries over so many keys


def hidden_layer(feedforward: Feedforward) -> Array:
    """Numbers per token of the widest hidden layer that is computed."""
    if isinstance(feedforward, Experts):
        return feedforward.active * feedforward.width + feedforward.shared.width
    return feedforward.width


def buffers(arch: Architecture) -> Buffers:
    """Bytes a token needs in the largest of the layers."""
    size, zero = arch.activations.bytes, jnp.asarray(0.0)
    inner, query, cache, score, mlp = arch.width, zero, zero, zero, zero
    for block in arch.blocks:
        if block.attention is not None:
            heads, queries, keys = att.of(block.attention).operands
            inner = jnp.maximum(inner, arch.width + att.of(block.attention).output_width)
            query, cache = jnp.maximum(query, queries), jnp.maximum(cache, keys)
            score = jnp.maximum(score, heads)
        if block.feedforward is not None:
            mlp = jnp.maximum(mlp, arch.width + hidden_layer(block.feedforward))
    return Buffers(*(size * x for x in (inner, arch.width, query, cache, score, mlp)))


def mean_layer(arch: Architecture, weight_bytes: Array, cache_bytes: Array, group: Array) -> Layer:
    """The mean layer. ``weight_bytes``, ``cache_bytes``: stored bytes per element, 0: the
    model's own format; cache is compressed in groups of ``group`` elements, which pad a head.

    Embedding and head are left out, as FlexGen (arXiv 2303.06865, Section 4.1) leaves them.
    """
    count = decoder.layers(arch)
    matrices = [
        matmul.elements(att.of(b.attention).matrices(arch.width)) * b.count
        for b in arch.blocks
        if b.attention is not None
    ]
    fed = [(b, b.feedforward) for b in arch.blocks if b.feedforward is not None]
    feeds = [
        b.count * (ffn.routed_elements(f, arch.width) + ffn.common_elements(f, arch.width))
        for b, f in fed
    ]
    used = [
        b.count
        * (ffn.routed_elements(f, arch.width) / ffn.share(f) + ffn.common_elements(f, arch.width))
        for b, f in fed
    ]
    elements = total([*matrices, *feeds]) / count
    stored = decoder.weight_bytes(arch)
    own = total(stored[k] for k in ("attention", "feedforward", "experts", "shared")) / count

    def opened(context: Array) -> Array:
        return decoder.cache_bytes(arch, context) / count

    def cache(context: Array) -> Array:
        squeezed = total(
            b.count
            * padded(att.of(b.attention).grouped_width, group)
            * att.of(b.attention).held_bytes(arch.cache, context)
            for b in arch.blocks
            if b.attention is not None
        )
        squeezed = squeezed * cache_bytes / arch.cache.bytes / count
        return jnp.where(cache_bytes > 0, squeezed, opened(context))

    def attend(queries: Array, keys: Array) -> Array:
        return (
            total(
                b.count * att.of(b.attention).absorbed_flops(queries, keys)
                for b in arch.blocks
                if b.attention is not None
            )
            / count
        )

    return Layer(
        count=count,
        width=arch.width,
        weights=jnp.where(weight_bytes > 0, elements * weight_bytes, own),
        loaded=elements * arch.activations.bytes,
        flops=2.0 * total([*matrices, *used]) / count,
        buffers=buffers(arch),
        cache=cache,
        opened=opened,
        attend=attend,
    )
