"""Bytes on one chip of a server, and how many requests fit.

The account is ``footprint``'s; this file calls it with the inputs of the serving model.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax import footprint
from infer_jax.estimators.estimate import Limit
from infer_jax.estimators.serving.context import Context
from infer_jax.footprint import (
    Account,
    Drafter,
    EngineSettings,
    Launched,
    MeanLengths,
    Overheads,
)
from infer_jax.physics.memory.resident import Ranks, Resident
from infer_jax.specs import UNBOUNDED, Hardware


def pass_tokens(c: Context) -> Array:
    """Tokens of a pass of an attention group where no whole prompt needs more."""
    return jnp.where(c.plan.chunk < UNBOUNDED, c.plan.chunk, c.engine.budget)


def slots(c: Context) -> Array:
    """Requests that a group runs at most where none are kept in flight: vLLM's default of 1024.

    No more than a pass has tokens for.
    """
    usual = footprint.default_numbers(EngineSettings).sequences
    usual = jnp.minimum(usual, pass_tokens(c) / (1.0 + c.plan.drafts))
    return jnp.where(c.plan.max_sequences < UNBOUNDED, c.plan.max_sequences, usual)


def arriving(c: Context) -> Launched:
    """How a server of requests that come at random is launched."""
    own = jnp.zeros_like(c.plan.chunk)
    return Launched(slots(c), own, pass_tokens(c), own, 1.0 + c.plan.drafts)


def in_flight(c: Context, prompt: Array, fed: Array | None = None) -> Launched:
    """How a server of a fixed number of requests is launched: for as many as there are.

    ``prompt``: tokens of a prompt, beside those that decode in a pass of an engine that takes it
    whole; ``fed``: tokens of a sequence in a pass.
    """
    whole = jnp.where(c.plan.chunk < UNBOUNDED, 0.0, c.engine.whole)
    own = jnp.where(c.plan.max_sequences < UNBOUNDED, 0.0, 1.0)
    given = (1.0 - own) * c.plan.max_sequences
    fed = 1.0 + c.plan.drafts if fed is None else fed
    return Launched(given, own, pass_tokens(c), whole * prompt, fed)


def server(c: Context, launched: Launched, requests: Array | float = 1.0) -> EngineSettings:
    """The settings with which a server is launched for these requests of an attention group."""
    usual = footprint.default_numbers(EngineSettings).replace(
        visible=c.model.visible, utilization=c.model.usable_memory, block=c.plan.block
    )
    return launched.settings(usual, requests)


def account_inputs(
    c: Context, settings: EngineSettings
) -> tuple[Resident, Hardware, Ranks, EngineSettings, Overheads, Drafter]:
    """What ``footprint.account`` reads of a model, its server and the plan."""
    plan, held = c.plan, c.shape.resident
    if plan.wide is not None:
        more = plan.wide.copies * held.layers.mixture
        held = held._replace(layers=held.layers._replace(experts=held.layers.experts + more))
    ranks = Ranks(plan.tp, plan.attention_dp, plan.pp)
    drafter = Drafter(c.drafting, None if c.draft is None else c.draft.shape.resident)
    return held, c.hardware, ranks, settings, c.model.overheads, drafter


def cache_bytes(c: Context, tokens: Array) -> Array:
    """Bytes of keys, values and index keys that ``tokens`` tokens of a request keep on one chip."""
    layers = c.shape.layers
    each = layers.attention.cache_bytes(tokens, c.plan.tp)
    own = jnp.sum(layers.count * each, axis=-1) / c.plan.pp
    return own if c.draft is None else own + c.drafting * cache_bytes(c.draft, tokens)


class Capacity(NamedTuple):
    """The account of one chip, and how many requests of these ``lengths`` fit it.

    In the steady state: ``held`` in the memory of an attention group, ``places`` in an instance,
    at least one, and at most ``max_sequences`` in each of its groups.
    """

    chip: Account
    lengths: MeanLengths
    held: Array
    places: Array


def capacity(
    c: Context, isl: Array, osl: Array, common: Array, batch: Array | None = None
) -> Capacity:
    """The memory for requests of these mean lengths, ``common`` tokens shared by all of a group.

    ``batch``: requests in flight in a group; None: they come at random.
    """
    launched = arriving(c) if batch is None else in_flight(c, isl)
    settings = server(c, launched, 1.0 if batch is None else batch)
    chip = footprint.account(*account_inputs(c, settings))
    lengths = MeanLengths(isl, osl, c.engine.held_output, common)
    held = footprint.requests_held(chip, lengths, launched, c.model.least_memory)
    each = jnp.minimum(held, c.plan.max_sequences)
    return Capacity(chip, lengths, held, places=jnp.maximum(c.plan.attention_dp * each, 1.0))


def limit(c: Context, sequences: Array, context: Array, fed: Array) -> Limit:
    """Bytes of one chip: weights, activations and reserve, and the cache of ``sequences``.

    ``fed``: tokens of each in the server's largest pass.
    """
    launched = in_flight(c, jnp.zeros_like(fed), fed)
    chip = footprint.account(*account_inputs(c, server(c, launched, sequences)))
    return Limit(need=chip.fixed + sequences * chip.cache.on_average(context), capacity=chip.budget)


def filled(c: Context, capacity: Capacity, requests: Array) -> tuple[dict[str, Array], Limit]:
    """Bytes of one chip by what fills them, with ``requests`` requests in its attention group.

    In the steady state, as ``places`` counts; a group runs at most ``max_sequences`` at once.
    """
    chip = capacity.chip
    running = jnp.minimum(requests, c.plan.max_sequences)
    cache = footprint.filled(chip, running, capacity.lengths).average
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
