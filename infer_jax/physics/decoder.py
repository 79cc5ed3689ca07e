"""Parameters, bytes and cache of a whole decoder: laws of layers summed over its blocks.

Every figure is of the whole model. FLOP are not summed here: a chip has a rate for each matmul
class, so estimators divide before they add.
"""

from collections.abc import Callable, Iterable

import jax.numpy as jnp
from jax import Array

from infer_jax.physics import attention as att, feedforward as ffn, matmul
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import Architecture, Attention, Experts, ForwardPass

Projections = Callable[[Attention, Array], tuple[Matrix, ...]]


def projections(attention: Attention, width: Array) -> tuple[Matrix, ...]:
    """The projections of a layer as they are stored; published models count some otherwise."""
    return att.of(attention).matrices(width)


def total(terms: Iterable[Array]) -> Array:
    """The sum of scalars; zero of none."""
    first, *others = [*terms] or [0.0]
    return jnp.asarray(sum(others, start=first))


def layers(arch: Architecture) -> Array:
    """Layers of the model."""
    return total(b.count for b in arch.blocks)


def parameters(arch: Architecture, counted: Projections = projections) -> dict[str, Array]:
    """Parameters by kind: attention, feedforward, experts, shared, router, embedding, head, other.

    Their sum is the model's size. ``feedforward`` is dense layers, ``experts`` the routed
    ones; a tied head counts 0; ``other`` is norms, biases and convolutions.
    """
    kinds = dict.fromkeys(
        ("attention", "feedforward", "experts", "shared", "router"), jnp.asarray(0.0)
    )
    other = jnp.asarray(arch.vectors)
    for b in arch.blocks:
        other = other + b.count * b.vectors
        if b.attention is not None:
            kinds["attention"] += b.count * matmul.elements(counted(b.attention, arch.width))
            other = other + b.count * att.of(b.attention).convolution
        if b.feedforward is not None:
            routed = b.count * ffn.routed_elements(b.feedforward, arch.width)
            kinds["experts" if isinstance(b.feedforward, Experts) else "feedforward"] += routed
            kinds["shared"] += b.count * ffn.common_elements(b.feedforward, arch.width)
            kinds["router"] += b.count * ffn.router_elements(b.feedforward, arch.width)
    table = arch.vocabulary * arch.width
    return {**kinds, "embedding": table, "head": (1.0 - arch.tied) * table, "other": other}


def active_parameters(arch: Architecture) -> Array:
    """Parameters that one token uses: all but the routed experts it does not visit.

    The embedding is counted whole, as publishers do.
    """
    idle = total(
        b.count
        * ffn.routed_elements(b.feedforward, arch.width)
        * (1 - 1 / ffn.sparsity(b.feedforward))
        for b in arch.blocks
        if b.feedforward is not None
    )
    return total(parameters(arch).values()) - idle


def weight_bytes(arch: Architecture, counted: Projections = projections) -> dict[str, Array]:
    """Bytes of the stored weights by kind, as in ``parameters``; norms and router in 16 bits."""
    counts = parameters(arch, counted)
    stored = dict.fromkeys(("attention", "feedforward", "experts", "shared"), jnp.asarray(0.0))
    for b in arch.blocks:
        if b.attention is not None:
            size = matmul.elements(counted(b.attention, arch.width))
            stored["attention"] += b.count * size * att.of(b.attention).weights.bytes
        if b.feedforward is None:
            continue
        routed = b.count * ffn.routed_elements(b.feedforward, arch.width)
        kind = "experts" if isinstance(b.feedforward, Experts) else "feedforward"
        stored[kind] += routed * b.feedforward.weights.bytes
        if isinstance(b.feedforward, Experts):
            common = b.count * ffn.common_elements(b.feedforward, arch.width)
            stored["shared"] += common * b.feedforward.shared.weights.bytes
    return {
        **stored,
        "router": 2.0 * counts["router"],
        "embedding": counts["embedding"] * arch.embedding.bytes,
        "head": counts["head"] * arch.head.bytes,
        "other": 2.0 * counts["other"],
    }


def cache_bytes(arch: Architecture, context: Array) -> Array:
    """Bytes that one sequence of ``context`` tokens keeps cached, all layers."""
    return total(
        b.count * att.of(b.attention).held_bytes(arch.cache, context)
        for b in arch.blocks
        if b.attention is not None
    )


def cache_reads(arch: Architecture, context: Array) -> Array:
    """Bytes of cache that one pass of one sequence moves, all layers."""
    return total(
        b.count * att.of(b.attention).read_bytes(arch.cache, context)
        for b in arch.blocks
        if b.attention is not None
    )


def resident_bytes(arch: Architecture, forward: ForwardPass, stages: Array) -> Array:
    """Bytes of cache an instance holds at the end of a pass: all sequences, all tokens."""
    context = forward.cached_tokens + forward.new_tokens
    return forward.sequences * cache_bytes(arch, context)


def resident_before(arch: Architecture, forward: ForwardPass, stages: Array) -> Array:
    """Bytes of cache an instance holds before a pass.

    Source: Erdil 2025 (arXiv 2506.04645), Section 3.6, the limit of memory capacity.
    """
    return forward.sequences * cache_bytes(arch, forward.cached_tokens)


def resident_micro_batch(arch: Architecture, forward: ForwardPass, stages: Array) -> Array:
    """Bytes of cache as the economics paper's program counts them: one micro-batch's."""
    return resident_before(arch, forward, stages) / stages


def by_tokens(sequences: Array, tokens: Array) -> Array:
    """Size of a pass in new tokens."""
    return tokens


def by_sequences(sequences: Array, tokens: Array) -> Array:
    """Size of a pass in sequences."""
    return sequences
