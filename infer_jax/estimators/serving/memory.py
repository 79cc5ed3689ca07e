"""How much does one chip hold, and how many requests are there places for?"""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Limit
from infer_jax.estimators.serving.context import Context


def visible(c: Context) -> Array:
    """Bytes of memory that the driver of one chip shows."""
    return c.hardware.chip.memory * c.model.visible


def weight_bytes(c: Context) -> Array:
    """Bytes of weights on one chip: matrices over their ranks, layers over the stages.

    Those of a model that drafts are among them.
    """
    layer, plan = c.shape.layers, c.plan
    chips = jnp.where(layer.mixture > 0.5, plan.tp * plan.attention_dp, plan.tp)
    parts = (
        (layer.projections, 1.0 / plan.tp),
        (layer.routed, layer.experts / chips),
        (layer.shared, 1.0 / plan.tp),
        (layer.router, c.model.laws.router),
    )
    each = sum(m.elements * m.bytes * copies for m, copies in parts)
    own = jnp.sum(layer.count * each, axis=-1) / plan.pp + c.shape.tables / plan.tp
    return own if c.draft is None else own + c.drafting * weight_bytes(c.draft)


def cache_bytes(c: Context, tokens: Array) -> Array:
    """Bytes of keys, values and index keys that ``tokens`` tokens of a request keep on one chip."""
    layer = c.shape.layers.attention
    kept = jnp.minimum(tokens, layer.window) * layer.cache
    kept = kept + jnp.minimum(tokens, layer.near) * layer.near_cache
    kept = kept / jnp.minimum(c.plan.tp, layer.split)
    each = layer.owned * (kept + tokens * layer.index)
    own = jnp.sum(c.shape.layers.count * each, axis=-1) / c.plan.pp
    return own if c.draft is None else own + c.drafting * cache_bytes(c.draft, tokens)


def state_bytes(c: Context) -> Array:
    """Bytes of states that a request keeps on one chip, half of what a pass moves."""
    layers = c.shape.layers
    own = jnp.sum(layers.count * layers.attention.state, axis=-1) / (2.0 * c.plan.tp * c.plan.pp)
    return own if c.draft is None else own + c.drafting * state_bytes(c.draft)


def request_bytes(c: Context, context: Array) -> Array:
    """Bytes that a request of ``context`` tokens keeps on one chip: cache and states.

    A paged cache wastes half of its last block.
    """
    return cache_bytes(c, context + c.plan.block / 2.0) + state_bytes(c)


def held(c: Context, context: Array, common: Array) -> Array:
    """Requests of ``context`` tokens that the memory of an attention group has room for.

    max(f_mem M - W - reserve, f_0 M) / bytes of a request; ``common`` tokens of them are held
    once for all requests of a group.
    """
    model, memory = c.model, visible(c)
    once = cache_bytes(c, common)
    left = usable(c) - weight_bytes(c) - model.reserve - once
    free = jnp.maximum(left, model.least_memory * memory)
    return free / request_bytes(c, context - common)


def places(c: Context, context: Array, common: Array) -> Array:
    """Requests of ``context`` tokens that an instance has room for, at least one.

    Those that memory holds, and at most ``max_sequences`` in each attention group.
    """
    each = jnp.minimum(held(c, context, common), c.plan.max_sequences)
    return jnp.maximum(c.plan.attention_dp * each, 1.0)


def limit(c: Context, sequences: Array, context: Array) -> Limit:
    """Bytes of one chip: weights, reserve and the cache of a group's ``sequences``."""
    need = weight_bytes(c) + c.model.reserve + sequences * request_bytes(c, context)
    return Limit(need=need, capacity=usable(c))


def filled(c: Context, isl: Array, osl: Array, common: Array, running: Array) -> dict[str, Array]:
    """Bytes of one chip by what fills them, with ``running`` requests in its attention group.

    Each holds its prompt and h of its output, as ``places`` counts; one alone all of its output.
    ``common`` tokens are held once.
    """
    context = isl + c.engine.held_output * osl - common
    each = jnp.maximum(running * request_bytes(c, context), request_bytes(c, isl + osl - common))
    return {
        "weights": weight_bytes(c),
        "cache": cache_bytes(c, common) + each,
        "reserve": c.model.reserve,
    }


def usable(c: Context) -> Array:
    """Bytes of one chip that an engine uses."""
    return c.model.usable_memory * visible(c)


def expert_ranks(c: Context) -> Limit:
    """Parts that experts are dealt to, of the chips of an instance's stage."""
    return Limit(need=c.plan.ep, capacity=c.plan.tp * c.plan.attention_dp)
