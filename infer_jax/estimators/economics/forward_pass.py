"""Seconds of one pass at one layout: the full model of levels 3 and 4, block by block."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.economics.coefficients import Coefficients, RankLayout as RankLayout
from infer_jax.estimators.estimate import Limit, Phase
from infer_jax.physics import attention as att, feedforward as ffn, matmul
from infer_jax.physics.decoder import total
from infer_jax.physics.network import collectives
from infer_jax.physics.numerics import ceiling, maximum
from infer_jax.specs import (
    Architecture,
    Attention,
    Experts,
    Feedforward,
    ForwardPass,
    Hardware,
    Plan,
    Torus,
    number,
    spec,
)
from infer_jax.typed_jax import trees


@spec
class Split(Plan):
    """A plan with the one degree that this estimator adds."""

    attention_split: Array = number(
        "times fewer ranks that attention uses than the feedforward", kind="count", default=1.0
    )


class LayerLoad(NamedTuple):
    """Load of one layer for one micro-batch: seconds of network, bytes, chip-seconds of arithmetic.

    ``useful`` is ``work`` without the arithmetic that a narrower attention split repeats.
    """

    network: Array
    traffic: Array
    work: Array
    useful: Array


class LayoutPass(NamedTuple):
    """The inputs of the laws of one pass at one layout."""

    model: Coefficients
    arch: Architecture
    hardware: Hardware
    forward: ForwardPass
    ranks: RankLayout

    @property
    def micro(self) -> Array:
        """Sequences of a micro-batch."""
        return self.forward.sequences / self.ranks.stages

    @property
    def tokens(self) -> Array:
        """New tokens of a micro-batch."""
        return self.micro * self.forward.new_tokens

    @property
    def groups(self) -> Array | float:
        """Attention groups of a stage: ``ep`` where a plan gives the layout, one in the paper.

        Each has its share of the sequences, and a copy of all but the routed experts.
        Source: vLLM, data parallel attention beside expert parallelism (docs.vllm.ai, expert
        parallel deployment, v0.19).
        """
        return 1.0 if self.ranks.experts is None else self.ranks.experts

    @property
    def idle(self) -> Array | float:
        """Sequences of the fullest attention group over the mean, at least 1: the others wait."""
        if self.ranks.experts is None:
            return 1.0
        # at a tie none waits on either side, so that the slope is 0 and not a part of both
        most = jnp.maximum(self.micro, 1.0)
        return jnp.where(self.groups > most, self.groups / most, 1.0)

    def grouped_bytes(self, matrix: matmul.Matrix, chips: Array, weights: Array) -> Array:
        """Bytes of one product through memory in all groups, of ``chips`` chips each."""
        tokens, held = self.tokens * self.idle / self.groups, self.arch.activations.bytes
        return self.groups * matmul.streamed_bytes(matrix, tokens, chips, weights, held)

    @property
    def share(self) -> Array:
        """Bytes that a chip of the stage holds of one activation of every token."""
        return self.tokens * self.arch.activations.bytes / self.ranks.stage

    def collective(self, tree: collectives.Tree, each: Array, *, reduces: bool) -> Array:
        """Seconds of one collective of ``each`` bytes a rank."""
        model, network = self.model, self.hardware.network
        if isinstance(network, Torus):
            size = each * tree.ranks
            return collectives.torus_ring(
                tree.ranks, size, network.link_bandwidth, model.torus_hop, reduces=reduces
            )
        link = collectives.Link(
            intra=network.domain_bandwidth * model.allreduce_share,
            inter=network.network_bandwidth * model.allreduce_share,
        )
        return tree.seconds(each, link, model.protocols, reduces=reduces)

    def reduce(self, chips: Array, inner: Array, outer: Array) -> Array:
        """Seconds of a layer's all-reduces: of the outer result, and of the inner one if 2-D.

        ``inner`` and ``outer`` are a chip's bytes of the two; chips that share one reduction
        are all of them, or a row of their square if 2-D.
        """
        two_d, tree = self.ranks.two_d > 0.5, collectives.Tree.of(chips, self.nodes(chips))
        tree = trees.where(two_d, tree.row(), tree)
        second = self.collective(tree, inner, reduces=True)
        return self.collective(tree, outer, reduces=True) + jnp.where(two_d, second, 0.0)

    def nodes(self, chips: Array) -> Array:
        """Nodes that ``chips`` chips occupy; on a torus every chip is a node."""
        if isinstance(self.hardware.network, Torus):
            return chips
        return ceiling(chips / self.hardware.network.domain, self.model.smoothing)

    def seconds(self, flops: Array, bits: Array) -> Array:
        """Chip-seconds of ``flops`` at the data-sheet rate of a matmul class."""
        return flops / matmul.rate(self.hardware.chip, bits)


def attention_layer(p: LayoutPass, attention: Attention) -> LayerLoad:
    """One attention layer: two all-reduces, projections and cache through memory, FLOP."""
    arch, forward, split = p.arch, p.forward, p.ranks.split
    chips = p.ranks.stage / (p.groups * split)
    share = p.share * split * p.idle
    weights = att.of(attention).weights
    projected = total(
        p.grouped_bytes(m, chips, weights.bytes)
        for m in p.model.laws.products(attention, arch.width)
    )
    cache = att.of(attention).read_bytes(arch.cache, forward.cached_tokens)
    flops = matmul.flops(p.model.laws.projections(attention, arch.width), p.tokens)
    core = p.micro * p.model.laws.core(attention, forward.new_tokens, forward.cached_tokens)
    mixing, projecting = p.seconds(core, arch.activations.bits), p.seconds(flops, weights.bits)
    return LayerLoad(
        network=p.reduce(chips, att.of(attention).output_width * share, arch.width * share),
        traffic=split * projected + p.idle * p.micro * cache,
        work=p.idle * (split * projecting + mixing),
        useful=projecting + mixing,
    )


def expert_ranks(p: LayoutPass, feedforward: Feedforward) -> Array:
    """Ranks that experts spread over: min(stage, E), but 1 below 2 S sequences where published.

    The corrected variant spreads them at any batch: with a threshold, adding one request to a batch
    would make it faster for all of them.
    Source: Erdil 2025 (arXiv 2506.04645), Section 3.5, and its reference implementation.
    """
    if not isinstance(feedforward, Experts) or not p.model.expert_parallel:
        return jnp.ones_like(p.ranks.stage)
    if p.ranks.experts is not None:
        return jnp.minimum(p.ranks.experts, feedforward.experts)
    sparsity = p.model.laws.sparsity(feedforward, p.model.smoothing)
    load = p.model.laws.load(p.micro, p.tokens)
    few = load < p.model.laws.fewest * sparsity
    return jnp.where(few, 1.0, jnp.minimum(p.ranks.stage, feedforward.experts))


def feedforward_layer(p: LayoutPass, feedforward: Feedforward) -> LayerLoad:
    """One feedforward layer: all-reduces, all-to-alls, touched experts through memory, FLOP."""
    arch, held, mixture = p.arch, p.arch.activations.bytes, isinstance(feedforward, Experts)
    spread = expert_ranks(p, feedforward)
    parts, idle = (jnp.maximum(1.0, spread), 1.0) if mixture else (p.groups, p.idle)
    chips = jnp.maximum(1.0, p.ranks.stage / parts)
    sparsity = p.model.laws.sparsity(feedforward, p.model.smoothing)
    matrix, copies = ffn.matrix(feedforward, arch.width), ffn.matrices(feedforward)
    if mixture:
        each = matmul.streamed_bytes(
            matrix, p.tokens / sparsity, chips, feedforward.weights.bytes, held
        )
    else:
        each = p.grouped_bytes(matrix, chips, feedforward.weights.bytes)
    read = ffn.visited_share(sparsity, p.tokens) * ffn.experts(feedforward)
    traffic = read * copies * each
    flops = 2.0 * p.tokens * ffn.routed_elements(feedforward, arch.width) / sparsity
    useful = p.seconds(flops, feedforward.weights.bits)
    work = idle * useful
    active = ffn.active_experts(feedforward)
    inner, outer = active * feedforward.inward * feedforward.width, active * arch.width
    if isinstance(feedforward, Experts):
        shared = feedforward.shared
        elements = ffn.common_elements(feedforward, arch.width)
        traffic += ffn.matrices(shared) * p.grouped_bytes(
            ffn.matrix(shared, arch.width), p.ranks.stage / p.groups, shared.weights.bytes
        )
        router = ffn.router_elements(feedforward, arch.width)
        traffic += 2.0 * p.groups * router
        common = p.seconds(2.0 * p.tokens * elements, shared.weights.bits)
        common += p.seconds(2.0 * p.tokens * router, jnp.full_like(spread, 16.0))
        useful, work = useful + common, work + p.idle * common
        inner += shared.inward * shared.width
    share = idle * p.share
    network = p.reduce(chips, inner * share, outer * share)
    peers = jnp.minimum(active, spread)
    tree = collectives.Tree.of(peers, p.nodes(peers))
    network += 2.0 * p.collective(tree, arch.width * p.share, reduces=False)
    return LayerLoad(network, traffic, work, useful)


def one_pass(
    model: Coefficients,
    arch: Architecture,
    hardware: Hardware,
    forward: ForwardPass,
    ranks: RankLayout,
) -> Phase:
    """One pass at one layout: launches + collectives + max(memory, compute).

    Source: Erdil 2025 (arXiv 2506.04645), Section 3.6 with 3.5; levels 3, 3b and 4.
    """
    p = LayoutPass(model, arch, hardware, forward, ranks)
    chip, chips = hardware.chip, ranks.stage * ranks.stages
    shares: list[tuple[Array, LayerLoad]] = []
    spread = jnp.ones_like(ranks.stage)
    for block in arch.blocks:
        if block.attention is not None:
            shares.append((block.count, attention_layer(p, block.attention)))
        if block.feedforward is not None:
            shares.append((block.count, feedforward_layer(p, block.feedforward)))
            spread = jnp.maximum(spread, expert_ranks(p, block.feedforward))
    two = jnp.asarray(2.0, jnp.result_type(chips))
    pair = collectives.Tree.of(two, two)
    hand_over = p.collective(pair, 0.5 * arch.width * p.share, reduces=False)
    table = arch.vocabulary * arch.width
    logits = model.laws.logits(p.micro, p.tokens)
    head = p.seconds(2.0 * model.table_products * table * logits, arch.head.bits)
    traffic = p.groups * table * arch.head.bytes + total(n * s.traffic for n, s in shares)
    work = p.idle * ranks.split * head + total(count * s.work for count, s in shares)
    useful = head + total(count * s.useful for count, s in shares)
    # inverted outside the inner loop of the search, which only multiplies
    per_byte = 1.0 / (ranks.stage * chip.memory_bandwidth * model.memory_cap)
    per_work = 1.0 / (ranks.stage * model.flop_cap)
    terms = {
        "launch": 2.0 * total(count for count, _ in shares) * model.launch,
        "network": total(count * s.network for count, s in shares)
        + (ranks.stages - 1.0) * hand_over,
        "memory": traffic * per_byte,
        "compute": work * per_work,
    }
    free = 1.0 - model.headroom
    limits = {"memory": model.laws.memory(model, arch, hardware, forward, ranks)}
    if model.staged:
        load = model.laws.load(forward.sequences, forward.sequences * forward.new_tokens)
        most = jnp.minimum(chips, load) * free
        limits["pipeline"] = Limit(need=ranks.stages, capacity=most)
    chosen = {
        "tp": jnp.maximum(1.0, ranks.stage / spread),
        "pp": ranks.stages,
        "ep": spread,
        "attention_split": ranks.split,
        "layout": ranks.two_d,
    }
    return phase(model, terms, limits, useful / ranks.stage, chosen)


def phase(
    model: Coefficients,
    terms: dict[str, Array],
    limits: dict[str, Limit],
    ideal: Array,
    layout: dict[str, Array],
) -> Phase:
    """Launches and collectives, then the longer of memory and compute (Section 3.4).

    ``ideal`` is the time of the useful arithmetic at the data-sheet rate: MFU is its share.
    """
    bound = maximum(terms["memory"], terms["compute"], model.smoothing)
    time = bound + terms["network"] + terms.get("launch", 0.0)
    return Phase(time=time, terms=terms, limits=limits, mfu=ideal / time, layout=layout)
