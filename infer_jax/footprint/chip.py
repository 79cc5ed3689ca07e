"""How many bytes of a chip do weights, activations and the cache of requests in flight take?"""

from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.footprint.settings import EngineSettings, Overheads
from infer_jax.physics.decoder import total
from infer_jax.physics.memory import chip_memory
from infer_jax.physics.memory.chip_memory import Ranks, Resident
from infer_jax.physics.memory.paging import Paging, paging
from infer_jax.physics.numerics import Smoothing
from infer_jax.specs import Hardware


class Drafter(NamedTuple):
    """The draft model or heads: ``share`` is 1 where tokens are drafted, else 0.

    The drafter is a draft model or, without one, the model's own heads: one more layer.
    """

    share: Array | float = 0.0
    model: Resident | None = None


class Account(NamedTuple):
    """Bytes taken on one chip before any request arrives, and the pages of its ``cache``.

    ``fixed``: of weights, of activations at their peak and of the reserve. ``each``: activations
    of a token and of a sampled sequence. The cache of a model that drafts is a part of the cache.
    """

    weights: dict[str, Array]
    visible: Array
    budget: Array
    activations: Array
    reserve: Array
    fixed: Array
    cache: Paging
    batched_tokens: Array
    each: chip_memory.Activations

    @property
    def available(self) -> Array:
        """Bytes left for the cache; negative where there are none."""
        return self.budget - self.fixed

    def at_its_end(self, tokens: Array, smoothing: Smoothing = None) -> Array:
        """Bytes that a request takes at most until it has ``tokens`` tokens, as vLLM counts it."""
        return self.cache.at_its_end(tokens, self.batched_tokens, smoothing)


class Launched(NamedTuple):
    """Sequences and tokens of the largest pass of a server that is started for n requests.

    Sequences: ``sequences`` + ``own`` n, ``own`` 1 where the server is started for as many as it
    runs and 0 where their number is given. Tokens: the larger of ``tokens`` and ``prompt`` +
    ``fed`` a sequence.
    """

    sequences: Array
    own: Array
    tokens: Array
    prompt: Array
    fed: Array

    @classmethod
    def in_flight(cls, engine: EngineSettings) -> "Launched":
        """A server that is started for the requests that it decodes at once."""
        none, one = jnp.zeros_like(engine.batched_tokens), jnp.ones_like(engine.batched_tokens)
        return cls(none, one, engine.batched_tokens, none, one)

    def settings(self, engine: EngineSettings, requests: Array | float = 1.0) -> EngineSettings:
        """``engine`` with the tokens and sequences of its largest pass, for 1 request or more."""
        sequences = self.sequences + self.own * jnp.maximum(requests, 1.0)
        tokens = jnp.maximum(self.tokens, self.prompt + self.fed * sequences)
        return engine.replace(batched_tokens=tokens, sequences=sequences)


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
    weights = chip_memory.weight_bytes(model, ranks, overheads.multiple, own)
    cut = (engine.block, engine.state_pages)
    cache = paging(model, ranks, *cut, own, smoothing)
    if drafter.model is not None:
        second = chip_memory.weight_bytes(drafter.model, ranks, overheads.multiple)
        weights = weights | {"draft": drafter.share * total(second.values())}
        small = paging(drafter.model, ranks, *cut, smoothing=smoothing)
        cache = cache.beside_another(small, drafter.share)
    together = jnp.where(ranks.tp * ranks.groups > 1.0, overheads.collectives, 0.0)
    visible = hardware.chip.memory * engine.visible
    each = chip_memory.activations(model, ranks, overheads.logits)
    activations = each.peak(engine.batched_tokens, engine.sequences)
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
        each=each,
    )


def bytes_of_requests(chip: Account, requests: Array, lengths: MeanLengths) -> Filled:
    """Bytes of cache that ``requests`` requests of an attention group take on each of its chips."""
    isl, osl, held, common = lengths
    once = chip.cache.shared(common)
    alone = chip.at_its_end(isl + osl - common)
    each = chip.cache.on_average(isl + held * osl - common)
    return Filled(
        average=once + jnp.maximum(requests * each, alone),
        most=once + jnp.maximum(requests, 1.0) * alone,
    )


def requests_held(
    chip: Account, lengths: MeanLengths, launched: Launched, least: Array | float = 0.0
) -> Array:
    """Requests that fit in the cache of one attention group, on average in the steady state.

    The peak of activations is the largest of lines a + b n in the number n of requests that the
    server is ``launched`` for; a line leaves room for (free - a) / (cache of a request + b).
    ``least``: share of the visible memory that the cache has at least.
    """
    tokens = lengths.isl + lengths.held * lengths.osl - lengths.common
    cache, each = chip.cache.on_average(tokens), chip.each
    free = chip.available + chip.activations - chip.cache.shared(lengths.common)
    sequences, own, least_tokens, prompt, fed = launched
    lines = ((least_tokens, jnp.zeros_like(own)), (prompt + fed * sequences, fed * own))
    held = [
        (free - rate * fixed - more * sequences) / (cache + rate * growing + more * own)
        for fixed, growing in lines
        for rate, more in ((each.inside, 0.0), (each.end, each.sampled))
    ]
    return jnp.maximum(reduce(jnp.minimum, held), least * chip.visible / cache)
