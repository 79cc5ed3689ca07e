"""How much does one chip hold, and how many requests are there places for?"""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Limit
from infer_jax.estimators.serving.world import World


def visible(w: World) -> Array:
    """Bytes of memory that the driver of one chip shows."""
    return w.hardware.chip.memory * w.model.visible


def weight_bytes(w: World) -> Array:
    """Bytes of weights on one chip: matrices over their ranks, layers over the stages."""
    layer, plan = w.shape.layers, w.plan
    chips = jnp.where(layer.mixture > 0.5, plan.tp * plan.attention_dp, plan.tp)
    parts = (
        (layer.projections, 1.0 / plan.tp),
        (layer.routed, layer.experts / chips),
        (layer.shared, 1.0 / plan.tp),
        (layer.router, w.model.laws.router),
    )
    each = sum(m.elements * m.bytes * copies for m, copies in parts)
    return jnp.sum(layer.count * each, axis=-1) / plan.pp + w.shape.tables / plan.tp


def cache_bytes(w: World, tokens: Array) -> Array:
    """Bytes of keys, values and index keys that ``tokens`` tokens of a request keep on one chip."""
    layer = w.shape.layers
    kept = jnp.minimum(tokens, layer.window) * layer.cache / jnp.minimum(w.plan.tp, layer.split)
    each = layer.owned * (kept + tokens * layer.index)
    return jnp.sum(layer.count * each, axis=-1) / w.plan.pp


def request_bytes(w: World, context: Array) -> Array:
    """Bytes that a request of ``context`` tokens keeps on one chip: cache and states.

    A paged cache wastes half of its last block.
    """
    layer = w.shape.layers
    states = jnp.sum(layer.count * layer.state, axis=-1) / (2.0 * w.plan.tp * w.plan.pp)
    return cache_bytes(w, context + w.plan.block / 2.0) + states


def places(w: World, context: Array, common: Array) -> Array:
    """Requests of ``context`` tokens that an instance has room for, at least one.

    dp max(f_mem M - W - reserve, f_0 M) / bytes of a request, and at most ``max_sequences`` in
    each attention group; ``common`` tokens of them are held once for all requests of a group.
    """
    model, memory = w.model, visible(w)
    once = cache_bytes(w, common)
    left = model.usable_memory * memory - weight_bytes(w) - model.reserve - once
    free = jnp.maximum(left, model.least_memory * memory)
    each = jnp.minimum(free / request_bytes(w, context - common), w.plan.max_sequences)
    return jnp.maximum(w.plan.attention_dp * each, 1.0)


def limit(w: World, sequences: Array, context: Array) -> Limit:
    """Bytes of one chip: weights, reserve and the cache of a group's ``sequences``."""
    need = weight_bytes(w) + w.model.reserve + sequences * request_bytes(w, context)
    return Limit(need=need, capacity=w.model.usable_memory * visible(w))


def expert_ranks(w: World) -> Limit:
    """Parts that experts are dealt to, of the chips of an instance's stage."""
    return Limit(need=w.plan.ep, capacity=w.plan.tp * w.plan.attention_dp)
