"""One pass as engines run it, kernel by kernel: time, terms and memory (the corrected variant).

Differs from the authors' in: units; causal pairs counted one by one; every kernel divided over
tensor ranks, caches of latents copied; windows, sparse and linear layers; dense layers beside
experts, shared experts, router and head; expected remote nodes that a token visits; latencies
of collectives; two micro-batches overlap a stage's kernels with that stage's transfers only.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from infer_jax import footprint
from infer_jax.estimators.estimate import Limit, Phase
from infer_jax.estimators.kernels.coefficients import Coefficients, KernelsPlan
from infer_jax.estimators.kernels.efficiency import (
    MEASURED,
    Gemm,
    Kernel,
    Rating,
    Routed,
    kernel_at_efficiency,
)
from infer_jax.estimators.kernels.tables import Tables
from infer_jax.footprint import EngineSettings, Launched, Overheads
from infer_jax.physics import attention as att, feedforward as ffn
from infer_jax.physics.decoder import total
from infer_jax.physics.matmul import Matrix, rate
from infer_jax.physics.memory.chip_memory import Ranks, resident
from infer_jax.physics.network import collectives, dispatch
from infer_jax.physics.numerics import present
from infer_jax.specs import (
    Architecture,
    Attention,
    Block,
    Dense,
    Experts,
    Feedforward,
    Format,
    ForwardPass,
    Hardware,
    Torus,
)
from infer_jax.typed_jax import trees

Kernelled = dict[str, Kernel]
Mine = att.Kind[Attention]  # a layer as one rank computes it


class Rank(NamedTuple):
    """One GPU in one pass: the inputs of its laws."""

    model: Coefficients
    arch: Architecture
    hardware: Hardware
    forward: ForwardPass
    plan: KernelsPlan

    @property
    def sequences(self) -> Array:
        """Sequences of a micro-batch in one group of tensor ranks."""
        groups = self.plan.ep * (1.0 + self.plan.two_batch)
        return self.forward.sequences / groups

    @property
    def tokens(self) -> Array:
        """New tokens of a micro-batch in one group."""
        return self.sequences * self.forward.new_tokens

    @property
    def decodes(self) -> Array:
        """True where the pass runs decode kernels: few new tokens a sequence."""
        return self.forward.new_tokens <= self.model.decode_tokens

    @property
    def nodes(self) -> Array:
        """Nodes of the instance, at least one."""
        return self.plan.nodes_on(self.hardware)

    def gemm(self, matrix: Matrix, weights: Format, tokens: Array | None = None) -> Kernel:
        """A projection of the micro-batch."""
        shape = Gemm(self.tokens if tokens is None else tokens, matrix.inputs, matrix.outputs)
        chip = self.hardware.chip
        rating = self.model.efficiency.product(chip, shape, weights)
        moved = shape.k * shape.n * weights.bytes + shape.m * (shape.k + shape.n) * 2.0
        return self.roofline_kernel(shape.flops, moved, rate(chip, weights.bits), rating)

    def roofline_kernel(self, flops: Array, moved: Array, peak: Array, rating: Rating) -> Kernel:
        """A kernel at its efficiency, but no faster than memory; none where there is no work."""
        moved = jnp.where(flops > 0, moved, 0.0)
        kernel = kernel_at_efficiency(flops, moved, peak, rating)
        least = moved / (self.hardware.chip.memory_bandwidth * self.model.memory_share)
        return kernel.replace(seconds=jnp.maximum(kernel.seconds, least))

    def core_work(self, mine: Mine) -> tuple[Array, Array]:
        """FLOP of the core of a layer, and bytes that it moves."""
        new, cached = self.forward.new_tokens, self.forward.cached_tokens
        moved = self.sequences * mine.read_bytes(self.arch.cache, cached + new)
        return self.sequences * mine.core_flops(new, cached), moved

    def attending(self, mine: Mine) -> Kernel:
        """Queries attend to the keys of a cache."""
        chip, source, cache = self.hardware.chip, self.model.efficiency, self.arch.cache
        context = self.forward.cached_tokens + self.forward.new_tokens
        seen, base = jnp.minimum(context, mine.reach), mine.softmax
        # further new tokens of a sequence count as further query heads on the same keys
        many = base.replace(query_heads=base.query_heads * self.forward.new_tokens)
        rating = trees.where(
            self.decodes,
            source.decode(chip, many, self.sequences, seen, cache),
            source.prefill(chip, base, seen),
        )
        return self.roofline_kernel(*self.core_work(mine), chip.flops_16, rating)

    def recurring(self, mine: Mine) -> Kernel:
        """Tokens update a state in turn."""
        chip, source = self.hardware.chip, self.model.efficiency
        context = self.forward.cached_tokens + self.forward.new_tokens
        held = mine.held_bytes(self.arch.cache, context)
        stepped, here = source.linear(chip, mine.attention, self.tokens, "decode", held)
        scanned, there = source.linear(chip, mine.attention, self.tokens, "prefill", held)
        work, moved = self.core_work(mine)
        kernel = kernel_at_efficiency(
            work, moved, chip.flops_16, trees.where(self.decodes, here, there)
        )
        least = moved / (chip.memory_bandwidth * self.model.memory_share)
        spent = jnp.where(self.decodes, stepped, scanned)
        return kernel.replace(seconds=jnp.maximum(spent, least))


def projections(r: Rank, attention: Attention) -> Kernelled:
    """The projections of an attention layer on one rank."""
    layer = att.of(attention)
    mine = att.of(layer.of_rank(r.plan.tp))
    matrices = mine.matrices(r.arch.width)
    return {name: r.gemm(m, layer.weights) for name, m in zip(mine.names, matrices, strict=True)}


def core(r: Rank, attention: Attention) -> Kernelled:
    """The attention core of the micro-batch on one rank: in decode or in prefill kernels."""
    mine = att.of(att.of(attention).of_rank(r.plan.tp))
    return {mine.core.kernel: mine.core_time(r)}


def feedforward(r: Rank, layer: Feedforward) -> Kernelled:
    """A dense layer, or router, routed and shared experts, on one rank."""
    width, tp = r.arch.width, r.plan.tp

    def dense(one: Dense, name: str) -> Kernelled:
        inner = one.width / tp
        return {
            f"{name} up": r.gemm(Matrix(one.inward * inner, width), one.weights),
            f"{name} down": r.gemm(Matrix(width, inner), one.weights),
        }

    if isinstance(layer, Dense):
        return dense(layer, "dense")
    chip, outer = r.hardware.chip, ffn.matrix(layer, width).inputs
    mine = layer.replace(width=layer.width / tp)
    routed = Routed(mine, outer, r.tokens, r.plan.tp * r.plan.ep, r.plan.ep)
    source = r.model.efficiency
    rating = trees.where(
        r.decodes, source.routed(chip, routed, "decode"), source.routed(chip, routed, "prefill")
    )
    elements = ffn.routed_elements(mine, width)
    flops = 2.0 * r.tokens * layer.active / layer.experts * elements
    read = ffn.visited_share(ffn.sparsity(layer), r.tokens * r.plan.ep) * elements / r.plan.ep
    moved = read * layer.weights.bytes + 2.0 * r.tokens * layer.active * 2.0 * outer
    experts = r.roofline_kernel(flops, moved, rate(chip, layer.weights.bits), rating)
    plain = Format(bytes=2.0 * jnp.ones_like(width), bits=16.0 * jnp.ones_like(width))
    router = {"router": r.gemm(Matrix(layer.router * layer.experts, width), plain)}
    return router | {"experts": experts} | dense(layer.shared, "shared")


class Wires(NamedTuple):
    """Bandwidth and latency of one GPU inside its fast domain and beyond it."""

    inside: Array
    outside: Array
    near: Array
    far: Array


def wires(r: Rank) -> Wires:
    """Network bandwidth and latency of one GPU; latencies are those of NCCL's LL protocol."""
    network, share = r.hardware.network, r.model.link_share
    quick = r.model.protocols[0]
    near, far = quick.base + quick.intra, quick.base + quick.inter
    if isinstance(network, Torus):
        link = present(network.link_bandwidth * share)
        return Wires(link, link, near, near)
    inside, outside = network.domain_bandwidth * share, network.network_bandwidth * share
    return Wires(present(inside), present(outside), near, far)


