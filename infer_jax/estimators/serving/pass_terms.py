"""The terms of the time of a pass, in seconds, from the table of layers.

``rows`` are tokens that one attention group feeds in the pass; tp chips work on them. Sums are
over the layers; the layers' axis is the last.
"""

import operator
from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.plan import Deployment, WideExperts
from infer_jax.physics import matmul, routing
from infer_jax.physics.decoder import total
from infer_jax.physics.layers import Weights
from infer_jax.physics.network import dispatch, switch_collectives
from infer_jax.physics.numerics import maximum
from infer_jax.physics.routing import moved_bytes, multiplied_rows
from infer_jax.typed_jax import trees


def exchange_time(ctx: Context, wide: WideExperts, rows: Array) -> Array:
    """Seconds in each layer of sending a group's ``rows`` tokens to experts and back.

    Dispatch and combine of DeepEP (``physics.network.dispatch``); each chip sends its share of the
    group's tokens, in the numbers that experts multiply, and gets 16-bit ones back.
    """
    plan, shape = ctx.plan, ctx.shape
    ranks, own = plan.tp * plan.attention_dp, rows * shape.width / plan.tp
    sizes = (own * dispatch.sent_bytes(shape.layers.routed.bits), own * dispatch.COMBINED)
    copies = shape.exchanged * (1.0 - ctx.coefficients.idle_slots)
    uses, nodes = copies * rows * plan.attention_dp, dispatch.nodes_of(ranks, ctx.wire)
    crowds = dispatch.Crowds(*(load_ratio(ctx, wide, uses, places) for places in (plan.ep, nodes)))

    def both_ways(size: Array) -> Array:
        quick = dispatch.low_latency(ranks, copies, size, ctx.wire, crowds.rank)
        thorough = dispatch.normal(ranks, copies, size, ctx.wire, wide.nodes, crowds)
        return jnp.where(wide.kernels > 0.5, quick, thorough)

    return total(both_ways(size) for size in sizes)


def exposed_exchange(ctx: Context, wide: WideExperts, computing: Array, exchange: Array) -> Array:
    """Seconds that ``exchange`` (X) adds to those of ``computing`` (C).

    smax(C + u X, X) - C where two micro-batches alternate, one exchanging while the other computes;
    X without. Normal kernels take a share u of a chip's processors while they run, low-latency
    ones none (deepseek-ai/profile-data at ae7fc07, README).
    """
    taken = jnp.where(wide.kernels > 0.5, 0.0, ctx.coefficients.handing_over)
    overlapped = maximum(computing + taken * exchange, exchange, 1.0 / ctx.coefficients.overlap)
    return jnp.where(wide.two_batch > 0.5, overlapped - computing, exchange)


def load_ratio(ctx: Context, wide: WideExperts, uses: Array, places: Array) -> Array:
    """Load of the busiest rank over the mean load, in each layer; ``places``: ranks, or nodes.

    ``uses``: pairs of a token and an expert that it visits. With copies of popular experts, the
    lesser of that and of experts placed by popularity (``routing.replicated_load``).
    """
    experts, skew = ctx.shape.layers.experts, ctx.coefficients.skew
    uneven = routing.popularity_spread(experts, skew) * jnp.sqrt(places / experts)
    dealt = routing.busiest(uses / places, places, ctx.coefficients.imbalance, uneven)
    placed = routing.replicated_load(experts, wide.copies, places, skew)
    return jnp.where(wide.copies > 0.0, jnp.minimum(dealt, placed), dealt)


NODE = 8.0  # chips of one node; a switch that joins more is a rack's
# of reading and computing of decode attention: a kernel streams keys while it multiplies others, so
# that the corner between them is sharper than that of a product, whose tiles come in waves
STREAMED = 0.1

Terms = dict[str, Array]
Layers = Float[Array, " layers"]  # a number for each row of the table of layers


