"""A model as the memory account reads it: its table of layers, vocabulary and ranks."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics import pipelining
from infer_jax.physics.layers import Layer, table
from infer_jax.physics.numerics import at_least
from infer_jax.specs import Architecture

TWO = 2.0  # bytes of a number of a norm, a bias or a convolution


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