def all_reduce(r: Rank) -> Array:
    """Seconds of one all-reduce of the micro-batch over the tensor ranks."""
    network, tp = r.hardware.network, r.plan.tp
    size = r.tokens * r.arch.width * r.arch.activations.bytes
    wire = wires(r)
    if isinstance(network, Torus):
        hop = r.model.protocols[0].intra
        return collectives.torus_ring(tp, size, wire.inside, hop, reduces=True)
    nodes = jnp.ceil(tp / network.domain)
    link = collectives.Link(intra=0.5 * wire.inside, inter=0.5 * wire.outside)
    return collectives.nccl_tree(tp, nodes, size, link, r.model.protocols, reduces=True)


def exchange_time(r: Rank, layer: Experts, size: Array | float) -> Array:
    """Seconds of handing the micro-batch to its experts, or back, ``size`` bytes an element.

    DeepEP, normal: over the network once to each remote node visited, inside to each GPU;
    low-latency: once per expert; without it every GPU gathers every token.
    """
    wire, ranks, nodes, width = wires(r), r.plan.ep, r.nodes, r.arch.width
    slow = jnp.where(nodes > 1.0, wire.outside, wire.inside)
    latency = jnp.where(nodes > 1.0, wire.far, wire.near)
    remote = dispatch.others_visited(nodes, layer.active)
    peers = dispatch.others_visited(ranks, layer.active)
    beyond = dispatch.seconds(r.tokens * remote, width, size, wire.outside)
    within = dispatch.seconds(r.tokens * peers, width, size, wire.inside)
    normal = jnp.maximum(beyond, within)
    quick = dispatch.seconds(r.tokens * layer.active, width, size, slow)
    gathered = dispatch.seconds(r.tokens * (ranks - 1.0), width, 2.0, slow)
    deep = jnp.where(r.decodes, quick, normal)
    spent = latency + jnp.where(r.plan.deepep > 0.5, deep, gathered)
    return jnp.where(ranks > 1.0, spent, 0.0)