class Cost(NamedTuple):
    """Seconds by term, and seconds for which memory is read and arithmetic is done."""

    terms: Terms
    reading: Array
    computing: Array

    @property
    def time(self) -> Array:
        """Seconds in all."""
        return reduce(operator.add, self.terms.values())

    def scaled(self, factor: Array) -> "Cost":
        """All of it, multiplied by ``factor``."""
        terms = {name: x * factor for name, x in self.terms.items()}
        return Cost(terms, self.reading * factor, self.computing * factor)


def add(*parts: Cost) -> Cost:
    """The cost of several activities, one after the other; terms of one name are added."""
    terms: Terms = {}
    for part in parts:
        for name, x in part.terms.items():
            terms[name] = terms[name] + x if name in terms else x
    return Cost(terms, total(p.reading for p in parts), total(p.computing for p in parts))


def overhead(**terms: Array) -> Cost:
    """Seconds by term during which neither memory is read nor arithmetic done."""
    return Cost(terms, jnp.asarray(0.0), jnp.asarray(0.0))


def as_draft(cost: Cost) -> Cost:
    """The cost of a draft model's pass as one term."""
    return Cost({"draft": cost.time}, cost.reading, cost.computing)


def through_layers(ctx: Context, rows: Array, attention_and_launch: Array | float = 0.0) -> Cost:
    """Seconds of a pass that depend on its number of tokens alone, ``rows`` in each group.

        L (T_A + T_el + 2 T_ar) + (L - L_d) (T_F + T_S) + L_d T_D

    for L layers, L_d of them dense. Products: of attention (T_A), of routed and shared experts
    (T_F, T_S), of a dense feedforward (T_D). T_el moves activations through memory, T_ar is an
    all-reduce over tensor ranks. With several attention groups the second all-reduce of a layer of
    experts is an exchange of tokens with them, there and back, each with tau_X seconds of the
    engine's kernels, x_R tau_X in a rack. Two micro-batches have half of the rows each, and one
    exchanges while the other computes: products, and ``attention_and_launch`` seconds.
    Source: docs/theories/serving.md.
    """
    layer, coef, plan = ctx.shape.layers, ctx.coefficients, ctx.plan
    wide, batches = plan.wide, micro_batches(plan)
    rows = rows if wide is None else rows / batches
    activations = rows * ctx.shape.width * ctx.shape.activation  # bytes of a group
    reduce = switch_collectives.all_reduce(plan.tp, activations, ctx.wire)
    groups = ctx.wire._replace(domain=jnp.maximum(ctx.wire.domain / plan.tp, 1.0))
    copies = ctx.shape.exchanged * (1.0 - coef.idle_slots)
    exchange = switch_collectives.exchange(plan.attention_dp, copies, activations, groups)
    rack = jnp.where(ctx.wire.domain > NODE, coef.rack_exchange, 1.0)
    exchange = 2.0 * (ctx.engine.exchange * rack + exchange)
    if wide is not None:
        exchange = exchange_time(ctx, wide, rows)
    exchanging = (plan.attention_dp > 1.0) & (jnp.max(layer.mixture) > 0.5)
    # attention and feedforward side by side are reduced together
    second = layer.has_feedforward * (1.0 - ctx.shape.parallel * layer.has_attention)
    others = {
        "elementwise": (layer.has_attention + layer.has_feedforward)
        / 2.0
        * coef.passes
        * activations
        / ctx.bandwidth,
        "all-reduce": (layer.has_attention + jnp.where(exchanging, 0.0, second)) * reduce,
        "exchange": jnp.where(exchanging, layer.has_feedforward, 0.0) * exchange,
    }
    terms = {name: jnp.sum(layer.count * x, axis=-1) for name, x in others.items()}
    # in one switch while the whole instance is
    between = jnp.where(plan.instance <= ctx.wire.domain, ctx.wire.rate, ctx.wire.beyond)
    cost = products(ctx, rows)
    if wide is not None:
        cost, activations = cost.scaled(batches), activations * batches
        terms = {name: x * batches for name, x in terms.items()}
        computing = attention_and_launch + cost.time + terms["elementwise"] + terms["all-reduce"]
        terms["exchange"] = exposed_exchange(ctx, wide, computing, terms["exchange"])
    stages = (plan.pp - 1.0) * (coef.hop + activations / plan.tp / between)
    terms = terms | cost.terms | {"stages": stages}
    terms |= coef.further_terms(rows, terms)
    return Cost(terms, cost.reading + terms["elementwise"], cost.computing)


