"""TTFT, TPOT and throughput of a server with a fixed number of requests in flight.

A closed loop in the mean: work is conserved, so that a request's time is its own decode steps,
the prefills of those it shares the server with, and waits.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import ENERGY, Estimate, Limit, Phase
from infer_jax.estimators.serving import memory, pass_terms
from infer_jax.estimators.serving.coefficients import Coefficients
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.passes import Passes, kept_tokens, layout, passes
from infer_jax.estimators.serving.plan import Deployment
from infer_jax.estimators.serving.workload import Requests
from infer_jax.physics import energy, interference, pipelining, tiers
from infer_jax.physics.admission import running
from infer_jax.physics.decoder import total
from infer_jax.physics.price import usd_per_million_tokens
from infer_jax.specs import Output, number, part, spec


@spec
class ServerEstimate(Estimate):
    """An estimate of a loaded server. ``ttft`` and ``tpot`` hold all waits; terms say which.

    ``prefill`` is of the first token, ``decode`` of every other one. ``tpot`` is (latency - ttft)
    / (osl - 1), as vLLM and SGLang report it; ``tpot_with_first`` is latency / osl, as GuideLLM
    does. Prices and energies of a side are of the time that it keeps the chips busy; idle time
    is shared alike.
    """

    latency: Array = number(
        "time of a request, first to last token",
        unit="s",
        kind="time",
        output=Output("latency of a request", short="latency", views=("compare",)),
    )
    tpot_with_first: Array = number(
        "time per output token, the first included",
        unit="s",
        kind="time",
        output=Output(views=()),
    )
    blended_cost: Array = number(
        "USD per million tokens in or out",
        unit="USD",
        kind="price",
        output=Output("tokens in or out", per="Mtok", views=()),
    )
    energy: Array = number("energy per million output tokens", unit="J", kind="size", output=ENERGY)
    input_energy: Array = number(
        "energy per million new input tokens",
        unit="J",
        kind="size",
        output=Output("energy of input tokens", per="Mtok", drawn=True, views=("estimate", "plan")),
    )
    blended_energy: Array = number(
        "energy per million tokens in or out",
        unit="J",
        kind="size",
        output=Output("tokens in or out", per="Mtok", drawn=True, views=("plan",)),
    )
    power: Array = number(
        "mean power of a chip",
        unit="W",
        kind="rate",
        output=Output(
            "power of a GPU",
            short="power",
            key="power_per_gpu",
            more=False,
            drawn=True,
            views=("estimate", "compare"),
        ),
    )
    running: Array = number(
        "requests that run at once in an instance",
        kind="count",
        output=Output("requests running", views=("estimate",)),
    )
    places: Array = number(
        "requests that an instance has memory for",
        kind="count",
        output=Output(more=True, views=()),
    )
    memory: dict[str, Array] = part(
        "bytes of a chip that weights, cache and runtime fill", default_factory=dict
    )
    percentiles: dict[str, Array] = part(
        "percentiles of the time to first token, where waits are random", default_factory=dict
    )


class Lengths(NamedTuple):
    """Tokens of a mean request: prompt, output, cached part of the prompt, part to compute."""

    isl: Array
    osl: Array
    prefix: Array
    fresh: Array

    @classmethod
    def of(cls, c: Context, work: Requests) -> "Lengths":
        """The true means of a workload; at least one prompt token is computed."""
        scale = jnp.where(work.nominal > 0.5, c.model.drawn_length, 1.0)
        isl, osl, prefix = (x * scale for x in (work.isl, work.osl, work.prefix))
        return cls(isl, osl, prefix, jnp.maximum(isl - prefix, 1.0))


def closed_loop(c: Context, work: Requests) -> ServerEstimate:
    """TTFT, TPOT and throughput with ``work.batch`` requests in flight in an instance.

    TPOT = t_d + (1 - sigma)(r P_m + e E r / (1 + r)), r = (b - 1) / (O - 1 + nu) prefills a step,
    TTFT_0 = t0 (1 + [dp > 1] k dp) + P + nu TPOT + sigma max(b - 1, 0)(P_m + e E min(1, I / I_0)),
    TTFT = TTFT_0 + (C / C_e - 1)(TTFT_0 + (O - 1) TPOT): what memory does not hold waits a
    request's time by Little's law. Both are means.
    """
    model, plan, engine = c.model, c.plan, c.engine
    fixed, many = work.fixed > 0.5, Lengths.of(c, work)
    isl, osl, prefix, fresh = many

    asked = jnp.maximum(work.batch - jnp.where(fixed, engine.slot, 0.0), 1e-3)
    room = memory.room(c, isl, osl, work.common * prefix)
    cached = memory.cache_bytes(c, prefix)
    run = running(asked, room.places, model.admission_sharpness)
    group = jnp.maximum(run / plan.attention_dp, 1.0)
    taken = admission_steps(c, fixed)
    rate = interference.prefills_per_step(group, taken + osl - 1.0)
    done = passes(c, group, isl + osl / 2.0, fresh, prefix, rate)

    odds = jnp.where(fixed, engine.sync_fixed, engine.sync)
    launches = model.eager_beside_decode * done.launch
    joining = done.joining.time
    disturbed = interference.on_decoding(rate, joining, launches, odds, done.chunks)
    decode = {**done.decode.terms, "other prefills": disturbed}
    decode = {name: x * model.decode_factor for name, x in decode.items()}
    tpot = model.decode_factor * (done.decode.time + disturbed)

    once = done.chunks * launches * jnp.minimum(fresh / model.eager_tokens, 1.0)
    first = {
        **done.alone.terms,
        "fetch": fetch(c, work, cached, done.alone.time),
        **before(c, taken, tpot),
        "other prefills": interference.on_first(group, joining, once, odds),
    }
    first = {name: x * model.first_factor for name, x in first.items()}
    begun = total(first.values())
    first["queue"] = (work.batch / run - 1.0) * (begun + (osl - 1.0) * tpot)
    ttft = begun + first["queue"]
    limits = {"requests": Limit(need=work.batch, capacity=room.places)}
    flight = Flight(work.batch, work.batch, run, group, room, cached, ttft, tpot, limits)
    return server_estimate(c, work, many, done, flight, first, decode)


def before(c: Context, steps: Array, tpot: Array) -> pass_terms.Terms:
    """Seconds before the prompt's first pass: network and tokeniser, ``steps`` till admission."""
    return {"front": front(c.model, c.plan), "admission": steps * tpot}


