"""The inputs of every term of a pass: coefficients, model, hardware, plan, engine."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from infer_jax.estimators.serving.coefficients import Coefficients
from infer_jax.estimators.serving.engines import Engine, Generation
from infer_jax.estimators.serving.plan import Deployment
from infer_jax.physics import attention as att, matmul, pipelining
from infer_jax.physics.layers import Layer, Weights, table
from infer_jax.physics.memory.chip_memory import Resident, VocabularyBytes, tables
from infer_jax.physics.network import switch_collectives
from infer_jax.physics.network.switch_collectives import Wire
from infer_jax.specs import Architecture, Attention, Experts, Feedforward, Format, Hardware
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


Option = TypeVar("Option")


class Context(NamedTuple):
    """Coefficients, the model that is served, hardware and plan, with engine and generation chosen.

    ``draft``: the context of a draft model on the same chips. ``longest``: layers of the longest
    pipeline stage over those of the mean one, by which the layers in ``shape`` are multiplied.
    """

    coefficients: Coefficients
    shape: Shape
    hardware: Hardware
    plan: Deployment
    engine: Engine
    generation: Generation
    draft: "Context | None" = None
    longest: Array | float = 1.0

    def for_model(self, seen: Shape) -> "Context":
        """The same for another model, with every pipeline stage as long as its longest."""
        longest = pipelining.longest(jnp.sum(seen.layers.count, axis=-1), self.plan.pp)
        layers = seen.layers._replace(count=seen.layers.count * longest)
        return self._replace(shape=seen._replace(layers=layers), longest=longest)

    @property
    def drafting(self) -> Array:
        """1 where tokens are drafted, else 0."""
        return jnp.where(self.plan.drafts > 0.0, 1.0, 0.0)

    @property
    def bandwidth(self) -> Array:
        """Bytes/s of one chip's memory, of the data sheet."""
        return self.hardware.chip.memory_bandwidth

    @property
    def wire(self) -> Wire:
        """What collectives among single chips run over."""
        network, share = self.hardware.network, self.coefficients.link
        domain, near, beyond = switch_collectives.reach(network)
        shot, pair = self.coefficients.one_shot, switch_collectives.pair_share(network)
        far = self.coefficients.far_hop
        return Wire(self.coefficients.hop, near * share, shot, domain, beyond * share, pair, far)

    @property
    def attention_flops(self) -> Array:
        """FLOP/s of one chip in attention, 16 bits, of the data sheet."""
        return self.hardware.chip.flops_16

    def decode_rate(self, new: Array | float) -> Array:
        """FLOP/s of one chip in decode attention, layer by layer, ``new`` tokens a sequence."""
        g, attention = self.generation, self.shape.layers.attention
        share = jnp.where(self.shape.cached > 1.5, g.attention_16, g.attention_8)
        return self.attention_flops * share * attention.tile_fill(new, self.plan.tp, g.tile)

    def dense_rate(self, bits: Array) -> Array:
        """FLOP/s that a large product reaches at a matmul class; less with scales by block."""
        g = self.generation
        eight = g.gemm_8 * jnp.where(self.shape.quantised > 0.5, g.blocked, 1.0)
        share = jnp.where(bits <= 4.0, g.gemm_4, jnp.where(bits <= 8.0, eight, g.gemm_16))
        return matmul.rate(self.hardware.chip, bits) * share

    @property
    def read_rate(self) -> Array:
        """Bytes/s at which weights are read."""
        return self.bandwidth * self.coefficients.weight_read


def select(options: Sequence[Option], code: Array) -> Option:
    """The option of that code, leaf by leaf."""
    first, *rest = options
    for i, option in enumerate(rest, 1):
        later = code > i - 0.5
        first = trees.where(later, option, first)
    return first