def micro_batches(plan: Deployment) -> Array:
    """Micro-batches into which the rows of a pass are divided."""
    return jnp.asarray(1.0) if plan.wide is None else 1.0 + plan.wide.two_batch


class Product(NamedTuple):
    """One matrix product of a layer, as it is spread over chips."""

    weights: Weights
    copies: Array  # of the weights that are read
    rows: Array  # multiplied with each copy, summed over copies
    chips: Array  # that share the work
    rate_share: Array  # of the FLOP/s of a dense product

    def read_time(self, ctx: Context) -> Array:
        """Seconds of reading: copies x elements x bytes / (chips x bytes/s)."""
        stored = self.copies * self.weights.elements * self.weights.bytes
        return stored / (self.chips * ctx.read_rate)

    def compute_time(self, ctx: Context) -> Array:
        """Seconds of computing: 2 x elements x rows / (chips x FLOP/s)."""
        flops = 2.0 * self.weights.elements * self.rows
        return flops / (self.chips * ctx.dense_rate(self.weights.bits) * self.rate_share)


def products(ctx: Context, rows: Array) -> Cost:
    """Seconds of the matrix products of all layers: of each the smooth larger of

        read     = copies x elements x bytes / (chips x bytes/s of reading)
        computed = 2 x elements x rows / (chips x FLOP/s).

    Experts see the tokens of all attention groups, on all chips. Of them the copies are those that
    a token visits; each visited one multiplies m_0 rows more (tiles), and k_m u (2 d + 3 f / s)
    bytes of its inputs and outputs move through memory, of u rows of d numbers, f / s the part of
    an expert's width on a chip. Source: docs/theories/serving.md.
    """
    layer, coef, plan = ctx.shape.layers, ctx.coefficients, ctx.plan
    mixture, ones = layer.mixture > 0.5, jnp.ones_like(layer.count)
    tokens = jnp.where(mixture, rows * plan.attention_dp, rows)
    chips = jnp.where(mixture, plan.tp * plan.attention_dp, plan.tp)
    load = expert_load(ctx, tokens)
    busiest = load.uses * load.uneven
    grouped = coef.grouped if plan.wide is None else coef.segmented
    routed = Product(
        weights=layer.routed,
        copies=jnp.where(mixture, load.visited, 1.0),
        rows=jnp.where(
            mixture, multiplied_rows(busiest, load.visited, coef.expert_rows), load.uses
        ),
        chips=chips,
        rate_share=jnp.where(mixture, grouped * ctx.generation.grouped, 1.0),
    )
    every = {
        "projections": Product(layer.projections, ones, rows * ones, plan.tp * ones, ones),
        "feedforward": routed,
        "shared experts": Product(layer.shared, ones, rows * ones, plan.tp * ones, ones),
    }
    if coef.laws.router:
        every["router"] = Product(layer.router, ones, rows * ones, ones, ones)
    # all classes in one stacked call, which keeps the compiled program short
    stacked = trees.stack(*every.values())
    read, computed = stacked.read_time(ctx), stacked.compute_time(ctx)
    longer = maximum(read, computed, 1.0 / coef.overlap)
    slices, space = chips / plan.ep, layer.sizes
    moved = moved_bytes(
        busiest / plan.ep,
        space.expert_outer_width,
        space.expert_width / slices,
        ctx.shape.activation,
    )
    moving = coef.expert_moves * moved / ctx.bandwidth
    moving = jnp.sum(layer.count * jnp.where(mixture, moving, 0.0), axis=-1)
    times, read, computed = (jnp.sum(layer.count * x, axis=-1) for x in (longer, read, computed))
    terms = dict(zip(every, times, strict=True))
    terms["feedforward"] = terms["feedforward"] + moving
    return Cost(terms, jnp.sum(read) + moving, jnp.sum(computed))


