"""How much does one chip hold, and how many requests are there places for?"""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Limit
from infer_jax.estimators.serving.world import World


def visible(w: World) -> Array:
    """Bytes of memory that the driver of one chip shows."""
    return w.hardware.chip.memory * w.model.visible


def weight_bytes(w: World) -> Array:
    """Bytes of weights on one chip: matrices over their ranks, layers over the stages.

    Those of a model that drafts are among them.
    """
    layer, plan = w.shape.layers, w.plan
    chips = jnp.where(layer.mixture > 0.5, plan.tp * plan.attention_dp, plan.tp)
    parts = (
        (layer.projections, 1.0 / plan.tp),
        (layer.routed, layer.experts / chips),
        (layer.shared, 1.0 / plan.tp),
        (layer.router, w.model.laws.router),
    )
    each = sum(m.elements * m.bytes * copies for m, copies in parts)
    own = jnp.sum(layer.count * each, axis=-1) / plan.pp + w.shape.tables / plan.tp
    return own if w.draft is None else own + w.drafting * weight_bytes(w.draft)


def cache_bytes(w: World, tokens: Array) -> Array:
    """Bytes of keys, values and index keys that ``tokens`` tokens of a request keep on one chip."""
    layer = w.shape.layers
    kept = jnp.minimum(tokens, layer.window) * layer.cache
    kept = kept + jnp.minimum(tokens, layer.near) * layer.near_cache
    kept = kept / jnp.minimum(w.plan.tp, layer.split)
    each = layer.owned * (kept + tokens * layer.index)
    own = jnp.sum(layer.count * each, axis=-1) / w.plan.pp
    return own if w.draft is None else own + w.drafting * cache_bytes(w.draft, tokens)


def state_bytes(w: World) -> Array:
    """Bytes of states that a request keeps on one chip, half of what a pass moves."""
    layer = w.shape.layers
    own = jnp.sum(layer.count * layer.state, axis=-1) / (2.0 * w.plan.tp * w.plan.pp)
    return own if w.draft is None else own + w.drafting * state_bytes(w.draft)


def request_bytes(w: World, context: Array) -> Array:
    """Bytes that a request of ``context`` tokens keeps on one chip: cache and states.

    A paged cache wastes half of its last block.
    """
    return cache_bytes(w, context + w.plan.block / 2.0) + state_bytes(w)


def held(w: World, context: Array, common: Array) -> Array:
    """Requests of ``context`` tokens that the memory of an attention group has room for.

    max(f_mem M - W - reserve, f_0 M) / bytes of a request; ``common`` tokens of them are held
    once for all requests of a group.
    """
    model, memory = w.model, visible(w)
    once = cache_bytes(w, common)
    left = usable(w) - weight_bytes(w) - model.reserve - once
    free = jnp.maximum(left, model.least_memory * memory)
    return free / request_bytes(w, context - common)


def places(w: World, context: Array, common: Array) -> Array:
    """Requests of ``context`` tokens that an instance has room for, at least one.

    Those that memory holds, and at most ``max_sequences`` in each attention group.
    """
    each = jnp.minimum(held(w, context, common), w.plan.max_sequences)
    return jnp.maximum(w.plan.attention_dp * each, 1.0)


def limit(w: World, sequences: Array, context: Array) -> Limit:
    """Bytes of one chip: weights, reserve and the cache of a group's ``sequences``."""
    need = weight_bytes(w) + w.model.reserve + sequences * request_bytes(w, context)
    return Limit(need=need, capacity=usable(w))


def filled(w: World, isl: Array, osl: Array, common: Array, running: Array) -> dict[str, Array]:
    """Bytes of one chip by what fills them, with ``running`` requests in its attention group.

    Each holds its prompt and h of its output, as ``places`` counts; one alone all of its output.
    ``common`` tokens are held once.
    """
    context = isl + w.engine.held_output * osl - common
    each = jnp.maximum(running * request_bytes(w, context), request_bytes(w, isl + osl - common))
    return {
        "weights": weight_bytes(w),
        "cache": cache_bytes(w, common) + each,
        "reserve": w.model.reserve,
    }


def usable(w: World) -> Array:
    """Bytes of one chip that an engine uses."""
    return w.model.usable_memory * visible(w)


def expert_ranks(w: World) -> Limit:
    """Parts that experts are dealt to, of the chips of an instance's stage."""
    return Limit(need=w.plan.ep, capacity=w.plan.tp * w.plan.attention_dp)
