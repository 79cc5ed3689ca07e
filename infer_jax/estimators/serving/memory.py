"""Bytes on one chip of a server, and how many requests fit.

The account is ``footprint``'s; here it is asked of a model of serving.
"""

import jax.numpy as jnp
from jax import Array

from infer_jax import footprint
from infer_jax.estimators.estimate import Limit
from infer_jax.estimators.serving.context import Context
from infer_jax.footprint import Account, Drafter, Engine, Lengths
from infer_jax.physics.resident import Ranks
from infer_jax.specs import UNBOUNDED


def server(c: Context) -> Engine:
    """The server as it is started under a plan; what the plan leaves open is vLLM's default."""
    plan, model, usual = c.plan, c.model, footprint.usual(Engine)
    tokens, sequences = usual.batched_tokens, usual.sequences
    return usual.replace(
        visible=model.visible,
        utilization=model.usable_memory,
        batched_tokens=jnp.where(plan.chunk < UNBOUNDED, plan.chunk, tokens),
        sequences=jnp.where(plan.max_sequences < UNBOUNDED, plan.max_sequences, sequences),
        block=plan.block,
    )


def account(c: Context) -> Account:
    """The account of one chip under a plan, before any request."""
    plan = c.plan
    ranks = Ranks(plan.tp, plan.attention_dp, plan.pp)
    drafter = Drafter(c.drafting, None if c.draft is None else c.draft.shape.resident)
    overheads = c.model.overheads
    return footprint.account(c.shape.resident, c.hardware, ranks, server(c), overheads, drafter)


def lengths(c: Context, isl: Array, osl: Array, common: Array) -> Lengths:
    """Requests of these lengths, with the share of its output that one holds on average."""
    return Lengths(isl, osl, c.engine.held_output, common)


def cache_bytes(c: Context, tokens: Array) -> Array:
    """Bytes of keys, values and index keys that ``tokens`` tokens of a request keep on one chip."""
    layers, row = c.shape.layers, c.shape.layers.attention
    kept = jnp.minimum(tokens, row.window) * row.cache
    kept = (kept + jnp.minimum(tokens, row.near) * row.near_cache) * row.share(c.plan.tp)
    each = row.owned * (kept + tokens * row.index)
    own = jnp.sum(layers.count * each, axis=-1) / c.plan.pp
    return own if c.draft is None else own + c.drafting * cache_bytes(c.draft, tokens)


def held(c: Context, asked: Lengths) -> Array:
    """Requests that the memory of an attention group has room for in the steady state."""
    return footprint.requests_held(account(c), asked, c.model.least_memory)


def places(c: Context, asked: Lengths) -> Array:
    """Requests that an instance has room for in the steady state, at least one.

    Those that memory holds, and at most ``max_sequences`` in each attention group.
    """
    each = jnp.minimum(held(c, asked), c.plan.max_sequences)
    return jnp.maximum(c.plan.attention_dp * each, 1.0)


def limit(c: Context, sequences: Array, context: Array) -> Limit:
    """Bytes of one chip: what is there before requests, and the cache of ``sequences`` of them."""
    chip = account(c)
    return Limit(need=chip.fixed + sequences * chip.on_average(context), capacity=chip.budget)


def filled(c: Context, asked: Lengths, requests: Array) -> tuple[dict[str, Array], Limit]:
    """Bytes of one chip by what fills them, with ``requests`` requests in its attention group.

    In the steady state, as ``places`` counts; a group runs at most ``max_sequences`` at once.
    """
    chip = account(c)
    running = jnp.minimum(requests, c.plan.max_sequences)
    cache = footprint.filled(chip, running, asked).average
    parts = {
        "weights": chip.fixed - chip.activations - chip.reserve,
        "cache": cache,
        "activations": chip.activations,
        "reserve": chip.reserve,
    }
    return parts, Limit(need=chip.fixed + cache, capacity=chip.budget)


def expert_ranks(c: Context) -> Limit:
    """Parts that experts are dealt to, of the chips of an instance's stage."""
    return Limit(need=c.plan.ep, capacity=c.plan.tp * c.plan.attention_dp)