class ExpertLoad(NamedTuple):
    """Pairs of a token and an expert, experts that are visited, busiest rank over the mean one."""

    uses: Array
    visited: Array
    uneven: Array


def expert_load(ctx: Context, tokens: Array) -> ExpertLoad:
    """What the experts of each layer are asked for by ``tokens`` of all attention groups."""
    layer, coef, plan = ctx.shape.layers, ctx.coefficients, ctx.plan
    active = layer.active * jnp.where(layer.mixture > 0.5, 1.0 - coef.idle_slots, 1.0)
    uses = active * tokens
    visited = layer.experts * routing.visited_share(layer.experts / active, tokens, coef.skew)
    if plan.wide is not None:
        copies = 1.0 + plan.wide.copies / layer.experts
        return ExpertLoad(uses, visited * copies, load_ratio(ctx, plan.wide, uses, plan.ep))
    spread = routing.popularity_spread(layer.experts, coef.skew) * jnp.sqrt(plan.ep / layer.experts)
    return ExpertLoad(
        uses, visited, routing.busiest(uses / plan.ep, plan.ep, coef.imbalance, spread)
    )


def decode_attention(ctx: Context, sequences: Array, new: Array | float, context: Array) -> Cost:
    """``sequences`` of a group each attend with ``new`` tokens to their contexts.

    The smooth larger of reading, b c kappa / (s_kv B eta_kv), and computing, b c s a_d / (tp F
    eta phi), over the c tokens that a layer sees, the index keys of all, and the states; phi is
    the share of a tile that queries fill. Latent attention is absorbed.
    """
    count, layer = ctx.shape.layers.count, ctx.shape.layers.attention
    coef, tp = ctx.coefficients, ctx.plan.tp
    tokens = jnp.minimum(jnp.minimum(context, layer.window), layer.top_k)
    rate = ctx.bandwidth * coef.cache_read
    near = jnp.minimum(context, layer.near)
    read = (tokens * layer.cache + near * layer.near_cache) / jnp.minimum(tp, layer.split)
    read = (read + context * layer.index + layer.state / tp) / rate
    extra = coef.laws.unpaired_flops * (layer.indexing * context + layer.recurring)
    flops = new * (tokens * layer.absorbed + near * layer.near_flops + extra)
    computed = flops / (tp * ctx.decode_rate(new))
    longer = maximum(read, computed, jnp.asarray(STREAMED))
    return _attended(count * sequences, longer, read, computed)


def prefill_attention(
    ctx: Context, sequences: Array, new: Array, cached: Array, chunks: Array | float = 1.0
) -> Cost:
    """``sequences`` of a group attend with their ``new`` tokens, fed in ``chunks`` passes.

    Pairs x a_p / (tp F eta_a); every pass reads the tokens cached before it. Latent attention is
    expanded.
    """
    count, layer = ctx.shape.layers.count, ctx.shape.layers.attention
    coef, tp = ctx.coefficients, ctx.plan.tp
    pairs = jnp.minimum(
        coef.laws.window_pairs(new, cached, layer.window),
        coef.laws.top_k_pairs(new, cached, layer.top_k),
    )
    scored = new * (cached + new / 2.0)
    extra = coef.laws.unpaired_flops * (layer.indexing * scored + layer.recurring * new)
    close = coef.laws.window_pairs(new, cached, layer.near) * layer.near_flops
    computed = (pairs * layer.expanded + close + extra) / (
        tp * ctx.attention_flops * coef.prefill_attention
    )
    before = chunks * cached + (chunks - 1.0) / 2.0 * new
    cache = jnp.minimum(before, chunks * layer.window) * layer.cache
    cache = cache + jnp.minimum(before, chunks * layer.near) * layer.near_cache
    cache = cache / jnp.minimum(tp, layer.split)
    read = (cache + before * layer.index) / (ctx.bandwidth * coef.cache_read)
    return _attended(count * sequences, read + computed, read, computed)


