"""Seconds of one pass at one layout, block by block."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Limit, Phase
from infer_jax.estimators.partitioning.slices import Coefficients, Sharding, Slice
from infer_jax.physics import attention as att, decoder, feedforward as ffn, matmul
from infer_jax.physics.decoder import total
from infer_jax.physics.layers import row
from infer_jax.physics.network import sharding as laws
from infer_jax.physics.numerics import maximum
from infer_jax.specs import (
    Architecture,
    Attention,
    Block,
    Experts,
    Feedforward,
    ForwardPass,
    Hardware,
    Plan,
    Torus,
)


class LayerWork(NamedTuple):
    """Load of one layer on one chip: seconds of arithmetic, bytes read, seconds of transfer, and
    steps of collectives. ``useful``: seconds of its matrices at the data-sheet rate of each."""

    work: Array
    useful: Array
    traffic: Array
    network: Array
    steps: Array


class SlicePass(NamedTuple):
    """The inputs of the laws of one pass of a micro-batch."""

    model: Coefficients
    arch: Architecture
    hardware: Hardware
    forward: ForwardPass
    sharding: Sharding

    @property
    def tokens(self) -> Array:
        """New tokens of a group of chips: B L / N."""
        return self.forward.sequences * self.forward.new_tokens / self.sharding.cut.gathered

    def wire(self, size: Array, ranks: Array) -> Array:
        """Seconds of one all-gather, reduce-scatter or all-to-all of ``size`` bytes."""
        network, cap = self.hardware.network, self.model.network_cap
        if isinstance(network, Torus):
            closed = self.sharding.chips >= self.model.closing
            share = jnp.where(closed, 1.0, self.model.open_share)
            return laws.all_gather(size, ranks, network.link_bandwidth * share * cap)
        return laws.node_gather(size, ranks, network) / cap

    def ideal(self, matrix: matmul.Matrix, bits: Array) -> Array:
        """Seconds on one chip of a group's tokens through a matrix at the data-sheet rate."""
        flops = matmul.flops((matrix,), self.tokens) / self.sharding.cut.group
        return flops / matmul.rate(self.hardware.chip, bits)

    def seconds(self, matrix: matmul.Matrix, bits: Array, columns: Array) -> Array:
        """Seconds on one chip of a group's tokens through a matrix, ``columns`` wide in all."""
        cut, model = self.sharding.cut, self.model
        slow = laws.fill(
            self.arch.width / cut.rows,
            columns / cut.columns,
            self.tokens,
            model.half_width,
            model.half_rows,
        )
        return slow * self.ideal(matrix, bits)


def cache_share(sharding: Sharding, attention: Attention, sequences: Array) -> Array:
    """The part of a layer's cache of all sequences that one chip holds and reads.

    Sharded by heads over a group: 1/N max(1/m, 1/kv heads), so that one shared head is copied to
    every chip. Sharded by batch: max(1/n, 1/B), in whole sequences.
    Source: Pope et al. 2022 (arXiv 2211.05102), Section 3.3, Figure 4.
    """
    cut = sharding.cut
    heads = att.of(attention).cache_share(cut.group) / cut.gathered
    whole = jnp.maximum(1.0 / cut.chips, 1.0 / jnp.maximum(sequences, 1.0))
    return jnp.where(sharding.attention > 0.5, whole, heads)


def attention_layer(p: SlicePass, attention: Attention, columns: Array) -> LayerWork:
    """Projections, the attention core, its cache, and the all-to-alls of batch sharding."""
    arch, forward, cut = p.arch, p.forward, p.sharding.cut
    by_batch = p.sharding.attention > 0.5
    layer = att.of(attention)
    weights, matrices = layer.weights, layer.matrices(arch.width)
    work = total(p.seconds(m, weights.bits, columns) for m in matrices)
    useful = total(p.ideal(m, weights.bits) for m in matrices)
    core = forward.sequences * layer.core_flops(forward.new_tokens, forward.cached_tokens)
    queries, _ = layer.heads
    by_heads = jnp.maximum(1.0 / cut.group, 1.0 / jnp.maximum(queries, 1.0)) / cut.gathered
    sequences = jnp.maximum(forward.sequences, 1.0)
    alone = jnp.where(by_batch, jnp.maximum(1.0 / cut.chips, 1.0 / sequences), by_heads)
    work = work + core * alone / matmul.rate(p.hardware.chip, arch.activations.bits)

    context = forward.cached_tokens + forward.new_tokens
    cache = forward.sequences * layer.read_bytes(arch.cache, context)
    read = matmul.elements(matrices) * weights.bytes / cut.group
    moved = layer.output_width + matrices[-1].inputs
    exchanged = p.tokens * moved * arch.activations.bytes / cut.group
    resharded = by_batch & (cut.group > 1.0)
    return LayerWork(
        work,
        useful,
        read + cache * cache_share(p.sharding, attention, forward.sequences),
        jnp.where(resharded, p.wire(exchanged, cut.group), 0.0),
        jnp.where(resharded, 2.0 * laws.steps(cut.group), 0.0),
    )