def admission_steps(c: Context, fixed: Array) -> Array:
    """Output tokens of another request while one waits to be taken in."""
    model, engine = c.model, c.engine
    steps = jnp.where(fixed, jnp.minimum(engine.admission, model.admission_fixed), engine.admission)
    steps = steps + (c.plan.polling - 1.0) / 2.0
    # a pass with drafts gives several tokens
    return steps * jnp.where(model.admission_in_passes > 0.5, kept_tokens(c), 1.0)


def front(model: Coefficients, plan: Deployment) -> Array:
    """Seconds of network and tokeniser, t0 (1 + [dp > 1] k dp)."""
    groups = plan.attention_dp
    return model.front * (1.0 + jnp.where(groups > 1.0, model.front_rank * groups, 0.0))


def fetch(c: Context, work: Requests, cached: Array, prefill: Array) -> Array:
    """Seconds that fetching ``cached`` bytes from host and disk adds to ``prefill``, by layers."""
    host = c.hardware.host
    near = tiers.seconds(cached * work.from_host, host.link_bandwidth)
    far = tiers.seconds(cached * work.from_disk, host.disk_read)
    layers = jnp.sum(c.shape.layers.count, axis=-1)
    return pipelining.exposed(near + far, prefill, layers)


class Flight(NamedTuple):
    """Requests in flight, running in an instance and in a group, their room; seconds of each.

    ``asked``: those that memory is asked to hold; ``cached``: bytes on a chip of the cached part
    of a prompt; ``limits`` on how many there may be.
    """

    batch: Array
    asked: Array
    running: Array
    group: Array
    room: memory.Room
    cached: Array
    ttft: Array
    tpot: Array
    limits: dict[str, Limit]


def shared(million: Array, prefilling: Array, lengths: Lengths) -> tuple[Array, Array, Array]:
    """What a million requests take, per million output, new input and all tokens.

    ``prefilling``: the share of the time that goes to prompts, which input tokens pay for.
    """
    isl, osl, _, fresh = lengths
    return million * (1.0 - prefilling) / osl, million * prefilling / fresh, million / (isl + osl)


def mean_power(c: Context, done: Passes, flight: Flight, osl: Array, latency: Array) -> Array:
    """Mean power of a chip, W, by the shares of the time that it reads and computes."""
    # a group's work in a request's time: its own decode steps, and everyone's prompts once
    busy = pass_terms.joined(done.decode.times(osl), done.joining.times(flight.group))
    present = latency * flight.running / flight.batch
    reading, computing = (jnp.minimum(x / present, 1.0) for x in (busy.reading, busy.computing))
    return energy.power(c.hardware.power, reading, computing, c.model.draw)


def server_estimate(
    c: Context,
    work: Requests,
    lengths: Lengths,
    done: Passes,
    flight: Flight,
    first: pass_terms.Terms,
    decode: pass_terms.Terms,
) -> ServerEstimate:
    """The estimate of requests in flight: throughput by Little's law, price, energy, limits."""
    osl, plan, chips = lengths.osl, c.plan, c.plan.instance
    latency = flight.ttft + (osl - 1.0) * flight.tpot
    watts = mean_power(c, done, flight, osl, latency)
    prefilling = done.joining.time * flight.group
    prefilling = prefilling / (prefilling + done.decode.time * osl)
    usd = usd_per_million_tokens(chips, c.hardware.price, latency, flight.batch)
    joules = energy.joules_per_million_tokens(
        chips, watts * c.model.draw.pue, latency, flight.batch
    )
    (out, into, both), (out_j, into_j, both_j) = (
        shared(of_requests, prefilling, lengths) for of_requests in (usd, joules)
    )
    filled, room = memory.filled(c, flight.room, flight.asked / plan.attention_dp)
    kept = flight.cached * flight.group
    host = c.hardware.host
    limits = {
        **flight.limits,
        "memory": room,
        "expert ranks": memory.expert_ranks(c),
        "host memory": Limit(need=kept * work.from_host, capacity=host.memory),
        "disk memory": Limit(need=kept * work.from_disk, capacity=host.disk),
    }
    rows = (lengths.fresh / plan.pp, flight.group / plan.pp)
    prefill, decoding = (
        Phase(time=t, terms=x, limits=limits, mfu=pass_terms.ideal(c, n) / t, layout=layout(c))
        for t, x, n in zip((flight.ttft, flight.tpot), (first, decode), rows, strict=True)
    )
    return ServerEstimate(
        ttft=flight.ttft,
        tpot=flight.tpot,
        chips=chips,
        throughput=flight.batch * osl / latency / chips,
        cost=out,
        input_cost=into,
        prefill=prefill,
        decode=decoding,
        tpot_with_first=latency / osl,
        latency=latency,
        running=flight.running,
        places=flight.room.places,
        blended_cost=both,
        power=watts,
        energy=out_j,
        input_energy=into_j,
        blended_energy=both_j,
        memory=filled,
    )