def _attended(times: Layers, time: Layers, read: Layers, computed: Layers) -> Cost:
    """The sum over layers, each counted ``times``, of seconds in all, of reading, of computing."""
    time, reading, computing = (jnp.sum(times * x, axis=-1) for x in (time, read, computed))
    return Cost({"attention": time}, reading, computing)


def head(ctx: Context, sequences: Array, logits: Array | float) -> Cost:
    """The output head over ``sequences`` x ``logits`` tokens: read, then multiplied.

    ``pp`` times: it is on the last stage of a pipeline alone, beside as many layers as the others
    have, and they wait for that stage with each micro-batch.
    """
    weights, tp = ctx.shape.head, ctx.plan.tp
    read = weights.elements * weights.bytes / (tp * ctx.bandwidth * ctx.coefficients.weight_read)
    computed = 2.0 * weights.elements * sequences * logits / (tp * ctx.dense_rate(weights.bits))
    read, computed = read * ctx.plan.pp, computed * ctx.plan.pp
    return Cost({"head": read + computed}, read, computed)


def prompt_head(ctx: Context, prompts: Array) -> Cost:
    """The output head over the last token of ``prompts``, where the variant counts it."""
    return head(ctx, prompts, 1.0).scaled(jnp.asarray(ctx.coefficients.laws.prompt_logits))


def gaps(ctx: Context) -> Array:
    """Seconds of launch gaps in a decode pass, which replays a CUDA graph, of all micro-batches.

    g (sum over layers of (tau_L k + tau_Q k_B q_g q) + (L - L_d)(tau_E + k_E tau_L)), k of the
    launches of each layer; k_B where experts multiply in more than 4 bits. Blackwell reads scales
    packed by four in exponents, Hopper one by one in 32 bits (DeepGEMM at 0274ad7, README), hence
    q_g. Where the experts of more than 4 bits of a mixture are on m_e ranks and attention is tensor
    parallel, k_R (1 - 1 / m_e) is added to k_E: measured with TensorRT-LLM, cause not known.
    """
    layer, engine, coef = ctx.shape.layers, ctx.engine, ctx.coefficients
    kind = layer.attention.launches
    kernels = kind.grouped + kind.latent * coef.latent_kernels
    kernels = kernels + kind.sparse * coef.sparse_kernels + kind.linear * coef.linear_kernels
    scales = jnp.where(layer.routed.bits > 4.0, coef.block_kernels, 1.0)
    quantising = coef.quantised_gap * ctx.generation.quantising
    launches = engine.layer_gap * kernels + quantising * ctx.shape.quantised * scales
    split = (ctx.plan.attention_dp <= 1.0) & (layer.routed.bits > 4.0)
    ranks = engine.rank_kernels * jnp.where(split, 1.0 - 1.0 / ctx.plan.ep, 0.0)
    experts = engine.expert_gap + (coef.expert_kernels + ranks) * engine.layer_gap
    gap = (
        ctx.generation.gap
        if ctx.plan.wide is None
        else ctx.generation.gap * micro_batches(ctx.plan)
    )
    return gap * jnp.sum(layer.count * (launches + layer.mixture * experts), axis=-1)


def ideal(ctx: Context, rows: Array) -> Array:
    """Seconds of the products of a pass at the data sheet's rates: MFU is its share of the time."""
    layer, chip = ctx.shape.layers, ctx.hardware.chip
    parts = ((layer.projections, 1.0), (layer.routed, layer.active), (layer.shared, 1.0))
    seconds = total(m.elements * uses / matmul.rate(chip, m.bits) for m, uses in parts)
    return 2.0 * rows * jnp.sum(layer.count * seconds, axis=-1) / (ctx.longest * ctx.plan.tp)
