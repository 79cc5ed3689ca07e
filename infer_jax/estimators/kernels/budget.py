"""InferSim's memory budget of one GPU, and its FLOP report.

Quirks, kept: the rotary part of the latent down-projection and the output projection of linear
layers are left out, the convolution takes one byte, experts are divided over all GPUs without
tensor parallelism and not at all with it. Bytes throughout. Source: InferSim, its program.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.kernels.published import PhaseInputs, per_pair, rank_attention
from infer_jax.physics.decoder import total
from infer_jax.specs import Block, Dense, Experts, GroupedQuery, Latent, Linear


class Budget(NamedTuple):
    """Bytes of one layer's parts, of all weights, of a token's cache and a request's state."""

    attention: Array
    linear: Array
    expert: Array
    weights: Array
    token: Array
    state: Array
    space: Array


def attention_bytes(block: Block, job: PhaseInputs) -> Array:
    """Bytes of the projections of one layer on one rank."""
    attention, width = block.attention, job.arch.width
    match attention:
        case GroupedQuery():
            cut = rank_attention(attention, job.tp)
            elements = 2.0 * width * cut.head_width * (cut.query_heads + cut.kv_heads)
        case Latent():
            cut = rank_attention(attention, job.tp)
            heads, rank = cut.query_heads, cut.query_rank
            queries = rank * heads * (cut.nope_width + cut.rope_width)
            values = cut.kv_rank * heads * (cut.nope_width + cut.value_width)
            latents = width * (rank + cut.kv_rank)
            elements = latents + queries + values + width * heads * cut.value_width
        case Linear():
            keys = attention.key_heads * attention.key_width
            values = attention.value_heads * attention.value_width
            wide = 2.0 * width * (keys + values + attention.value_heads)
            convolved = attention.conv_width * (2.0 * keys + values)
            return wide * attention.weights.bytes + convolved
        case _:
            return jnp.asarray(0.0)
    return elements * attention.weights.bytes


def cached_bytes(block: Block, job: PhaseInputs) -> Array:
    """Bytes of cache of one token in one layer; 0 where it is linear."""
    match block.attention:
        case GroupedQuery():
            cut = rank_attention(block.attention, job.tp)
            elements = cut.kv_heads * (cut.head_width + cut.value_width)
        case Latent():
            elements = block.attention.kv_rank + block.attention.rope_width
        case _:
            return jnp.asarray(0.0)
    return elements * job.arch.cache.bytes


def state_bytes(block: Block) -> Array:
    """Bytes of state of one request in one linear layer, 16-bit taps and a 32-bit state."""
    if not isinstance(block.attention, Linear):
        return jnp.asarray(0.0)
    a = block.attention
    taps = (a.conv_width - 1.0) * (a.value_heads * a.value_width + 2.0 * a.key_heads * a.key_width)
    return 2.0 * taps + 4.0 * a.value_heads * a.key_width * a.value_width


def budget(job: PhaseInputs) -> Budget:
    """The memory of one GPU; ``space`` is what is left for the cache and may be negative."""
    weights, expert = jnp.asarray(0.0), jnp.asarray(0.0)
    full, linear = jnp.asarray(0.0), jnp.asarray(0.0)
    for block in job.arch.blocks:
        size = attention_bytes(block, job)
        if isinstance(block.attention, Linear):
            linear = size
        else:
            full = size
        layer = block.feedforward
        if layer is None:
            continue
        inner = jnp.floor(layer.width / job.tp)
        expert = 3.0 * job.arch.width * inner * layer.weights.bytes
        routed = layer.experts if isinstance(layer, Experts) else jnp.asarray(1.0)
        common = layer.shared.width / layer.width if isinstance(layer, Experts) else 0.0
        held = common + jnp.where(job.tp > 1.0, routed, routed / job.world)
        weights = weights + block.count * (size + expert * held)
    model = job.model
    capacity = job.hardware.chip.memory * model.byte_giga
    return Budget(
        attention=full,
        linear=linear,
        expert=expert,
        weights=weights,
        token=total(b.count * cached_bytes(b, job) for b in job.arch.blocks),
        state=total(b.count * state_bytes(b) for b in job.arch.blocks),
        space=capacity - weights - model.reserve,
    )


def work(job: PhaseInputs) -> dict[str, Array]:
    """FLOP per token of one layer: attention core at the mean context, experts, projections.

    The projections of full attention are counted for every layer, those of linear layers not.
    """
    width = job.arch.width
    flops: dict[str, Array] = {}
    for block in job.arch.blocks:
        attention, layer = block.attention, block.feedforward
        if isinstance(attention, GroupedQuery | Latent):
            cut = rank_attention(attention, job.tp)
            flops["attn_core"] = per_pair(cut, "decode") * job.length
            flops["others"] = _projected(cut, width)
        if layer is not None:
            active = layer.active if isinstance(layer, Experts) else 1.0
            common = 0.0 if isinstance(layer, Dense) else layer.shared.width / layer.width
            inner = jnp.floor(layer.width / job.tp)
            flops["moe"] = 6.0 * (common + active) * width * inner
    return flops


def _projected(cut: GroupedQuery | Latent, width: Array) -> Array:
    if isinstance(cut, GroupedQuery):
        return 4.0 * width * cut.head_width * (cut.query_heads + cut.kv_heads)
    heads, plain = cut.query_heads, cut.nope_width
    down = width * (cut.query_rank + cut.kv_rank + cut.rope_width)
    up = cut.query_rank * heads * (plain + cut.rope_width)
    absorbed = heads * cut.kv_rank * (plain + cut.value_width)
    return 2.0 * (down + up + absorbed + heads * cut.value_width * width)
