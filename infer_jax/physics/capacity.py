"""What does one chip hold under a plan: weights, cache per token, activations at their peak?

Weights are of the last pipeline stage, which has the output head and samples.
"""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics import attention as att, feedforward as ffn
from infer_jax.specs import Architecture, Dense, Experts, Feedforward, Plan

ALIVE = 3.0  # copies of the model width alive inside a layer: residual, normed input, output


def expert_padding(feedforward: Feedforward, width: Array, multiple: Array) -> Array:
    """Stored over true size of experts in 4 bits, whose kernels want whole tiles; else 1.

    ceil(d / multiple) multiple / d for the width d that the experts read and write.
    Source: vLLM, quantization/mxfp4.py (v0.10 to 0.19): gpt-oss, 2880 stored as 3072.
    """
    outer = ffn.matrix(feedforward, width).inputs
    padded = jnp.ceil(outer / multiple) * multiple
    narrow = isinstance(feedforward, Experts) and feedforward.weights.bytes < 1.0
    return jnp.where(narrow, padded / outer, 1.0)


def weight_bytes(arch: Architecture, plan: Plan, multiple: Array | float = 1.0) -> dict[str, Array]:
    """Bytes of weights on one chip by kind, the kinds of ``decoder.weight_bytes``.

    Layers over the ``pp`` stages, matrices over the ``tp`` ranks, routed experts over
    tp * ep, padded to ``multiple``; router and norms are copied. Of the two vocabulary tables
    the last of several stages holds the head. On one chip, unpadded, this is
    ``decoder.weight_bytes``.
    Source: vLLM, model_executor/layers/linear.py and vocab_parallel_embedding.py (v0.19).
    """
    tp, stages = plan.tp, jnp.maximum(plan.pp, 1.0)
    held = dict.fromkeys(
        ("attention", "feedforward", "experts", "shared", "router"), jnp.asarray(0.0)
    )
    other = jnp.asarray(0.0)
    for b in arch.blocks:
        layers = b.count / stages
        other = other + layers * 2.0 * b.vectors
        if b.attention is not None:
            held["attention"] += layers * att.of(b.attention).projection_bytes(arch.width, tp)
            other = other + layers * 2.0 * att.of(b.attention).convolution / tp
        if b.feedforward is None:
            continue
        routed = layers * ffn.routed_elements(b.feedforward, arch.width)
        routed = routed * b.feedforward.weights.bytes / tp
        if isinstance(b.feedforward, Experts):
            common = layers * ffn.common_elements(b.feedforward, arch.width)
            padding = expert_padding(b.feedforward, arch.width, jnp.asarray(multiple))
            held["experts"] += routed / plan.ep * padding
            held["shared"] += common * b.feedforward.shared.weights.bytes / tp
            held["router"] += 2.0 * layers * ffn.router_elements(b.feedforward, arch.width)
        else:
            held["feedforward"] += routed
    table = arch.vocabulary * arch.width / tp
    looked_up = jnp.where(plan.pp > 1.0, arch.tied, 1.0)
    return {
        **held,
        "embedding": looked_up * table * arch.embedding.bytes,
        "head": (1.0 - arch.tied) * table * arch.head.bytes,
        "other": other + 2.0 * arch.vectors,
    }


def activation_peak(
    arch: Architecture, plan: Plan, tokens: Array, sequences: Array, logit_bytes: Array
) -> Array:
    """Bytes of activations at the peak of a pass of ``tokens`` tokens, ``sequences`` sampled.

    max over layers of expert workspace + max(inside the widest layer, hidden states + logits):
    inside a layer, a token has ``ALIVE`` model widths and the in- and outputs of the hidden
    layer, split over tp; at the end its hidden state, and each sampled sequence
    ``logit_bytes`` per entry of the vocabulary, gathered whole on every rank. A stage that is
    not the first holds the two tensors it received.
    Source: the profiling pass of vLLM, v1/worker/gpu_model_runner.py (v0.19).
    """
    size, tp = arch.activations.bytes, plan.tp
    hidden = tokens * arch.width * size
    workspace, widest = jnp.asarray(0.0), jnp.asarray(0.0)
    for b in arch.blocks:
        if b.attention is not None:
            widest = jnp.maximum(widest, att.of(b.attention).output_width / tp)
        if b.feedforward is not None:
            widest = jnp.maximum(widest, _hidden_width(b.feedforward) / tp)
            routed = tokens * size * _workspace_width(b.feedforward, arch.width, tp)
            workspace = jnp.maximum(workspace, routed)
    inside = tokens * size * (widest + ALIVE * arch.width)
    sampled = jnp.minimum(sequences, tokens)
    end = hidden + sampled * arch.vocabulary * logit_bytes
    received = jnp.where(plan.pp > 1.0, 2.0 * hidden, 0.0)
    return workspace + jnp.maximum(inside, end) + received


def _hidden_width(feedforward: Feedforward) -> Array:
    """Numbers per token in and out of the hidden layer that every token passes."""
    dense = feedforward if isinstance(feedforward, Dense) else feedforward.shared
    return (dense.inward + 1.0) * dense.width


def _workspace_width(feedforward: Feedforward, width: Array, tp: Array) -> Array:
    """Numbers per token of a fused mixture kernel, which keeps them between layers.

    For each of the active experts, one buffer for its hidden layer's input and, later, its
    output, and one for the activated hidden layer: a (max(inward f, d) + f), f = width / tp.
    Source: vLLM, model_executor/layers/fused_moe/fused_moe.py (v0.19).
    """
    if isinstance(feedforward, Dense):
        return jnp.asarray(0.0)
    inner = feedforward.width / tp
    outer = ffn.matrix(feedforward, width).inputs
    return feedforward.active * (jnp.maximum(feedforward.inward * inner, outer) + inner)
