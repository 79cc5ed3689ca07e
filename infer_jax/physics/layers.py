"""An architecture as a table: one row of numbers for each block of equal layers.

Estimators read rows; what a kind of attention does, ``physics.attention`` alone knows. Models of
different structure are tables of one structure, so that one compiled program serves all of them,
row by row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from infer_jax.physics import attention as att, feedforward as ffn, matmul
from infer_jax.physics.attention.row import Numbers, blank
from infer_jax.specs import Architecture, Block, Experts, Feedforward


class Weights(NamedTuple):
    """Matrices of one kind in a layer: elements, stored bytes of one, its matmul class."""

    elements: Numbers
    bytes: Numbers
    bits: Numbers

    @property
    def stored(self) -> Numbers:
        """Bytes of the matrices as they are stored."""
        return self.elements * self.bytes


class OtherSizes(NamedTuple):
    """Sizes of a layer on which a GPU's memory depends, beside matrices, cache and state."""

    dealt: att.Dealt  # elements of the projections, by how tensor ranks divide them
    convolution: Numbers  # weights of a short convolution, divided over tensor ranks
    vectors: Numbers  # elements of norms and biases, which every rank holds
    attention_width: Numbers  # numbers a token that attention's input projections write
    feedforward_width: Numbers  # numbers a token in and out of the feedforward that all tokens pass
    expert_outer_width: Numbers  # width that experts read and write
    expert_width: Numbers  # width inside an expert
    expert_input_matrices: Numbers  # matrices of an expert that read its input: 2 of a gated one


class Layer(NamedTuple):
    """One layer of each block: a number each, or one array over the blocks.

    ``count``: such layers. ``has_attention``, ``has_feedforward``: 1 where it has one, else 0.
    Of a feedforward: ``routed`` is one expert, or all of a dense layer; ``mixture``: 1 for experts.
    """

    count: Numbers
    has_attention: Numbers
    has_feedforward: Numbers
    attention: att.Row
    projections: Weights
    mixture: Numbers
    experts: Numbers
    active: Numbers
    routed: Weights
    shared: Weights
    router: Weights
    sizes: OtherSizes

    @property
    def matrix_bytes(self) -> Numbers:
        """Bytes of a layer's matrices, every expert among them, the router apart."""
        return self.projections.stored + self.experts * self.routed.stored + self.shared.stored

    @property
    def elements(self) -> Numbers:
        """Elements of a layer's matrices, every expert among them, the router apart."""
        whole = self.projections.elements + self.experts * self.routed.elements
        return whole + self.shared.elements

    @property
    def used(self) -> Numbers:
        """Elements of a layer's matrices that one token is multiplied with, the router apart."""
        met = self.projections.elements + self.active * self.routed.elements
        return met + self.shared.elements


def rows(arch: Architecture) -> list[Layer]:
    """The rows of a model, one for each of its blocks, every number a scalar."""
    return [row(arch, block) for block in arch.blocks]


def table(arch: Architecture, blocks: int = 0) -> Layer:
    """The rows of a model as arrays over its blocks, with at least ``blocks`` of them.

    Rows that are added are of no layers. Tables of equally many rows can be stacked.
    """
    every = [row(arch, block) for block in arch.blocks]
    every += [no_layers()] * (blocks - len(every))
    kind = jnp.result_type(*jax.tree.leaves(arch))
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(v, kind) for v in x]), *every)


def row(arch: Architecture, block: Block) -> Layer:
    """One layer of a block in numbers."""
    layer_row = no_layers()
    layer_row = layer_row._replace(
        count=block.count, sizes=layer_row.sizes._replace(vectors=block.vectors)
    )
    if block.attention is not None:
        layer = att.of(block.attention)
        elements, stored = matmul.elements(layer.matrices(arch.width)), layer.weights
        layer_row = layer_row._replace(
            has_attention=jnp.asarray(1.0),
            projections=Weights(elements, stored.bytes, stored.bits),
            attention=layer.numbers(arch.cache, arch.activations),
            sizes=layer_row.sizes._replace(
                dealt=layer.dealt(arch.width),
                convolution=layer.convolution,
                attention_width=layer.output_width,
            ),
        )
    if block.feedforward is not None:
        layer_row = _with_feedforward(layer_row, arch, block.feedforward)
    return layer_row


def no_layers() -> Layer:
    """A row of no layers, whose numbers divide safely."""
    zero, one = jnp.asarray(0.0), jnp.asarray(1.0)
    none = Weights(zero, jnp.asarray(2.0), jnp.asarray(16.0))
    space = OtherSizes(att.Dealt(zero, zero, zero), *(zero for _ in OtherSizes._fields[1:]))
    return Layer(zero, zero, zero, blank(), none, zero, one, one, none, none, none, space)


def _with_feedforward(one_row: Layer, arch: Architecture, feedforward: Feedforward) -> Layer:
    one, stored = jnp.asarray(1.0), feedforward.weights
    elements = ffn.matrices(feedforward) * ffn.matrix(feedforward, arch.width).elements
    dense = feedforward.shared if isinstance(feedforward, Experts) else feedforward
    space = one_row.sizes._replace(feedforward_width=(dense.inward + 1.0) * dense.width)
    one_row = one_row._replace(
        has_feedforward=one, routed=Weights(elements, stored.bytes, stored.bits)
    )
    if not isinstance(feedforward, Experts):
        return one_row._replace(sizes=space)
    common = feedforward.shared.weights
    return one_row._replace(
        mixture=one,
        experts=feedforward.experts,
        active=feedforward.active,
        shared=Weights(ffn.common_elements(feedforward, arch.width), common.bytes, common.bits),
        router=one_row.router._replace(elements=ffn.router_elements(feedforward, arch.width)),
        sizes=space._replace(
            expert_outer_width=ffn.matrix(feedforward, arch.width).inputs,
            expert_width=feedforward.width,
            expert_input_matrices=feedforward.inward,
        ),
    )
