"""The estimate of a loaded server: throughput by Little's law, price, energy, limits."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import ENERGY, Estimate, Limit, Phase
from infer_jax.estimators.serving import memory, pass_terms
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.pass_terms import Cost, add, as_draft, overhead
from infer_jax.estimators.serving.passes import (
    Passes,
    attention_and_launch,
    decode_needs,
    eager_launch,
    micro_batch,
    pass_yield,
)
from infer_jax.estimators.serving.plan import ServingWorkload
from infer_jax.physics.cost import joules_per_million_tokens, power_at, usd_per_million_tokens
from infer_jax.specs import ForwardPass, Output, number, part, spec
from infer_jax.typed_jax import trees


@spec
class Pass(Phase):
    """A forward pass, and the seconds of it in which memory is read and arithmetic is done."""

    reading: Array = number("time during which memory is read", unit="s", kind="time")
    computing: Array = number("time during which arithmetic is done", unit="s", kind="time")


def one_pass(ctx: Context, forward: ForwardPass) -> Pass:
    """One forward pass of an instance, its sequences dealt to the attention groups.

    A pass of few new tokens a sequence decodes: it replays a CUDA graph, attends in the absorbed
    form, and the host and the head see every token. A longer one is a prefill. The sequences of a
    group go through the stages of a pipeline in ``pp`` micro-batches.
    """
    plan, coef, new = ctx.plan, ctx.coefficients, forward.new_tokens
    sequences = forward.sequences / plan.attention_dp
    micro, gaps = micro_batch(ctx, sequences), pass_terms.gaps(ctx)
    decodes, context = new <= coef.decode_tokens, forward.cached_tokens + new
    verified = jnp.maximum(new, 1.0 + plan.drafts)
    kinds = (
        add(
            pass_terms.decode_attention(ctx, micro, new, forward.cached_tokens),
            pass_terms.head(ctx, micro, new),
            overhead(launch=gaps, host=ctx.engine.sequence_time * sequences),
        ),
        add(
            pass_terms.prefill_attention(ctx, micro, new, forward.cached_tokens),
            pass_terms.prompt_head(ctx, micro),
            overhead(
                launch=eager_launch(ctx, new, gaps), host=jnp.zeros_like(ctx.engine.sequence_time)
            ),
        ),
    )
    needs = trees.where(decodes, *kinds)
    cost = add(pass_terms.through_layers(ctx, micro * new, needs.time), needs)
    cost = cost.scaled(jnp.where(decodes, coef.decode_factor, coef.first_factor))
    limits = {
        # a prompt may come without the part that is cached
        "memory": memory.limit(ctx, sequences, context, jnp.where(decodes, verified, context)),
        "expert ranks": memory.expert_ranks(ctx),
    }
    time = cost.time
    return Pass(
        time=time,
        terms=cost.terms,
        limits=limits,
        mfu=pass_terms.ideal(ctx, micro * new) / time,
        layout=layout(ctx),
        reading=cost.reading,
        computing=cost.computing,
    )


def one_token(ctx: Context, forward: ForwardPass) -> Pass:
    """``one_pass``, or with ``plan.drafts`` a decode step, per token that each sequence gains.

    It is the decode step of ``passes``, so that ``step`` and ``estimate`` price drafts alike.
    """
    plain = one_pass(ctx, forward)
    sequences = forward.sequences / ctx.plan.attention_dp
    needs = attention_and_launch(ctx, sequences, forward.cached_tokens, pass_terms.gaps(ctx))
    rows, tokens = micro_batch(ctx, sequences) * (1.0 + ctx.plan.drafts), pass_yield(ctx)
    layers = pass_terms.through_layers(ctx, rows, needs.time)
    cost = add(layers, decode_needs(ctx, sequences, needs, layers))
    cost = cost.scaled(ctx.coefficients.decode_factor / tokens)
    terms = plain.terms
    if ctx.draft is not None:
        small = one_pass(ctx.draft, forward)
        draft = as_draft(Cost(small.terms, small.reading, small.computing))
        cost = add(cost, draft.scaled(ctx.plan.drafts / tokens))
        terms = terms | {"draft": jnp.zeros_like(plain.time)}
    time = cost.time
    drafted = plain.replace(
        time=time,
        terms={name: cost.terms[name] for name in terms},
        mfu=plain.mfu * plain.time / time,
        reading=cost.reading,
        computing=cost.computing,
    )
    return trees.where(ctx.plan.drafts > 0.0, drafted, plain.replace(terms=terms))


def layout(ctx: Context) -> dict[str, Array]:
    """The degrees of the plan."""
    names = ("tp", "attention_dp", "ep", "pp")
    return {name: getattr(ctx.plan, name) for name in names}


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
        output=Output("tokens in or out", per="Mtok", views=("compare",)),
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
    joules = joules_per_million_tokens(chips, drawn, seconds, load.batch)
    (out, into, both), (out_j, into_j, both_j) = (
        per_tokens(of_requests, prefilling, lengths) for of_requests in (usd, joules)
    )
    filled, fits = memory.bytes_by_use(ctx, load.capacity, load.in_memory / plan.attention_dp)
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
    return power_at(ctx.hardware.power, busy, rate, ctx.coefficients.draw)
