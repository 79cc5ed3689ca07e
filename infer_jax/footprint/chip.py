"""How many bytes of a chip do weights, activations and the cache of requests in flight take?"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.footprint.settings import EngineSettings, Overheads
from infer_jax.physics import capacity
from infer_jax.physics.decoder import total
from infer_jax.physics.numerics import Smoothing
from infer_jax.physics.paging import Paging, paging
from infer_jax.physics.resident import Ranks, Resident
from infer_jax.specs import Hardware


class Drafter(NamedTuple):
    """The draft model or heads: ``share`` is 1 where tokens are drafted, else 0.

    The drafter is a draft model or, without one, the model's own heads: one more layer.
    """

    share: Array | float = 0.0
    model: Resident | None = None


class Account(NamedTuple):
    """Bytes taken on one chip before any request arrives, and the pages of its ``cache``.

    ``fixed``: of weights, of activations at their peak and of the reserve. The cache of a model
    that drafts is a part of the cache.
    """

    weights: dict[str, Array]
    visible: Array
    budget: Array
    activations: Array
    reserve: Array
    fixed: Array
    cache: Paging
    batched_tokens: Array

    @property
    def available(self) -> Array:
        """Bytes left for the cache; negative where there are none."""
        return self.budget - self.fixed

    def at_its_end(self, tokens: Array, smoothing: Smoothing = None) -> Array:
        """Bytes that a request takes at most until it has ``tokens`` tokens, as vLLM counts it."""
        return self.cache.at_its_end(tokens, self.batched_tokens, smoothing)


class MeanLengths(NamedTuple):
    """Tokens of a mean request: prompt and output.

    ``held``: share of its output that it holds on average; ``common``: tokens that all requests of
    a group have in common, held once.
    """

    isl: Array
    osl: Array
    held: Array | float = 0.5
    common: Array | float = 0.0


class Filled(NamedTuple):
    """Bytes of the cache of one chip with requests in flight.

    ``average``: in the steady state, each request with its prompt and a part of its output; a
    single request counts with its whole output. ``most``: every request with its whole output at
    once, as vLLM counts them.
    """

    average: Array
    most: Array


def account(
    model: Resident,
    hardware: Hardware,
    ranks: Ranks,
    engine: EngineSettings,
    overheads: Overheads,
    drafter: Drafter | None = None,
    smoothing: Smoothing = None,
) -> Account:
    """The account of one chip, in bytes: budget = utilization * visible memory, weights, peaks.

    Source: vLLM, v1/worker/gpu_worker.py (v0.19); see docs/memory.md for measured errors.
    """
    drafter = drafter or Drafter()
    own = drafter.share if drafter.model is None else 0.0
    weights = capacity.weight_bytes(model, ranks, overheads.multiple, own)
    cut = (engine.block, engine.state_pages)
    cache = paging(model, ranks, *cut, own, smoothing)
    if drafter.model is not None:
        second = capacity.weight_bytes(drafter.model, ranks, overheads.multiple)
        weights = weights | {"draft": drafter.share * total(second.values())}
        small = paging(drafter.model, ranks, *cut, smoothing=smoothing)
        cache = cache.beside_another(small, drafter.share)
    together = jnp.where(ranks.tp * ranks.groups > 1.0, overheads.collectives, 0.0)
    visible = hardware.chip.memory * engine.visible
    activations = capacity.activation_peak(
        model, ranks, engine.batched_tokens, engine.sequences, overheads.logits
    )
    reserve = overheads.context + together + overheads.graphs
    return Account(
        weights=weights,
        visible=visible,
        budget=engine.utilization * visible,
        activations=activations,
        reserve=reserve,
        fixed=total(weights.values()) + activations + reserve,
        cache=cache,
        batched_tokens=engine.batched_tokens,
    )


def filled(chip: Account, requests: Array, lengths: MeanLengths) -> Filled:
    """Bytes of cache that ``requests`` requests of an attention group take on each of its chips."""
    isl, osl, held, common = lengths
    once = chip.cache.shared(common)
    alone = chip.at_its_end(isl + osl - common)
    each = chip.cache.on_average(isl + held * osl - common)
    return Filled(
        average=once + jnp.maximum(requests * each, alone),
        most=once + jnp.maximum(requests, 1.0) * alone,
    )


def requests_held(chip: Account, lengths: MeanLengths, least: Array | float = 0.0) -> Array:
    """Requests that fit in the cache of one attention group, on average in the steady state.

    ``least``: share of the visible memory that the cache has at least.
    """
    cache = chip.available - chip.cache.shared(lengths.common)
    cache = jnp.maximum(cache, least * chip.visible)
    tokens = lengths.isl + lengths.held * lengths.osl - lengths.common
    return cache / chip.cache.on_average(tokens)