def feedforward_layer(p: SlicePass, feedforward: Feedforward, columns: Array) -> LayerWork:
    """The matrices of a feedforward, routed experts as they are visited and touched."""
    arch, cut = p.arch, p.sharding.cut
    matrix, copies = ffn.matrix(feedforward, arch.width), ffn.matrices(feedforward)
    active = ffn.active_experts(feedforward)
    work = active * copies * p.seconds(matrix, feedforward.weights.bits, columns)
    useful = active * copies * p.ideal(matrix, feedforward.weights.bits)
    touched = ffn.visited_share(ffn.sparsity(feedforward), p.tokens)
    routed = ffn.routed_elements(feedforward, arch.width)
    read = touched * routed * feedforward.weights.bytes
    if isinstance(feedforward, Experts):
        shared = feedforward.shared
        common = matmul.Matrix(ffn.common_elements(feedforward, arch.width), jnp.asarray(1.0))
        work = work + p.seconds(common, shared.weights.bits, columns)
        useful = useful + p.ideal(common, shared.weights.bits)
        read = read + common.elements * shared.weights.bytes
    zero = jnp.zeros_like(work)
    return LayerWork(work, useful, read / cut.group, zero, zero)


def inner_widths(block: Block) -> tuple[tuple[Array, Array, Array], ...]:
    """(elements in, elements out, columns) of a block's two parts; none where it has none."""
    parts: list[tuple[Array, Array, Array]] = []
    if block.attention is not None:
        attended = att.of(block.attention).output_width
        out = att.of(block.attention).matrices(jnp.asarray(1.0))[-1].inputs
        parts.append((attended, out, attended))
    if block.feedforward is not None:
        f = block.feedforward
        hidden = ffn.active_experts(f) * f.width
        inward = f.inward * hidden
        if isinstance(f, Experts):
            hidden = hidden + f.shared.width
            inward = inward + f.shared.inward * f.shared.width
        parts.append((inward, hidden, hidden))
    return tuple(parts)


def block_layer(p: SlicePass, block: Block) -> LayerWork:
    """One layer: its parts, the collectives around them, and the gathering of its weights.

    Side by side (``arch.parallel``) one pair of collectives serves both parts, else each has
    its own. Source: Pope et al. 2022 (arXiv 2211.05102), Sections 3.2 to 3.4.
    """
    arch, cut = p.arch, p.sharding.cut
    widths = inner_widths(block)
    # side by side, the matrices of both parts are fused: as wide as the widest
    widest = functools.reduce(jnp.maximum, [columns for *_, columns in widths])
    own = [jnp.where(arch.parallel > 0.5, widest, columns) for *_, columns in widths]
    parts: list[LayerWork] = []
    if block.attention is not None:
        parts.append(attention_layer(p, block.attention, own[0]))
    if block.feedforward is not None:
        parts.append(feedforward_layer(p, block.feedforward, own[-1]))
    pairs = jnp.where(arch.parallel > 0.5, 1.0, float(len(parts)))

    size = p.tokens * arch.activations.bytes
    outer = pairs * p.wire(size * laws.outer_buffer(arch.width, cut), cut.columns)
    inner = total(
        p.wire(size * laws.inner_buffer(inner, read, cut), cut.rows) for inner, read, _ in widths
    )
    fetched = p.wire(laws.gathered_buffer(_layer_bytes(p, block), cut), cut.gathered)
    steps = laws.steps(cut.columns) + laws.steps(cut.rows) + laws.steps(cut.gathered)
    return LayerWork(
        total(s.work for s in parts),
        total(s.useful for s in parts),
        total(s.traffic for s in parts),
        outer + inner + fetched + total(s.network for s in parts),
        2.0 * pairs * steps + total(s.steps for s in parts),
    )


