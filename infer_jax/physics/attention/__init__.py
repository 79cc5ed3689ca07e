"""One file per kind of attention: what a layer of it holds, moves, computes, and how it splits.

    layer = attention.of(block.attention)
    layer.matrices(width), layer.held_bytes(cache, context), layer.core_flops(new, cached)

A new kind is a spec, a class here and a row of ``KINDS``.
"""

from collections.abc import Sequence

from infer_jax.physics.attention.causal_pairs import pairs
from infer_jax.physics.attention.compressed import CompressedLayer
from infer_jax.physics.attention.grouped_query import GroupedQueryLayer
from infer_jax.physics.attention.kimi_delta import KimiDeltaLayer
from infer_jax.physics.attention.kind import (
    Cached as Cached,
    Cut as Cut,
    Dealt as Dealt,
    Kind as Kind,
    Operands,
)
from infer_jax.physics.attention.latent import LatentLayer
from infer_jax.physics.attention.linear import LinearLayer
from infer_jax.physics.attention.row import Row, blank
from infer_jax.physics.attention.sparse import SparseLayer
from infer_jax.physics.attention.state_space import StateSpaceLayer
from infer_jax.specs import (
    Architecture,
    Attention,
    Compressed,
    GroupedQuery,
    KimiDelta,
    Latent,
    Linear,
    Sparse,
    StateSpace,
)

KINDS: dict[type, type[Kind[Attention]]] = {
    GroupedQuery: GroupedQueryLayer,
    Latent: LatentLayer,
    Sparse: SparseLayer,
    Linear: LinearLayer,
    StateSpace: StateSpaceLayer,
    KimiDelta: KimiDeltaLayer,
    Compressed: CompressedLayer,
}


def caches(layers: Sequence[Attention], arch: Architecture) -> list[Cached]:
    """Window and state of each layer's cache, by which servers group layers that share a cache."""
    return [of(layer).cached(arch) for layer in layers]


def several_caches(layers: Sequence[Attention], cached: Sequence[Cached]) -> bool:
    """Whether a server keeps more than one kind of cache for these layers, or a recurrent state.

    ``cached`` is the result of ``caches`` for the same layers.
    """
    each = zip(layers, cached, strict=True)
    keys = {(of(layer).core, *map(float, own)) for layer, own in each}
    return len(keys) > 1 or any(float(own.state) > 0 for own in cached)


def of(attention: Attention) -> Kind[Attention]:
    """The laws of a layer of attention, by its kind.

    >>> from infer_jax import load_model
    >>> arch = load_model("kimi-linear-48b-a3b").architecture
    >>> for context in (1e3, 1e6):
    ...     for layer in (of(block.attention) for block in arch.blocks[1:]):
    ...         held = float(layer.held_bytes(arch.cache, context)) / 1e6
    ...         print(f"{type(layer).__name__}: {held:.2f} MB of {context:g} tokens")
    KimiDeltaLayer: 2.17 MB of 1000 tokens
    LatentLayer: 1.15 MB of 1000 tokens
    KimiDeltaLayer: 2.17 MB of 1e+06 tokens
    LatentLayer: 1152.00 MB of 1e+06 tokens
    """
    return KINDS[type(attention)](attention)
