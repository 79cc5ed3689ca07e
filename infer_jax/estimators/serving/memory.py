"""Bytes on one chip of a server, and how many requests fit.

The account is ``footprint``'s; this file calls it with the inputs of the serving model.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax import footprint
from infer_jax.estimators.estimate import Limit
from infer_jax.estimators.serving.context import Context
from infer_jax.footprint import Account, Drafter, EngineSettings, MeanLengths, Overheads
from infer_jax.physics.resident import Ranks, Resident
from infer_jax.specs import UNBOUNDED, Hardware


def server(c: Context) -> EngineSettings:
    """The settings a server is started with under a plan; vLLM's defaults where it gives none."""
    plan, model, usual = c.plan, c.model, footprint.default_numbers(EngineSettings)
    tokens, sequences = usual.batched_tokens, usual.sequences
    return usual.replace(
        visible=model.visible,
        utilization=model.usable_memory,
        batched_tokens=jnp.where(plan.chunk < UNBOUNDED, plan.chunk, tokens),
        sequences=jnp.where(plan.max_sequences < UNBOUNDED, plan.max_sequences, sequences),
        block=plan.block,
    )


def account_inputs(
    c: Context,
) -> tuple[Resident, Hardware, Ranks, EngineSettings, Overheads, Drafter]:
    """What ``footprint.account`` reads of a model, its server and the plan."""
    plan, held = c.plan, c.shape.resident
    if plan.wide is not None:
        more = plan.wide.copies * held.layers.mixture
        held = held._replace(layers=held.layers._replace(experts=held.layers.experts + more))
    ranks = Ranks(plan.tp, plan.attention_dp, plan.pp)
    drafter = Drafter(c.drafting, None if c.draft is None else c.draft.shape.resident)
    return held, c.hardware, ranks, server(c), c.model.overheads, drafter


def cache_bytes(c: Context, tokens: Array) -> Array:
    """Bytes of keys, values and index keys that ``tokens`` tokens of a request keep on one chip."""
    layers = c.shape.layers
    each = layers.attention.cache_bytes(tokens, c.plan.tp)
    own = jnp.sum(layers.count * each, axis=-1) / c.plan.pp
    return own if c.draft is None else own + c.drafting * cache_bytes(c.draft, tokens)


class Room(NamedTuple):
    """The account of one chip, and how many requests of given ``lengths`` it has room for.

    In the steady state: ``held`` in the memory of an attention group, ``places`` in an instance,
    at least one, and at most ``max_sequences`` in each of its groups.
    """

    chip: Account
    lengths: MeanLengths
    held: Array
    places: Array


def room(c: Context, isl: Array, osl: Array, common: Array) -> Room:
    """The room for requests of these mean lengths, ``common`` tokens shared by all of a group."""
    chip = footprint.account(*account_inputs(c))
    lengths = MeanLengths(isl, osl, c.engine.held_output, common)
    held = footprint.requests_held(chip, lengths, c.model.least_memory)
    each = jnp.minimum(held, c.plan.max_sequences)
    return Room(chip, lengths, held, places=jnp.maximum(c.plan.attention_dp * each, 1.0))


def limit(c: Context, sequences: Array, context: Array) -> Limit:
    """Bytes of one chip: weights, activations and reserve, and the cache of ``sequences``."""
    chip = footprint.account(*account_inputs(c))
    return Limit(need=chip.fixed + sequences * chip.cache.on_average(context), capacity=chip.budget)


def filled(c: Context, room: Room, requests: Array) -> tuple[dict[str, Array], Limit]:
    """Bytes of one chip by what fills them, with ``requests`` requests in its attention group.

    In the steady state, as ``places`` counts; a group runs at most ``max_sequences`` at once.
    """
    chip = room.chip
    running = jnp.minimum(requests, c.plan.max_sequences)
    cache = footprint.filled(chip, running, room.lengths).average
    parts = {
        "weights": chip.fixed - chip.activations - chip.reserve,
        "cache": cache,
        "activations": chip.activations,
        "reserve": chip.reserve,
    }
    return parts, Limit(need=chip.fixed + cache, capacity=chip.budget)


def expert_ranks(c: Context) -> Limit:
    """Expert-parallel ranks, limited by the chips of a pipeline stage."""
    return Limit(need=c.plan.ep, capacity=c.plan.tp * c.plan.attention_dp)
