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
from infer_jax.physics.memory.chip_memory import Ranks, Resident
from infer_jax.specs import UNBOUNDED, Hardware


def pass_tokens(ctx: Context) -> Array:
    """Tokens of a pass of an attention group where no whole prompt needs more."""
    return jnp.where(ctx.plan.chunk < UNBOUNDED, ctx.plan.chunk, ctx.engine.budget)


def slots(ctx: Context) -> Array:
    """Requests that a group runs at most where none are kept in flight: vLLM's default of 1024.

    No more than a pass has tokens for.
    """
    usual = footprint.default_numbers(EngineSettings).sequences
    usual = jnp.minimum(usual, pass_tokens(ctx) / (1.0 + ctx.plan.drafts))
    return jnp.where(ctx.plan.max_sequences < UNBOUNDED, ctx.plan.max_sequences, usual)


def arriving(ctx: Context) -> Launched:
    """How a server of requests that come at random is launched."""
    own = jnp.zeros_like(ctx.plan.chunk)
    return Launched(slots(ctx), own, pass_tokens(ctx), own, 1.0 + ctx.plan.drafts)


def in_flight(ctx: Context, prompt: Array, fed: Array | None = None) -> Launched:
    """How a server of a fixed number of requests is launched: for as many as there are.

    ``prompt``: tokens of a prompt, beside those that decode in a pass of an engine that takes it
    whole; ``fed``: tokens of a sequence in a pass.
    """
    whole = jnp.where(ctx.plan.chunk < UNBOUNDED, 0.0, ctx.engine.whole)
    own = jnp.where(ctx.plan.max_sequences < UNBOUNDED, 0.0, 1.0)
    given = (1.0 - own) * ctx.plan.max_sequences
    fed = 1.0 + ctx.plan.drafts if fed is None else fed
    return Launched(given, own, pass_tokens(ctx), whole * prompt, fed)


def server(ctx: Context, launched: Launched, requests: Array | float = 1.0) -> EngineSettings:
    """The settings with which a server is launched for these requests of an attention group."""
    usual = footprint.default_numbers(EngineSettings).replace(
        visible=ctx.coefficients.visible,
        utilization=ctx.coefficients.usable_memory,
        block=ctx.plan.block,
    )
    return launched.settings(usual, requests)


def account_inputs(
    ctx: Context, settings: EngineSettings
) -> tuple[Resident, Hardware, Ranks, EngineSettings, Overheads, Drafter]:
    """What ``footprint.account`` reads of a model, its server and the plan."""
    plan, held = ctx.plan, ctx.shape.resident
    if plan.wide is not None:
        more = plan.wide.copies * held.layers.mixture
        held = held._replace(layers=held.layers._replace(experts=held.layers.experts + more))
    ranks = Ranks(plan.tp, plan.attention_dp, plan.pp)
    drafter = Drafter(ctx.drafting, None if ctx.draft is None else ctx.draft.shape.resident)
    return held, ctx.hardware, ranks, settings, ctx.coefficients.overheads, drafter


def cache_bytes(ctx: Context, tokens: Array) -> Array:
    """Bytes of keys, values and index keys that ``tokens`` tokens of a request keep on one chip."""
    layers = ctx.shape.layers
    each = layers.attention.cache_bytes(tokens, ctx.plan.tp)
    own = jnp.sum(layers.count * each, axis=-1) / ctx.plan.pp
    return own if ctx.draft is None else own + ctx.drafting * cache_bytes(ctx.draft, tokens)


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
    ctx: Context, isl: Array, osl: Array, common: Array, batch: Array | None = None
) -> Capacity:
    """The memory for requests of these mean lengths, ``common`` tokens shared by all of a group.

    ``batch``: requests in flight in a group; None: they come at random.
    """
    launched = arriving(ctx) if batch is None else in_flight(ctx, isl)
    settings = server(ctx, launched, 1.0 if batch is None else batch)
    chip = footprint.account(*account_inputs(ctx, settings))
    lengths = MeanLengths(isl, osl, ctx.engine.held_output, common)
    held = footprint.requests_held(chip, lengths, launched, ctx.coefficients.least_memory)
    each = jnp.minimum(held, ctx.plan.max_sequences)
    return Capacity(chip, lengths, held, places=jnp.maximum(ctx.plan.attention_dp * each, 1.0))


def limit(ctx: Context, sequences: Array, context: Array, fed: Array) -> Limit:
    """Bytes of one chip: weights, activations and reserve, and the cache of ``sequences``.

    ``fed``: tokens of each in the server's largest pass.
    """
    launched = in_flight(ctx, jnp.zeros_like(fed), fed)
    chip = footprint.account(*account_inputs(ctx, server(ctx, launched, sequences)))
    return Limit(need=chip.fixed + sequences * chip.cache.on_average(context), capacity=chip.budget)


def bytes_by_use(
    ctx: Context, capacity: Capacity, requests: Array
) -> tuple[dict[str, Array], Limit]:
    """Bytes of one chip by what fills them, with ``requests`` requests in its attention group.

    In the steady state, as ``places`` counts; a group runs at most ``max_sequences`` at once.
    """
    chip = capacity.chip
    running = jnp.minimum(requests, ctx.plan.max_sequences)
    cache = footprint.bytes_of_requests(chip, running, capacity.lengths).average
    parts = {
        "weights": chip.fixed - chip.activations - chip.reserve,
        "cache": cache,
        "activations": chip.activations,
        "reserve": chip.reserve,
    }
    return parts, Limit(need=chip.fixed + cache, capacity=chip.budget)


def expert_ranks(ctx: Context) -> Limit:
    """Expert-parallel ranks, limited by the chips of a pipeline stage."""
    return Limit(need=ctx.plan.ep, capacity=ctx.plan.tp * ctx.plan.attention_dp)
