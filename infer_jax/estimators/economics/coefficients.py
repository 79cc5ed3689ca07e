"""Coefficients and laws of the variants of the economics model."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax import footprint
from infer_jax.estimators.estimate import Limit
from infer_jax.footprint import EngineSettings
from infer_jax.physics import attention as att, decoder, feedforward as ffn, matmul
from infer_jax.physics.decoder import Projections, total
from infer_jax.physics.memory import chip_memory
from infer_jax.physics.network import collectives
from infer_jax.physics.numerics import Smoothing
from infer_jax.specs import (
    Architecture,
    Attention,
    Feedforward,
    ForwardPass,
    Hardware,
    Spec,
    number,
    part,
    spec,
    static,
)

Size = Callable[[Array, Array], Array]  # the size of a pass, from its sequences and tokens


class RankLayout(NamedTuple):
    """One layout: chips of a stage, stages, attention split, 1 for 2-D and 0 for 1-D tensor
    parallelism, expert ranks (None: as many as the law of the variant gives)."""

    stage: Array
    stages: Array
    split: Array
    two_d: Array
    experts: Array | None = None


def core_flops(attention: Attention, new_tokens: Array, cached_tokens: Array) -> Array:
    """FLOP of the attention core, every causal pair counted."""
    return att.of(attention).core_flops(new_tokens, cached_tokens)


def absorbed_flops(attention: Attention, new_tokens: Array, cached_tokens: Array) -> Array:
    """FLOP of the attention core as the paper counts it."""
    return att.of(attention).absorbed_flops(new_tokens, cached_tokens)


def published_weights(attention: Attention, width: Array) -> tuple[matmul.Matrix, ...]:
    """The projections as the paper counts parameters."""
    return att.of(attention).economics_weights(width)


def published_products(attention: Attention, width: Array) -> tuple[matmul.Matrix, ...]:
    """The projections as the paper streams them through memory."""
    return att.of(attention).economics_products(width)


def all_chips_memory(
    model: "Coefficients",
    arch: Architecture,
    hardware: Hardware,
    forward: ForwardPass,
    ranks: RankLayout,
) -> Limit:
    """Bytes of all chips together: weights and cache, within the data sheet's memory.

    Source: Erdil 2025 (arXiv 2506.04645) and its reference implementation.
    """
    need = total(decoder.weight_bytes(arch, model.laws.projections).values())
    need = need + model.laws.resident(arch, forward, ranks.stages)
    chips = ranks.stage * ranks.stages
    return Limit(need=need, capacity=chips * hardware.chip.memory * (1.0 - model.headroom))


def one_chip_memory(
    model: "Coefficients",
    arch: Architecture,
    hardware: Hardware,
    forward: ForwardPass,
    ranks: RankLayout,
) -> Limit:
    """Bytes of one chip: weights, activations, reserve and cache, within a server's budget.

    The account of ``memory`` at tp, pp and ep of a plan: ep attention groups of tp ranks, each
    with its share of the sequences. Where the split is searched all chips of a stage share one
    group, whose experts lie whole or cut on all of them. ``attention_split`` changes the time
    alone.
    """
    groups = jnp.ones_like(ranks.stage) if ranks.experts is None else ranks.experts
    degrees = chip_memory.Ranks(ranks.stage / groups, groups, ranks.stages)
    usual, held = footprint.default_numbers, chip_memory.resident(arch)
    server = usual(footprint.EngineSettings) if model.server is None else model.server
    requests = forward.sequences / groups
    server = footprint.Launched.in_flight(server).settings(server, requests)
    chip = footprint.account(held, hardware, degrees, server, usual(footprint.Overheads))
    each = chip.cache.on_average(forward.cached_tokens + forward.new_tokens)
    need = chip.fixed + requests * each
    return Limit(need=need, capacity=chip.budget * (1.0 - model.headroom))


class Laws(NamedTuple):
    """The named laws in which the corrected model and the published one differ."""

    projections: Projections = decoder.projections
    products: Projections = decoder.projections
    core: Callable[[Attention, Array, Array], Array] = core_flops
    sparsity: Callable[[Feedforward, Smoothing], Array] = ffn.sparsity
    load: Size = decoder.by_tokens  # the size that is split into micro-batches and over experts
    logits: Size = decoder.by_sequences  # the size that the output head is multiplied with
    memory: Callable[..., Limit] = one_chip_memory
    # cache, where the memory limit is that of all chips together
    resident: Callable[[Architecture, ForwardPass, Array], Array] = decoder.resident_bytes
    fewest: float = 0.0  # least load of a micro-batch, over the sparsity, at which experts spread


PUBLISHED = Laws(
    projections=published_weights,
    products=published_products,
    core=absorbed_flops,
    sparsity=ffn.floored_sparsity,
    load=decoder.by_sequences,
    logits=decoder.by_tokens,
    memory=all_chips_memory,
    resident=decoder.resident_micro_batch,
    fewest=2.0,
)


@spec
class Coefficients(Spec):
    """The coefficients of the economics model, and the laws and search that make a variant."""

    flop_cap: Array = number(
        "share of the peak rate sustained", kind="fraction", high=1, default=0.7
    )
    memory_cap: Array = number(
        "share of memory bandwidth sustained", kind="fraction", high=1, default=0.75
    )
    launch: Array = number("latency of a kernel launch", unit="s", kind="time", default=4e-6)
    allreduce_share: Array = number(
        "all-reduce bandwidth over one-direction bandwidth",
        kind="fraction",
        high=1,
        default=0.5,
    )
    protocols: tuple[collectives.Protocol, ...] = part(
        "NCCL's protocols", default_factory=collectives.nccl_protocols
    )
    torus_hop: Array = number("latency of a hop on a torus", unit="s", kind="time", default=1e-6)
    root_hop: Array = number(
        "all-reduce latency per root of chips, level 2", unit="s", kind="time", default=2e-6
    )
    root_base: Array = number(
        "all-reduce latency to begin with, level 2", unit="s", kind="time", default=6e-6
    )
    table_products: Array = number(
        "vocabulary-sized products per token: the head; the paper counts the embedding too",
        kind="count",
        default=1.0,
    )
    headroom: Array = number(
        "share of every limit kept free", kind="fraction", low=-1, high=1, default=0.0
    )
    server: EngineSettings | None = part(
        "the server whose memory is divided; None: the authors' own account",
        default_factory=lambda: None,
    )
    smoothing: Array | None = part(
        "None: exact; a number: the temperature of every maximum, ceiling and search",
        default_factory=lambda: None,
    )
    laws: Laws = static("the named laws", default=Laws())
    layouts: tuple[str, ...] = static(
        "layouts tried; none: the simple levels", default=("2d", "1d")
    )
    search: bool = static("search the split of the plan's chips", default=True)
    pipeline_ticks: int = static("pipeline degrees tried, from 1; 0: none", default=10)
    split_ticks: int = static("attention splits tried", default=6)
    pipeline_to_batch: bool = static("pipeline ticks end at the batch, too", default=True)
    expert_parallel: bool = static("experts may live on different ranks", default=True)
    staged: bool = static("stages may not exceed chips or sequences", default=True)
