"""One pass as InferSim's program adds it up: time, terms, and its memory budget of one GPU.

Quirks of the budget, kept: the rotary part of the latent down-projection and the output projection
of linear layers are left out, the convolution takes one byte, experts are divided over all GPUs
without tensor parallelism and not at all with it. Source: InferSim, its program.
"""

from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.errors import InputError
from infer_jax.estimators.estimate import Limit, Phase
from infer_jax.estimators.kernels.coefficients import Coefficients, KernelsPlan
from infer_jax.estimators.kernels.efficiency import Kernel
from infer_jax.estimators.kernels.published import (
    PhaseInputs,
    communication,
    core,
    feedforward,
    projections,
    rank_attention,
)
from infer_jax.physics.decoder import total
from infer_jax.specs import (
    Architecture,
    Attention,
    Block,
    Experts,
    Feedforward,
    ForwardPass,
    GroupedQuery,
    Hardware,
    Latent,
    Linear,
    Sparse,
)
from infer_jax.typed_jax import trees


def attention_layer(
    job: PhaseInputs, attention: Attention | None
) -> tuple[dict[str, Kernel], Array]:
    """Kernels and seconds: projections, and the longer of computing and loading the cache.

    Raises:
        InputError: a kind of attention that the program does not know.
    """
    if isinstance(attention, Sparse):
        attention = attention.base
    if attention is None:
        return {}, jnp.asarray(0.0)
    if not isinstance(attention, GroupedQuery | Latent | Linear):
        known = "grouped-query, latent or linear attention, which the authors' program knows"
        raise InputError("kernels.published", "attention", type(attention).__name__, known)
    cores, others = core(job, attention), projections(job, attention)
    spent = reduce(jnp.maximum, (k.seconds for k in cores.values()))
    times = job.prompts if job.stage == "prefill" else 1.0
    return cores | others, spent * times + total(k.seconds for k in others.values())


def layers(job: PhaseInputs) -> tuple[dict[str, Kernel], Array, Array]:
    """Every kernel of a layer by the tool's names; seconds of all attention and feedforward."""
    kernels: dict[str, Kernel] = {}
    mixed, fed = jnp.asarray(0.0), jnp.asarray(0.0)
    for block in job.arch.blocks:
        timed, seconds = attention_layer(job, block.attention)
        kernels |= timed
        mixed = mixed + block.count * seconds
        if block.feedforward is not None:
            timed = feedforward(job, block.feedforward)
            kernels |= timed
            both = jnp.maximum(timed["moe"].seconds, timed["moe_load"].seconds)
            shared = timed["shared"].seconds if "shared" in timed else 0.0
            fed = fed + block.count * (both + shared)
    return kernels, mixed, fed


def phase_time(job: PhaseInputs) -> tuple[dict[str, Kernel], Array, dict[str, Array]]:
    """The kernels of the phase, its seconds with scheduling, and its terms."""
    kernels, a, f = layers(job)
    count = total(b.count for b in job.arch.blocks)
    before, after, reduced = (count * seconds for seconds in communication(job).values())
    twice = job.two_batch > 0.5
    if job.hybrid:
        network = jnp.where(job.tp > 1.0, 2.0 * reduced, before + after)
        time, terms = a + f + network, {"attention": a, "feedforward": f, "network": network}
    else:
        if job.stage == "decode":
            both = 2.0 * jnp.maximum(a, f + before + after)
            share = jnp.asarray(1.0)
        else:
            share = job.sm_share
            both = total(jnp.maximum(x / share, c) for x in (a, f) for c in (before, after))
        time = jnp.where(twice, both, a + f + before + after + reduced)
        terms = {
            "attention": jnp.where(twice, 2.0 * a / share, a),
            "feedforward": jnp.where(twice, 2.0 * f / share, f),
            "network": jnp.where(twice, 2.0 * (before + after), before + after + reduced),
        }
    scheduling = job.model.scheduling(job.stage, job.hybrid)
    terms["scheduling"] = scheduling * jnp.ones_like(time)
    return kernels, time + scheduling, terms


class Budget(NamedTuple):
    """Bytes of all weights on one GPU, of a token's cache and a request's state, and the rest.

    ``space``: what is left for the cache; it may be negative.
    """

    weights: Array
    token: Array
    state: Array
    space: Array


def attention_bytes(job: PhaseInputs, block: Block) -> Array:
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


def cached_bytes(job: PhaseInputs, block: Block) -> Array:
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


def expert_bytes(job: PhaseInputs, layer: Feedforward) -> Array:
    """Bytes of one expert, or of a dense layer, on one rank."""
    return 3.0 * job.arch.width * jnp.floor(layer.width / job.tp) * layer.weights.bytes


def budget(job: PhaseInputs) -> Budget:
    """The memory of one GPU."""
    model, blocks, weights = job.model, job.arch.blocks, jnp.asarray(0.0)
    for block in blocks:
        layer = block.feedforward
        if layer is None:
            continue
        routed = layer.experts if isinstance(layer, Experts) else jnp.asarray(1.0)
        common = layer.shared.width / layer.width if isinstance(layer, Experts) else 0.0
        held = common + jnp.where(job.tp > 1.0, routed, routed / job.world)
        size = attention_bytes(job, block) + expert_bytes(job, layer) * held
        weights = weights + block.count * size
    return Budget(
        weights=weights,
        token=total(b.count * cached_bytes(job, b) for b in blocks),
        state=total(b.count * state_bytes(b) for b in blocks),
        space=job.hardware.chip.memory * model.byte_giga - weights - model.reserve,
    )


def published_pass(
    model: Coefficients,
    arch: Architecture,
    hardware: Hardware,
    forward: ForwardPass,
    plan: KernelsPlan,
) -> tuple[Phase, list[dict[str, Kernel]]]:
    """One pass as the authors' program adds it up, with one set of kernel names for all blocks."""
    context = forward.cached_tokens + forward.new_tokens

    def phase(stage: str) -> tuple[Phase, dict[str, Kernel]]:
        job = PhaseInputs.of(model, arch, hardware, forward, plan, stage)
        kernels, time, terms = phase_time(job)
        held = budget(job)
        each = held.token * context + held.state
        need = held.weights + model.reserve + forward.sequences / plan.ep * each
        ideal = total(k.flops / k.peak for k in kernels.values())
        whole = Phase(
            time=time,
            terms=terms,
            limits={"memory": Limit(need=need, capacity=hardware.chip.memory * model.byte_giga)},
            mfu=total(b.count for b in arch.blocks) * ideal / time,
            layout=plan.degrees(job.nodes),
        )
        return whole, kernels

    decodes = forward.new_tokens <= model.decode_tokens
    answer, kernels = trees.where(decodes, phase("decode"), phase("prefill"))
    return answer, [kernels]
