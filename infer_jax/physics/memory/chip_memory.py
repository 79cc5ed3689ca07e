"""How much of one chip do weights, activations and what is left for the cache take, in bytes?

A model is its table of layers, its vocabulary and the ranks that share it. Weights and activations
are of a chip that holds the most: of the longest pipeline stage, with one of the vocabulary tables
at an end of the pipeline, which samples.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics import pipelining
from infer_jax.physics.layers import Layer, table
from infer_jax.physics.numerics import at_least
from infer_jax.specs import Architecture

TWO = 2.0  # bytes of a number of a norm, a bias or a convolution
ALIVE = 3.0  # copies of the model width alive inside a layer: residual, normed input, output


class VocabularyBytes(NamedTuple):
    """Bytes outside the layers: both vocabulary tables and the last norm.

    ``head`` is 0 where it is tied to the embedding, which ``tied`` then says.
    """

    vocabulary: Array
    embedding: Array
    head: Array
    tied: Array
    vectors: Array


class Resident(NamedTuple):
    """A model as memory holds it: its layers, its width and tables, bytes of an activation."""

    layers: Layer
    width: Array
    tables: VocabularyBytes
    activation: Array


class Ranks(NamedTuple):
    """Chips of an instance: ``groups`` of ``tp`` ranks share its experts, in ``stages`` stages."""

    tp: Array
    groups: Array
    stages: Array


def resident(arch: Architecture, blocks: int = 0) -> Resident:
    """The numbers of a model, with at least ``blocks`` rows."""
    return Resident(table(arch, blocks), arch.width, tables(arch), arch.activations.bytes)


def tables(arch: Architecture) -> VocabularyBytes:
    """The vocabulary tables of a model and its last norm."""
    elements = arch.vocabulary * arch.width
    return VocabularyBytes(
        vocabulary=arch.vocabulary,
        embedding=elements * arch.embedding.bytes,
        head=(1.0 - arch.tied) * elements * arch.head.bytes,
        tied=arch.tied,
        vectors=TWO * arch.vectors,
    )


def on_chip(layers: Layer, ranks: Ranks, more: Array | float = 0.0) -> Array:
    """Layers of each block on a chip of the longest stage; ``more`` of the mean layer beside them.

    Source of the stages: vLLM 0.19, distributed/utils.py, get_pp_indices.
    """
    whole = jnp.sum(layers.count, axis=-1)
    stage = pipelining.longest(whole, ranks.stages) / at_least(ranks.stages, 1.0)
    return layers.count * (stage + more / jnp.where(whole > 0, whole, 1.0))[..., None]


def expert_padding(layers: Layer, multiple: Array | float) -> Array:
    """Stored over true size of experts in 4 bits, whose kernels want whole tiles; else 1.

    ceil(d / multiple) multiple / d for the width d that the experts read and write.
    Source: vLLM, quantization/mxfp4.py (v0.10 to 0.19): gpt-oss, 2880 stored as 3072.
    """
    outer = jnp.where(layers.sizes.expert_outer_width > 0, layers.sizes.expert_outer_width, 1.0)
    padded = jnp.ceil(outer / multiple) * multiple
    return jnp.where((layers.mixture > 0.5) & (layers.routed.bytes < 1.0), padded / outer, 1.0)


def weight_bytes(
    model: Resident, ranks: Ranks, multiple: Array | float = 1.0, drafting: Array | float = 0.0
) -> dict[str, Array]:
    """Bytes of weights on one chip by kind, the kinds of ``decoder.weight_bytes``.

    Layers over the stages, matrices over the ``tp`` ranks, routed experts over the chips of all
    attention groups, padded to ``multiple``; K and V beyond one head a rank, the latents'
    down-projections, routers and norms are copied. ``drafting`` 1 adds a layer for the model's
    own drafts (DeepSeek-V3, arXiv 2412.19437, Section 2.2). Of the two vocabulary tables the ends
    of a pipeline hold one each. On one chip, unpadded, this is ``decoder.weight_bytes``.
    Source: vLLM, model_executor/layers/linear.py and vocab_parallel_embedding.py (v0.19).
    """
    rows, tables, tp = model.layers, model.tables, ranks.tp
    count = on_chip(rows, ranks, drafting)
    ranked, (split, grouped, copied) = tp[..., None], rows.sizes.dealt
    attention = split / ranked + grouped * rows.attention.share(ranked) + copied
    attention = attention * rows.projections.bytes
    dealt = count * rows.experts * rows.routed.stored / ranked
    experts = dealt * rows.mixture / ranks.groups[..., None] * expert_padding(rows, multiple)
    looked_up = jnp.where(ranks.stages > 1.0, tables.tied, 1.0)
    other = TWO * jnp.sum(count * (rows.sizes.vectors + rows.sizes.convolution / ranked), axis=-1)
    return {
        "attention": jnp.sum(count * attention, axis=-1),
        "feedforward": jnp.sum(dealt * (1.0 - rows.mixture), axis=-1),
        "experts": jnp.sum(experts, axis=-1),
        "shared": jnp.sum(count * rows.shared.stored, axis=-1) / tp,
        "router": jnp.sum(count * rows.router.stored, axis=-1),
        "embedding": looked_up * tables.embedding / tp,
        "head": tables.head / tp,
        "other": other + tables.vectors,
    }


class Activations(NamedTuple):
    """Bytes of activations of a pass: of a token ``inside`` the widest layer and at the ``end``.

    ``sampled``: of the logits of a sequence, at the end.
    """

    inside: Array
    end: Array
    sampled: Array

    def peak(self, tokens: Array, sequences: Array) -> Array:
        """Bytes at the peak of a pass of ``tokens`` tokens, of which ``sequences`` are sampled."""
        end = self.end * tokens + self.sampled * jnp.minimum(sequences, tokens)
        return jnp.maximum(self.inside * tokens, end)


def activations(model: Resident, ranks: Ranks, logit_bytes: Array) -> Activations:
    """Bytes of activations of a token and of a sampled sequence.

    max over layers of expert workspace + max(inside the widest layer, hidden states + logits):
    inside a layer, a token has ``ALIVE`` model widths and the in- and outputs of the hidden
    layer, split over tp; at the end its hidden state, and each sampled sequence
    ``logit_bytes`` per entry of the vocabulary, gathered whole on every rank. A stage that is
    not the first holds the two tensors it received.
    Source: the profiling pass of vLLM, v1/worker/gpu_model_runner.py (v0.19).
    """
    size, space, tp = model.activation, model.layers.sizes, ranks.tp
    hidden = model.width * size
    widest = jnp.max(jnp.maximum(space.attention_width, space.feedforward_width), axis=-1) / tp
    workspace = size * jnp.max(_workspace_width(model.layers, tp), axis=-1)
    always = workspace + jnp.where(ranks.stages > 1.0, 2.0 * hidden, 0.0)
    return Activations(
        inside=always + size * (widest + ALIVE * model.width),
        end=always + hidden,
        sampled=model.tables.vocabulary * logit_bytes,
    )


def _workspace_width(layers: Layer, tp: Array) -> Array:
    """Numbers per token of a fused mixture kernel, which keeps them between layers; else 0.

    For each of the active experts, one buffer for its hidden layer's input and, later, its
    output, and one for the activated hidden layer: a (max(inward f, d) + f), f = width / tp.
    Source: vLLM, model_executor/layers/fused_moe/fused_moe.py (v0.19).
    """
    space, inner = layers.sizes, layers.sizes.expert_width / tp[..., None]
    widths = jnp.maximum(space.expert_input_matrices * inner, space.expert_outer_width) + inner
    return layers.mixture * layers.active * widths
