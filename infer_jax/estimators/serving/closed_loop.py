"""TTFT, TPOT and throughput of a server with a fixed number of requests in flight.

A closed loop in the mean: work is conserved, so that a request's time is its own decode steps,
the prefills of those it shares the server with, and waits.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import ENERGY, Estimate, Limit, Phase
from infer_jax.estimators.serving import memory, pass_terms
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.passes import Passes, layout, pass_yield, passes
from infer_jax.estimators.serving.workload import ServingWorkload
from infer_jax.physics import energy, pipelining
from infer_jax.physics.decoder import total
from infer_jax.physics.memory import tiers
from infer_jax.physics.price import usd_per_million_tokens
from infer_jax.physics.scheduling import interference
from infer_jax.physics.scheduling.admission import running
from infer_jax.physics.scheduling.balancing import balance_wait
from infer_jax.specs import UNBOUNDED, Output, number, part, spec
from infer_jax.typed_jax import trees


@spec
class ServerEstimate(Estimate):
    """An estimate of a loaded server. ``ttft`` and ``tpot`` hold all waits; terms say which.

    Times are means, but for ``ttft_median``. Where a workload says how many requests a benchmark
    sends, ``ttft`` holds the wait of those that all come at its start, which few medians do.
    ``prefill`` is of the first token, ``decode`` of every other one. ``tpot`` is (latency - ttft)
    / (osl - 1), as vLLM and SGLang report it; ``tpot_with_first`` is latency / osl, as GuideLLM
    does. Prices and energies of a side are of the time that it keeps the chips busy; idle time
    is shared alike.
    """

    ttft: Array = number(
        "mean time to first token",
        unit="s",
        kind="time",
        output=Output("mean TTFT", short="TTFT", banded=True),
    )
    ttft_median: Array = number(
        "median time to first token",
        unit="s",
        kind="time",
        output=Output("median TTFT", banded=True, views=("estimate", "compare", "report")),
    )
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
        output=Output(
            "GPU energy of input tokens", per="Mtok", drawn=True, views=("estimate", "plan")
        ),
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
    in_flight: Array = number(
        "requests sent to an instance and not answered, waits included: rate times latency",
        kind="count",
        output=Output("requests in flight", short="in flight", views=("estimate",)),
    )
    running: Array = number(
        "requests that run at once in an instance",
        kind="count",
        output=Output("requests running", short="running", views=("estimate", "plan")),
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


class RequestTokens(NamedTuple):
    """Tokens of a mean request: prompt, output, cached part of the prompt, part to compute."""

    isl: Array
    osl: Array
    prefix: Array
    fresh: Array

    @classmethod
    def of(cls, ctx: Context, work: ServingWorkload) -> "RequestTokens":
        """The true means of a workload; at least one prompt token is computed."""
        scale = jnp.where(work.nominal > 0.5, ctx.coefficients.drawn_length, 1.0)
        isl, osl, prefix = (x * scale for x in (work.isl, work.osl, work.prefix))
        return cls(isl, osl, prefix, jnp.maximum(isl - prefix, 1.0))


class Loop(NamedTuple):
    """A closed loop: requests that run, in an instance and a group, and how they share passes.

    ``passes``: its passes; ``together``: mean prompts in a pass that has any; ``step``: seconds of
    a pass that only decodes; ``admission``: seconds from an arrival to the first pass that can feed
    it; ``ends``: seconds that start and end of a benchmark add to it.
    """

    lengths: RequestTokens
    capacity: memory.Capacity
    running: Array
    group: Array
    prompt: interference.OtherPrompts
    passes: Passes
    together: Array
    step: Array
    admission: Array
    ends: Array


def closed_loop(ctx: Context, work: ServingWorkload) -> ServerEstimate:
    """TTFT, TPOT and throughput with ``work.batch`` requests in flight in an instance.

    Of b requests that run a prompt takes P seconds alone, waits w passes for others and meets m of
    them on its way, by the rules of the engine's scheduler (``interference``); each adds g seconds
    to passes. TPOT = t_d + (b - 1 - m) g / (O - 1), t_d a decode step; a pass that decodes has no
    more prompts than fit it. TTFT_0 is P + w t_d + m g and what comes before.
    """
    lengths = isl, osl, prefix, fresh = RequestTokens.of(ctx, work)
    plan, engine, equal = ctx.plan, ctx.engine, work.fixed > 0.5
    prefill_first, fed, tokens = engine.prefill_first > 0.5, 1.0 + plan.drafts, pass_yield(ctx)
    # above 0, so that TPOT is defined for an output of one token
    later = jnp.maximum(osl - 1.0, 1e-3)
    flight = work.batch / plan.attention_dp
    capacity = memory.capacity(ctx, isl, osl, work.common * prefix, flight)
    run = running(
        jnp.maximum(work.batch, 1e-3), capacity.places, ctx.coefficients.admission_sharpness
    )
    group = jnp.maximum(run / plan.attention_dp, 1.0)

    usual = jnp.maximum(engine.budget, engine.whole * (fresh + group * fed))
    budget = jnp.where(plan.chunk < UNBOUNDED, plan.chunk, usual)
    load = group, fresh, later / tokens, budget
    first = interference.before_decodes(*load, equal)
    prompt = trees.where(prefill_first, first, interference.beside_decodes(*load, fed, equal))
    together = jnp.minimum(1.0 + prompt.met, prompt.room / fresh)
    # lengths that are equal end together, and so do the waits for each other's prompts
    period, busy = later / tokens, -jnp.expm1(-run / plan.attention_dp)
    balanced = jnp.where(equal, 0.0, balance_passes(ctx, group / period, busy))
    decoding = jnp.maximum(group * prompt.decoding * period / (period + balanced), 1.0)
    cost = passes(ctx, decoding, isl + osl / 2.0, fresh, prefix, prompt.chunks, together * fresh)
    decode_time, joining = cost.decode.time, cost.joining.time
    step = decode_time * tokens

    # equal requests before any decode arrive all at once, so that nobody waits for a decode pass
    waits = jnp.where(equal & prefill_first, 0.0, 1.0)
    phase, ahead = waits * engine.phase, waits * (engine.ahead + (plan.polling - 1.0) / 2.0)
    share = jnp.minimum(prompt.decoding * (group - 1.0) * tokens / (later * together), 1.0)
    until, in_prompts = interference.until_fed(
        group, share, step, together * joining, phase, ahead, equal
    )
    # seconds of others' prompts that a request meets: before its first token, and after it
    prompts = jnp.maximum(group - 1.0 - prompt.met, 0.0) * joining
    early = jnp.minimum(in_prompts, prompts)
    full = jnp.where(prefill_first, jnp.inf, joining * prompt.room / (fresh * tokens))
    others = jnp.minimum((prompts - early) / later, full)
    decode = {**cost.decode.terms, "other prefills": others}
    decode = {name: x * ctx.coefficients.decode_factor for name, x in decode.items()}
    tpot = ctx.coefficients.decode_factor * (decode_time + others)

    mixes = jnp.where(prefill_first, 0.0, 1.0)
    waves = work.waves * jnp.maximum(work.batch / capacity.places, 1.0)
    feeding = group * fresh / prompt.room * mixes
    cycle = period + prompt.chunks * mixes
    ends = interference.passes_beyond(waves, cycle, feeding, equal) * cost.fixed
    admission = until - (in_prompts - early) + balanced * tpot * tokens
    loop = Loop(lengths, capacity, run, group, prompt, cost, together, step, admission, ends)
    return loop_estimate(ctx, work, loop, decode, tpot)


def loop_estimate(
    ctx: Context, work: ServingWorkload, loop: Loop, decode: pass_terms.Terms, tpot: Array
) -> ServerEstimate:
    """The estimate of a closed loop whose time per token is known.

    TTFT = TTFT_0 + (C / C_e - 1)(TTFT_0 + (O - 1) TPOT) for C requests in flight, of which C_e run:
    by Little's law the others wait. All are means; the median is without the wave at the start of
    a benchmark (``interference.median_of_wave``), for what is left is nearly the same for all.
    """
    first = ttft_terms(ctx, loop, work)
    wave = first["first wave"] * work.batch / loop.running
    unqueued, waits = total(first.values()), work.batch / loop.running - 1.0
    first["queue"] = waits * (unqueued + (loop.lengths.osl - 1.0) * tpot)
    ttft = unqueued + first["queue"]
    requests = ServerLoad(
        batch=work.batch,
        in_memory=work.batch,
        running=loop.running,
        group=loop.group,
        capacity=loop.capacity,
        cached=memory.cache_bytes(ctx, loop.lengths.prefix),
        ttft=ttft,
        ttft_median=ttft - wave + interference.median_of_wave(wave, work.waves),
        tpot=tpot,
        # a benchmark's first requests wait for each other, but its length counts both ends
        ends=jnp.where(work.waves < UNBOUNDED, loop.ends / work.waves - wave, 0.0),
        limits={"requests": Limit(need=work.batch, capacity=loop.capacity.places)},
    )
    return server_estimate(ctx, work, loop.lengths, loop.passes, requests, first, decode)


def ttft_terms(ctx: Context, loop: Loop, work: ServingWorkload) -> pass_terms.Terms:
    """Seconds until the first token by term, without the wait for memory."""
    prompt, joining = loop.prompt, loop.passes.joining.time
    own = loop.passes.alone.time
    cached = memory.cache_bytes(ctx, loop.lengths.prefix)
    first, equal = ctx.engine.prefill_first > 0.5, work.fixed > 0.5
    decoding = jnp.where(first, 0.0, prompt.chunks * loop.step)
    longer = jnp.maximum(joining + decoding - own, 0.0)
    wave = interference.first_wave(loop.group, joining + decoding / loop.together, work.waves)
    terms = {
        **loop.passes.alone.terms,
        "fetch": fetch(ctx, work, cached, own),
        "front": ctx.engine.front,
        "admission": loop.admission,
        "beside decodes": jnp.where(first, 0.0, jnp.minimum(loop.group - 1.0, 1.0) * longer),
        "other prefills": prompt.met * joining + prompt.turns * loop.step,
        "first wave": jnp.where((first & equal) | (work.waves >= UNBOUNDED), 0.0, wave),
    }
    return {name: x * ctx.coefficients.first_factor for name, x in terms.items()}


def balance_passes(ctx: Context, arrivals: Array, busy: Array) -> Array:
    """Passes that a prompt waits for prompts of other attention groups (``balance_wait``).

    ``arrivals``: of a group, a pass; ``busy``: chance that a group decodes. Where one does not, no
    prompt waits.
    """
    groups = ctx.plan.attention_dp
    return busy**groups * balance_wait(arrivals, groups, ctx.plan.balance_timeout)


def fetch(ctx: Context, work: ServingWorkload, cached: Array, prefill: Array) -> Array:
    """Seconds that fetching ``cached`` bytes from host and disk adds to ``prefill``, by layers."""
    host = ctx.hardware.host
    near = tiers.seconds(cached * work.from_host, host.link_bandwidth)
    far = tiers.seconds(cached * work.from_disk, host.disk_read)
    layers = jnp.sum(ctx.shape.layers.count, axis=-1)
    return pipelining.exposed(near + far, prefill, layers)


class ServerLoad(NamedTuple):
    """Requests that a server has in flight (``batch``), those that run in an instance, their times.

    ``group``: requests that share a pass of an attention group, in a pass that has any;
    ``in_memory``: requests that the memory limit is checked for; ``capacity``: how many memory
    holds; ``cached``: bytes on a chip of the cached part of a prompt; ``ttft``, its median and
    ``tpot``: seconds; ``ends``: seconds a request by which a benchmark takes longer than a server
    that runs on; ``limits``: on the number of requests.
    """

    batch: Array
    in_memory: Array
    running: Array
    group: Array
    capacity: memory.Capacity
    cached: Array
    ttft: Array
    ttft_median: Array
    tpot: Array
    ends: Array
    limits: dict[str, Limit]


def per_tokens(
    million: Array, prefilling: Array, lengths: RequestTokens
) -> tuple[Array, Array, Array]:
    """A cost of a million requests per million output tokens, new input tokens and all tokens.

    ``prefilling``: the share of the time spent on prompts, which is charged to input tokens.
    """
    isl, osl, _, fresh = lengths
    return million * (1.0 - prefilling) / osl, million * prefilling / fresh, million / (isl + osl)


def mean_power(ctx: Context, cost: Passes, load: ServerLoad, osl: Array, latency: Array) -> Array:
    """Mean power of a chip, W, by the shares of the time that it is in passes and works."""
    # a group's work in a request's time: its own decode steps, and everyone's prompts once
    busy = pass_terms.add(cost.decode.scaled(osl), cost.joining.scaled(load.group))
    # this often: the requests that a group finishes in a second, a pass serving several at once
    rate = load.batch / latency / (ctx.plan.attention_dp * load.group)
    return energy.power_at(ctx.hardware.power, busy, rate, ctx.coefficients.draw)


def server_estimate(
    ctx: Context,
    work: ServingWorkload,
    lengths: RequestTokens,
    cost: Passes,
    load: ServerLoad,
    first: pass_terms.Terms,
    decode: pass_terms.Terms,
) -> ServerEstimate:
    """The estimate of requests in flight: throughput by Little's law, price, energy, limits."""
    osl, plan, chips = lengths.osl, ctx.plan, ctx.plan.instance
    latency = load.ttft + (osl - 1.0) * load.tpot
    watts = mean_power(ctx, cost, load, osl, latency)
    prefilling = cost.joining.time * load.group
    prefilling = prefilling / (prefilling + cost.decode.time * osl)
    seconds = latency + load.ends
    usd = usd_per_million_tokens(chips, ctx.hardware.price, seconds, load.batch)
    drawn = watts * ctx.coefficients.draw.pue
    joules = energy.joules_per_million_tokens(chips, drawn, seconds, load.batch)
    (out, into, both), (out_j, into_j, both_j) = (
        per_tokens(of_requests, prefilling, lengths) for of_requests in (usd, joules)
    )
    filled, fits = memory.filled(ctx, load.capacity, load.in_memory / plan.attention_dp)
    prefixes, host = load.cached * load.group, ctx.hardware.host
    limits = {
        **load.limits,
        "memory": fits,
        "expert ranks": memory.expert_ranks(ctx),
        "host memory": Limit(need=prefixes * work.from_host, capacity=host.memory),
        "disk memory": Limit(need=prefixes * work.from_disk, capacity=host.disk),
    }
    rows = (lengths.fresh / plan.pp, load.group / plan.pp)
    prefill, decoding = (
        Phase(time=t, terms=x, limits=limits, mfu=pass_terms.ideal(ctx, n) / t, layout=layout(ctx))
        for t, x, n in zip((load.ttft, load.tpot), (first, decode), rows, strict=True)
    )
    return ServerEstimate(
        ttft=load.ttft,
        ttft_median=load.ttft_median,
        tpot=load.tpot,
        chips=chips,
        throughput=load.batch * osl / seconds / chips,
        cost=out,
        input_cost=into,
        prefill=prefill,
        decode=decoding,
        tpot_with_first=latency / osl,
        latency=latency,
        in_flight=load.batch,
        running=load.running,
        places=load.capacity.places,
        blended_cost=both,
        power=watts,
        energy=out_j,
        input_energy=into_j,
        blended_energy=both_j,
        memory=filled,
    )
