"""How long do requests wait that come by themselves, and how far do their waits spread?

The passes of this theory, put through the laws of a server that batches continuously.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Limit
from infer_jax.estimators.serving import life, room
from infer_jax.estimators.serving.life import Flight, Lengths, Served
from infer_jax.estimators.serving.passes import passes, stepping
from infer_jax.estimators.serving.workload import Requests
from infer_jax.estimators.serving.world import World
from infer_jax.physics import batching
from infer_jax.physics.batching import Service
from infer_jax.physics.decoder import total
from infer_jax.specs import UNBOUNDED, Arrivals

BUDGET = 8192.0  # tokens of a pass where the plan does not say, as vLLM's server on large GPUs


class Group(NamedTuple):
    """What the laws of batching are told of one attention group."""

    step: batching.Step
    kinds: batching.Kinds
    server: batching.Server
    context: Array


def group_of(w: World, work: Requests, lengths: Lengths) -> Group:
    """One of the equal attention groups of an instance, as a server that batches."""
    means = {"isl": lengths.isl, "osl": lengths.osl, "prefix": lengths.prefix}
    kinds = batching.kinds_of(work.replace(**means))
    context = batching.mean_context(kinds)
    tokens = lengths.isl + w.engine.held_output * lengths.osl
    held = room.held(w, tokens, work.common * lengths.prefix)
    budget = jnp.where(w.plan.chunk < UNBOUNDED, w.plan.chunk, BUDGET)
    server = batching.Server(
        budget=budget,
        # a pass has room for a token of each request that decodes
        slots=jnp.minimum(w.plan.max_sequences, budget),
        cache=jnp.maximum(held, 1.0 / w.plan.attention_dp) * tokens,
        reserved=w.engine.held_output,
    )
    law = stepping(w, context)

    def step(decoding: Array, prompts: Array, new: Array, cached: Array) -> Array:
        return w.model.decode_factor * law(decoding, prompts, new, cached)

    return Group(step, kinds, server, context)


def service(w: World, work: Requests) -> Service:
    """Means and percentiles of one attention group, in a closed or an open loop.

    Passes alone: what ``life.before`` adds before the first pass is not in it.
    """
    return _service(group_of(w, work, Lengths.of(w, work)), w, work)


def _service(group: Group, w: World, work: Requests) -> Service:
    inputs = (group.step, group.kinds, group.server)
    if work.arrivals is None:
        return batching.closed_loop(*inputs, work.batch / w.plan.attention_dp)
    rate = work.arrivals.rate / w.plan.attention_dp
    return batching.open_loop(*inputs, rate, work.arrivals.variability)


def open_loop(w: World, work: Requests, arrivals: Arrivals) -> Served:
    """TTFT with its percentiles, TPOT and throughput when requests arrive by themselves.

    At and beyond capacity times are finite and the limit on arrivals is broken.
    """
    lengths, groups = Lengths.of(w, work), w.plan.attention_dp
    group = group_of(w, work, lengths)
    found = _service(group, w, work)
    decoding = jnp.maximum(found.decoding, 1.0)  # a request that decodes sees itself
    done = passes(w, decoding, group.context, lengths.fresh, lengths.prefix)
    ready = life.before(w, work.fixed > 0.5, found.tpot)
    fetched = life.fetch(w, work, lengths, done.alone.time)
    # the laws are told steps that decode; a prompt's own has a factor of its own
    own = {"prompt": found.own / w.model.decode_factor, "fetch": fetched, **ready}
    first = {
        **{name: x * w.model.first_factor for name, x in own.items()},
        "other prefills": found.queue_wait,
        "queue": found.slot_wait,
    }
    ttft = total(first.values())
    later = ttft - found.ttft
    alone = done.decode.times(w.model.decode_factor)
    disturbed = jnp.maximum(found.tpot - alone.time, 0.0)
    decode = {**alone.terms, "other prefills": disturbed}
    tpot = total(decode.values())
    flight = Flight(
        batch=arrivals.rate * (ttft + (lengths.osl - 1.0) * tpot),
        running=found.running * groups,
        group=decoding,
        places=life.room_for(w, work, lengths),
        ttft=ttft,
        tpot=tpot,
        limits={"arrivals": Limit(need=arrivals.rate, capacity=found.capacity * groups)},
    )
    answer = life.served(w, work, lengths, done, flight, first, decode)
    names = (f"p{100 * level:g}" for level in batching.LEVELS)
    percentiles = {n: t + later for n, t in zip(names, found.ttft_at, strict=True)}
    return answer.replace(percentiles=percentiles)
