"""A model as the serving estimator reads it: table of layers, vocabulary, formats."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from infer_jax.physics import attention as att
from infer_jax.physics.layers import Layer, Weights, table
from infer_jax.physics.memory.resident import Resident, VocabularyBytes, tables
from infer_jax.specs import Architecture, Attention, Experts, Feedforward, Format
from infer_jax.typed_jax import trees


class Shape(NamedTuple):
    """A model as a server sees it.

    ``quantised``: how many of its two classes of products (attention, feedforward) quantise their
    activations at run time; ``exchanged``: the most experts that a token is sent to; ``cached``:
    bytes of a number in the cache.
    """

    layers: Layer
    width: Float[Array, ""]
    tables: VocabularyBytes
    head: Weights
    activation: Float[Array, ""]
    parallel: Float[Array, ""]
    quantised: Float[Array, ""]
    exchanged: Float[Array, ""]
    cached: Float[Array, ""]

    @property
    def resident(self) -> Resident:
        """The model as memory holds it."""
        return Resident(self.layers, self.width, self.tables, self.activation)


def shape(arch: Architecture, blocks: int = 0) -> Shape:
    """The numbers of a model, with at least ``blocks`` rows: shapes of equally many can be stacked.

    Stored bytes, FLOP and contexts are those of ``physics``. ``exchanged`` is the active experts
    of a token; activations are quantised at run time for products in 4 bits, and for those in 8
    bits whose weights have scales by block, that is, take more than a byte.
    """
    layers = table(arch, blocks)
    there = jnp.where(layers.count > 0, 1.0, 0.0)
    classes = trees.stack(layers.projections, layers.routed)
    scaled = jnp.max(_scaled(classes) * there, axis=-1)
    vocabulary = arch.vocabulary * arch.width
    head = arch.head
    return Shape(
        layers=layers,
        width=arch.width,
        tables=tables(arch),
        head=Weights(vocabulary, head.bytes, head.bits),
        activation=arch.activations.bytes,
        parallel=arch.parallel,
        quantised=jnp.asarray(jnp.sum(scaled), layers.count.dtype),
        exchanged=jnp.max(layers.active),
        cached=arch.cache.bytes,
    )


def with_formats(
    arch: Architecture,
    *,
    attention: Format | None = None,
    dense: Format | None = None,
    experts: Format | None = None,
    shared: Format | None = None,
    cache: Format | None = None,
) -> Architecture:
    """The same model with its matrices stored and multiplied in other formats, by their kind."""

    def mixing(a: Attention | None) -> Attention | None:
        return a if a is None or attention is None else att.of(a).with_weights(attention)

    def feeding(f: Feedforward | None) -> Feedforward | None:
        if f is None:
            return f
        if not isinstance(f, Experts):
            return f.replace(weights=dense or f.weights)
        common = f.shared.replace(weights=shared or f.shared.weights)
        return f.replace(weights=experts or f.weights, shared=common)

    blocks = tuple(
        b.replace(attention=mixing(b.attention), feedforward=feeding(b.feedforward))
        for b in arch.blocks
    )
    return arch.replace(blocks=blocks, cache=cache or arch.cache)


def _scaled(weights: Weights) -> Float[Array, "classes layers"]:
    """1 where activations are quantised at run time: products in 4 bits, or scales by block."""
    blocked = (weights.bits <= 8.0) & (weights.bytes > 1.0)
    exists = weights.elements > 0
    return jnp.where(exists & ((weights.bits <= 4.0) | blocked), 1.0, 0.0)