def one_pass(
    model: Coefficients,
    arch: Architecture,
    hardware: Hardware,
    forward: ForwardPass,
    plan: Plan,
    sharding: Sharding,
) -> Phase:
    """One pass: (M + P - 1) / P micro-batches, each through all layers.

    busy = overlapped(compute, memory); time = overlapped(busy, network) + latency + overhead.
    MFU: 2 FLOP for each parameter that a token is multiplied with (a table of embeddings is
    looked up, and counts where it is the head, too), at the data-sheet rate of its format, over
    the time; the core of attention does not count (Pope et al. 2022, Section 2.1).
    """
    stages = jnp.maximum(plan.pp, 1.0)
    parts = Slice.widen(plan).micro_batches
    micro = forward.replace(sequences=forward.sequences / parts)
    p = SlicePass(model, arch, hardware, micro, sharding)
    cut, chip = sharding.cut, hardware.chip
    each = [(b.count, block_layer(p, b)) for b in arch.blocks]
    table = matmul.Matrix(arch.vocabulary, arch.width)
    head = p.seconds(table, arch.head.bits, arch.vocabulary)
    stored = jnp.where(arch.tied > 0.5, arch.embedding.bytes, arch.head.bytes)
    traffic = total(n * s.traffic for n, s in each) + table.elements * stored / cut.group
    handed = p.tokens * arch.width * arch.activations.bytes / cut.group
    turns = (parts + stages - 1.0) / stages
    terms = {
        "compute": turns * (head + total(n * s.work for n, s in each)) / model.flop_cap,
        "memory": turns * traffic / (chip.memory_bandwidth * model.memory_cap),
        "network": turns * total(n * s.network for n, s in each)
        + turns * (stages - 1.0) * p.wire(2.0 * handed, 2.0 * jnp.ones_like(handed)),
        "latency": turns * total(n * s.steps for n, s in each) * model.collective,
        "overhead": turns * decoder.layers(arch) * model.layer_overhead,
    }
    busy = overlapped(terms["compute"], terms["memory"], model.hidden_memory, model.smoothing)
    time = overlapped(busy, terms["network"], model.hidden_network, model.smoothing)
    time = time + terms["latency"] + terms["overhead"]
    useful = p.ideal(table, arch.head.bits) + total(n * s.useful for n, s in each)
    chosen = {name: getattr(sharding, name) for name in sharding._fields}
    return Phase(
        time=time,
        terms=terms,
        limits=_limits(p, forward, stages),
        mfu=parts / stages * useful / time,
        layout={"tp": cut.chips, "pp": stages, **chosen},
    )


def overlapped(one: Array, other: Array, hidden: Array, smoothing: Array | None) -> Array:
    """The longer of two times, and of the shorter the part that is not ``hidden`` behind it.

    hidden = 1: the maximum (perfect overlap); 0: the sum (none).
    """
    longer = maximum(one, other, smoothing)
    return longer + (1.0 - hidden) * (one + other - longer)


def _limits(p: SlicePass, forward: ForwardPass, stages: Array) -> dict[str, Limit]:
    """Bytes of a chip's memory, and at least as many sequences as the layout divides them by."""
    arch, cut, sharding = p.arch, p.sharding.cut, p.sharding
    stored = total(decoder.weight_bytes(arch).values()) / (cut.chips * stages)
    context = forward.cached_tokens + forward.new_tokens
    held = total(
        b.count
        * att.of(b.attention).held_bytes(arch.cache, context)
        * cache_share(sharding, b.attention, p.forward.sequences)
        for b in arch.blocks
        if b.attention is not None
    )
    fetched = jnp.zeros_like(stored)
    for block in arch.blocks:
        layer = laws.gathered_elements(_layer_bytes(p, block), cut)
        fetched = jnp.maximum(fetched, layer)
    need = stored + forward.sequences * held / stages + fetched
    free = p.hardware.chip.memory * (1.0 - p.model.headroom)
    split = (sharding.attention > 0.5) & (cut.group > 1.0)
    dealt = jnp.maximum(cut.gathered, jnp.where(split, sharding.shortest, 1.0))
    return {
        "memory": Limit(need=need, capacity=free),
        "batch": Limit(need=dealt, capacity=jnp.maximum(p.forward.sequences, 1.0)),
    }


def _layer_bytes(p: SlicePass, block: Block) -> Array:
    """Bytes of one layer's matrices as stored, all experts among them."""
    return row(p.arch, block).matrix_bytes
