"""What does a model ask of a server, whatever its attention and feedforward are made of?

Every layer, of any kind, as one row of numbers; the rows of a model's blocks stand one after the
other in arrays. Models of different structure thus become pytrees of one structure, so that one
compiled program serves all of them, row by row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.physics import attention as att, feedforward as ffn, matmul
from infer_jax.specs import (
    UNBOUNDED,
    Architecture,
    Attention,
    Block,
    Experts,
    Feedforward,
    Format,
)


class Weights(NamedTuple):
    """Matrices of one kind in a layer: elements, stored bytes of one, its matmul class."""

    elements: Array
    bytes: Array
    bits: Array


class Layer(NamedTuple):
    """One layer of a block; every number has the blocks' axis.

    Of attention: its projections and the numbers of ``attention.Row``. Of feedforward: ``routed``
    is one expert, or all of a dense layer, ``mixture`` 1 for experts.
    """

    count: Array
    mixes: Array
    feeds: Array
    projections: Weights
    launches: Array
    cache: Array
    owned: Array
    split: Array
    index: Array
    state: Array
    window: Array
    top_k: Array
    absorbed: Array
    expanded: Array
    indexing: Array
    recurring: Array
    near: Array
    near_cache: Array
    near_flops: Array
    mixture: Array
    experts: Array
    active: Array
    routed: Weights
    shared: Weights
    router: Weights


class Shape(NamedTuple):
    """A model as a server sees it.

    ``tables``: bytes of embedding and head; ``quantised``: how many of its two classes of products
    (attention, feedforward) quantise activations as they run; ``exchanged``: the most places that
    a token is sent to.
    """

    layers: Layer
    width: Array
    tables: Array
    head: Weights
    activation: Array
    parallel: Array
    quantised: Array
    exchanged: Array


def shape(arch: Architecture, blocks: int = 0) -> Shape:
    """The numbers of a model, with at least ``blocks`` rows: shapes of equal rows can be stacked.

    Stored bytes, FLOP and contexts are those of ``physics``. ``exchanged`` is the active experts
    of a token; activations are quantised as they run in 4 bits, and in 8 bits where weights have
    scales by block, that is, take more than a byte.
    """
    rows = [_layer(arch, b) for b in arch.blocks]
    rows += [_empty()] * (blocks - len(rows))
    kind = jnp.result_type(*jax.tree.leaves(arch))
    layers = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(v, kind) for v in x]), *rows)
    there = jnp.where(layers.count > 0, 1.0, 0.0)
    scaled = [_scaled(c) * there for c in (layers.projections, layers.routed)]
    table = arch.vocabulary * arch.width
    head = arch.head
    return Shape(
        layers=layers,
        width=arch.width,
        tables=table * (arch.embedding.bytes + (1.0 - arch.tied) * head.bytes),
        head=Weights(table, head.bytes, head.bits),
        activation=arch.activations.bytes,
        parallel=arch.parallel,
        quantised=jnp.asarray(jnp.max(scaled[0]) + jnp.max(scaled[1]), kind),
        exchanged=jnp.max(layers.active),
    )


def formatted(
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
        return a if a is None or attention is None else att.of(a).formatted(attention)

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


def _empty() -> Layer:
    """A row of no layers, whose numbers divide safely."""
    none = Weights(0.0, 2.0, 16.0)  # pyright: ignore[reportArgumentType]
    blank = dict.fromkeys(Layer._fields, 0.0)
    matrices = dict.fromkeys(("projections", "routed", "shared", "router"), none)
    ones = dict.fromkeys(("split", "experts", "active"), 1.0)
    far = dict.fromkeys(("window", "top_k"), UNBOUNDED)
    return Layer(**{**blank, **matrices, **ones, **far})  # pyright: ignore[reportArgumentType]


def _layer(arch: Architecture, block: Block) -> Layer:
    row = _empty()._replace(count=block.count)
    if block.attention is not None:
        row = _mixing(row, arch, block.attention)
    if block.feedforward is not None:
        row = _feeding(row, arch, block.feedforward)
    return row


def _mixing(row: Layer, arch: Architecture, attention: Attention) -> Layer:
    layer = att.of(attention)
    elements, stored = matmul.elements(layer.matrices(arch.width)), layer.weights
    return row._replace(
        mixes=jnp.asarray(1.0),
        projections=Weights(elements, stored.bytes, stored.bits),
        **layer.row(arch)._asdict(),
    )


def _feeding(row: Layer, arch: Architecture, feedforward: Feedforward) -> Layer:
    one, stored = jnp.asarray(1.0), feedforward.weights
    elements = ffn.matrices(feedforward) * ffn.matrix(feedforward, arch.width).elements
    row = row._replace(feeds=one, routed=Weights(elements, stored.bytes, stored.bits))
    if not isinstance(feedforward, Experts):
        return row
    common = feedforward.shared.weights
    return row._replace(
        mixture=one,
        experts=feedforward.experts,
        active=feedforward.active,
        shared=Weights(ffn.common_elements(feedforward, arch.width), common.bytes, common.bits),
        router=row.router._replace(elements=ffn.router_elements(feedforward, arch.width)),
    )


def _scaled(weights: Weights) -> Array:
    """1 where activations are quantised as they run: products in 4 bits, or scales by block."""
    blocked = (weights.bits <= 8.0) & (weights.bytes > 1.0)
    exists = weights.elements > 0
    return jnp.where(exists & ((weights.bits <= 4.0) | blocked), 1.0, 0.0)