def layer(r: Rank, block: Block) -> tuple[Kernelled, Array, dict[str, Array]]:
    """One layer: its kernels on one rank, its seconds for the whole batch, and their terms.

    One micro-batch: everything in turn. Two: while one computes a stage the other exchanges;
    2 [max(A / s, dispatch) + max(F / s, combine) + all-reduces], s the share of SMs that
    compute, 1 in decode, whose dispatch takes none.
    """
    mixing: Kernelled = {}
    channel: Kernelled = {}
    dispatched = combined = reduced = jnp.asarray(0.0)
    if block.attention is not None:
        mixing = projections(r, block.attention) | core(r, block.attention)
        reduced = reduced + all_reduce(r)
    if block.feedforward is not None:
        channel = feedforward(r, block.feedforward)
        reduced = reduced + all_reduce(r)
    if isinstance(block.feedforward, Experts):
        quantised = jnp.where(block.feedforward.weights.bits <= 8.0, 1.0, 2.0)
        dispatched = exchange_time(r, block.feedforward, quantised)
        combined = exchange_time(r, block.feedforward, 2.0)
    twice = r.plan.two_batch > 0.5
    share, many = jnp.where(r.decodes, 1.0, r.plan.sm_share), jnp.where(twice, 2.0, 1.0)
    stages = (total(k.seconds for k in kernels.values()) for kernels in (mixing, channel))
    a, f = (jnp.where(twice, 2.0 * x / share, x) for x in stages)
    before, after, reduce = (many * x for x in (dispatched, combined, reduced))
    overlapped = jnp.maximum(a, before) + jnp.maximum(f, after)
    in_turn = a + f + before + after
    time = lax.select(jnp.broadcast_to(twice, in_turn.shape), overlapped, in_turn) + reduce
    terms = {"attention": a, "feedforward": f, "network": before + after + reduce}
    return mixing | channel, time, terms


def server_account(r: Rank, requests: Array | float = 1.0) -> tuple[footprint.Account, Launched]:
    """The memory of one GPU as vLLM divides it, and how it is started for a group's requests."""
    plan, model, usual = r.plan, r.model, footprint.default_numbers
    server = usual(EngineSettings) if model.server is None else model.server
    launched = Launched.in_flight(server)
    inputs = resident(r.arch), r.hardware, Ranks(plan.tp, plan.ep, plan.pp)
    settings = launched.settings(server, requests)
    return footprint.account(*inputs, settings, usual(Overheads)), launched


def _limits(r: Rank, in_order: list[Kernelled]) -> dict[str, Limit]:
    """Bytes of one GPU: weights, activations and reserve, and the cache of its sequences.

    Where efficiencies come from tables, 0 kernels without a measured row, too.
    """
    requests = r.forward.sequences / r.plan.ep
    gpu, _ = server_account(r, requests)
    each = gpu.cache.on_average(r.forward.cached_tokens + r.forward.new_tokens)
    memory = Limit(need=gpu.fixed + requests * each, capacity=gpu.budget)
    if not isinstance(r.model.efficiency, Tables):
        return {"memory": memory}
    every = [kernel for kernels in in_order for kernel in kernels.values()]
    lacking = total(jnp.where((k.lack != MEASURED) & (k.flops > 0), 1.0, 0.0) for k in every)
    none = Limit(need=lacking, capacity=jnp.asarray(0.0))
    return {"memory": memory, "kernels without a measurement": none}


def corrected_pass(r: Rank) -> tuple[Phase, list[Kernelled]]:
    """One pass added up layer by layer, and its kernels by block, those of the head last."""
    kernels_of: list[Kernelled] = []
    kinds = ("attention", "feedforward", "network")
    terms: dict[str, Array] = {kind: jnp.asarray(0.0) for kind in kinds}
    time, useful = jnp.asarray(0.0), jnp.asarray(0.0)
    for block in r.arch.blocks:
        kernels, seconds, parts = layer(r, block)
        time = time + block.count * seconds
        terms = {name: terms[name] + block.count * parts[name] for name in terms}
        useful = useful + block.count * total(k.flops / k.peak for k in kernels.values())
        kernels_of.append(kernels)
    # over the sampled token of each sequence
    head = r.gemm(Matrix(r.arch.vocabulary / r.plan.tp, r.arch.width), r.arch.head, r.sequences)
    kernels_of.append({"head": head})
    batches = 1.0 + r.plan.two_batch
    terms["head"] = batches * head.seconds
    terms["scheduling"] = jnp.where(r.decodes, r.model.schedule_decode, r.model.schedule_prefill)
    time = time + terms["head"] + terms["scheduling"]
    phase = Phase(
        time=time,
        terms=terms,
        limits=_limits(r, kernels_of),
        mfu=batches * (useful + head.flops / head.peak) / time,
        layout=r.plan.degrees(r.nodes),
    )
    return phase, kernels_of
