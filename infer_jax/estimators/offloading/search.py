"""Search of the best block, each placed optimally, and the best one as FlexGen's options.

FlexGen stops at the first number of batches that does not help; here the whole grid is solved in
one batched program, and the placement of every point is the exact optimum of its linear program.

FlexGen's options take whole percentages and place whole weight tensors: those of an attention or a
feedforward layer are laid end to end over the percentages of disk, CPU and GPU, in this order, and
each goes where its middle falls. Cache and hidden states are cut at any percentage. Source: the
released runtime of FlexGen.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from infer_jax.compiling import MANY, once
from infer_jax.errors import InputError
from infer_jax.estimators.offloading.model import Offloading
from infer_jax.estimators.offloading.placing import MEMORIES, best_placement
from infer_jax.estimators.offloading.plan import Offload
from infer_jax.physics import attention as att, feedforward as ffn
from infer_jax.physics.memory.tiers import Placement
from infer_jax.physics.pareto import frontier_rows
from infer_jax.specs import Architecture, Block, Hardware, Workload

GPU_BATCHES = (
    *(1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 96, 128, 160, 192, 256),
    *(2**i for i in range(9, 13)),
)
EVERY = 1024  # number of batches up to which each is tried; beyond, steps of one percent
CHUNK = 1024  # linear programs of one call
# of the batches of the best block, where rounding leaves no room
SHRINK = (1.0, 0.99, 0.98, 0.97, 0.96, 0.95, 0.925, 0.9, 0.85, 0.8, 0.75)
Percent = tuple[int, int, int, int, int, int]  # wg wc cg cc hg hc
Shares = tuple[float, float, float]  # on GPU, CPU, disk


@dataclass(frozen=True)
class Blocks:
    """Every point of the grid: its block, time, rates, placement, and whether it fits."""

    gpu_batch: np.ndarray
    batches: np.ndarray
    time: np.ndarray
    throughput: np.ndarray
    decode_throughput: np.ndarray
    feasible: np.ndarray
    binding: np.ndarray  # (points, 3): memories that make the point infeasible

    def best(self, latency: float | None = None) -> int | None:
        """The point of most throughput within a latency of the block; None where none is.

        Of equals, the smallest block: throughput alone is compared, within 1e-12.
        """
        fits = self.feasible & (self.time <= (np.inf if latency is None else latency))
        if not fits.any():
            return None
        rate = np.where(fits, self.throughput, -np.inf)
        near = np.flatnonzero(rate >= rate.max() * (1.0 - 1e-12))
        return int(near[np.argmin(self.gpu_batch[near] * self.batches[near])])

    def frontier(self) -> np.ndarray:
        """Points that no other beats in both latency and throughput, fastest first."""
        held = np.flatnonzero(self.feasible)
        # among blocks that differ by rounding alone, the fastest
        rate = np.round(np.log(self.throughput[held]), 12)
        return held[frontier_rows(self.time[held], -rate)]

    def rows(self, points: np.ndarray) -> list[dict[str, object]]:
        """Some points for JSON."""
        return [
            {
                "latency_s": self.time[i],
                "throughput_tokens_per_s": self.throughput[i],
                "gpu_batch": self.gpu_batch[i],
                "batches": self.batches[i],
            }
            for i in points
        ]

    @property
    def why(self) -> str:
        """The memories that the smallest block exceeds, where nothing fits."""
        names = [m for m, b in zip(MEMORIES, self.binding[0], strict=True) if b]
        return f"{' and '.join(names)} memory cannot hold even a block of one sample"


def check_system(hardware: Hardware, where: str) -> None:
    """Raise InputError where a tier has capacity and no bandwidth.

    Raises:
        InputError: host or disk memory beside a bandwidth of zero.
    """
    host = hardware.host
    for memory, rates in (
        ("memory", ("link_bandwidth", "memory_bandwidth", "flops")),
        ("disk", ("disk_read", "disk_write")),
    ):
        for rate in rates:
            if float(getattr(host, memory)) > 0 and not float(getattr(host, rate)) > 0:
                allowed = f"a rate above 0, for host.{memory} is above 0"
                raise InputError(where, f"host.{rate}", float(getattr(host, rate)), allowed)


def most_batches(
    model: Offloading, arch: Architecture, hardware: Hardware, work: Workload, plan: Offload
) -> float:
    """Samples of a block that GPU, CPU and disk memory could hold together."""
    host, chip = hardware.host, hardware.chip
    total = float(model.usable) * float(chip.memory + host.memory + host.disk)
    return total / float(once(_sample, model, arch, hardware, work, plan))


def _sample(
    model: Offloading, arch: Architecture, hardware: Hardware, work: Workload, plan: Offload
) -> Array:
    """Bytes that a sample keeps: its cache, and hidden states of its prompt."""
    job = model.job(arch, hardware, work, plan)
    return job.layer.cache(job.resident) * job.layer.count + job.layer.buffers.hidden * job.prompt


def blocks(most: float, gpu_batches: Sequence[int] = GPU_BATCHES) -> tuple[np.ndarray, np.ndarray]:
    """(GPU batches, numbers of batches) of the grid, of at most ``most`` samples each."""
    every = np.arange(1.0, EVERY + 1)
    beyond = np.unique(np.round(np.geomspace(EVERY, 1e7, 926)))[1:]
    counts = np.concatenate([every, beyond])
    pairs = [(g, k) for g in gpu_batches for k in counts[counts <= max(most / g, 1.0)]]
    g, k = np.array(sorted(pairs, key=lambda p: p[0] * p[1]), np.float64).T
    return g, k


def _solve(
    model: Offloading,
    arch: Architecture,
    hardware: Hardware,
    work: Workload,
    plan: Offload,
    gpu_batches: Array,
    batches: Array,
) -> tuple[Array, ...]:
    """Time, both throughputs, whether it fits and which memories bind, of every block."""

    def solve(g: Array, k: Array) -> tuple[Array, ...]:
        job = model.job(arch, hardware, work, plan.replace(gpu_batch=g, batches=k))
        best = best_placement(model, job)
        estimate = model.priced(model.answer(job, best.placement), hardware)
        answer = estimate.time, estimate.throughput, estimate.decode_throughput
        return *answer, best.feasible, best.binding

    return jax.vmap(solve)(gpu_batches, batches)


def search(
    model: Offloading,
    arch: Architecture,
    hardware: Hardware,
    work: Workload,
    plan: Offload | None = None,
    gpu_batches: Sequence[int] = GPU_BATCHES,
) -> Blocks:
    """Every block of the grid with its best placement; choices (schedule, ...) are ``plan``'s.

    Raises:
        InputError: a tier with capacity and no bandwidth.
    """
    check_system(hardware, "hardware")
    plan = plan or Offload.of()
    g, k = blocks(most_batches(model, arch, hardware, work, plan), gpu_batches)
    parts: list[tuple[Array, ...]] = []
    for at in range(0, len(g), CHUNK):
        pad = (0, CHUNK - len(g[at : at + CHUNK]))
        pairs = [np.pad(x[at : at + CHUNK], pad, mode="edge") for x in (g, k)]
        parts.append(once(_solve, model, arch, hardware, work, plan, *pairs, points=MANY))
    columns = [np.concatenate(x)[: len(g)] for x in zip(*parts, strict=True)]
    return Blocks(g, k, *columns)


class Flags(NamedTuple):
    """A policy as FlexGen's options, its throughput, and the share lost by rounding."""

    percent: Percent
    weights: Shares  # of the weights, with whole tensors placed
    gpu_batch: int
    batches: int
    throughput: float
    loss: float

    @property
    def text(self) -> str:
        """The flags."""
        percent = " ".join(map(str, self.percent))
        block = f"--gpu-batch-size {self.gpu_batch} --num-gpu-batches {self.batches}"
        return f"--percent {percent} {block}"


def tensors(block: Block, width: Array) -> list[list[float]]:
    """Sizes of the weight tensors of a block's attention and of its feedforward, in order."""
    lines: list[list[float]] = []
    if block.attention is not None:
        lines.append([float(size) for size in att.of(block.attention).tensors(width)])
    if block.feedforward is not None:
        f = block.feedforward
        count = int(float(ffn.matrices(f)))
        whole = float(ffn.routed_elements(f, width) + ffn.common_elements(f, width))
        lines.append([whole / count] * count)
    return lines


def whole_tensor_shares(arch: Architecture, gpu: int, cpu: int) -> Shares:
    """Shares of the weights on GPU, CPU and disk when whole tensors are put by percentages."""
    held = np.zeros(3)
    for block in arch.blocks:
        for sizes in tensors(block, arch.width):
            ends = np.cumsum(sizes)
            middle = (ends - np.array(sizes) / 2.0) / ends[-1] * 100.0
            disk = middle < 100 - gpu - cpu
            on_cpu = ~disk & (middle < 100 - gpu)
            on_gpu = ~disk & ~on_cpu
            for i, chosen in enumerate((on_gpu, on_cpu, disk)):
                held[i] += float(block.count) * float(np.sum(np.array(sizes)[chosen]))
    gpu_share, cpu_share, disk_share = held / held.sum()
    return float(gpu_share), float(cpu_share), float(disk_share)


def _candidates(arch: Architecture, placement: Placement) -> list[tuple[Percent, Shares]]:
    """(percentages, shares of the weights) worth trying: every distinct placement of the weight
    tensors, and cache and hidden states at the whole percentages on either side."""
    ways: dict[Shares, tuple[int, int]] = {}
    wanted = (float(placement.gpu.weights) * 100, float(placement.cpu.weights) * 100)
    for gpu in range(101):
        for cpu in range(101 - gpu):
            # of percentages with one placement of tensors, the nearest to the exact one
            on_gpu, on_cpu, on_disk = whole_tensor_shares(arch, gpu, cpu)
            key = round(on_gpu, 12), round(on_cpu, 12), round(on_disk, 12)
            near = abs(gpu - wanted[0]) + abs(cpu - wanted[1])
            known = ways.get(key)
            if known is None or near < abs(known[0] - wanted[0]) + abs(known[1] - wanted[1]):
                ways[key] = (gpu, cpu)

    def sides(gpu: float, cpu: float) -> list[tuple[int, int]]:
        each = [sorted({int(np.floor(100 * x)), int(np.ceil(100 * x))}) for x in (gpu, cpu)]
        return [(g, c) for g, c in itertools.product(*each) if g + c <= 100]

    caches = sides(float(placement.gpu.cache), float(placement.cpu.cache))
    hidden = sides(float(placement.gpu.hidden), float(placement.cpu.hidden))
    return [
        ((*pair, *cache, *states), shares)
        for (shares, pair), cache, states in itertools.product(ways.items(), caches, hidden)
    ]


def round_policy(
    model: Offloading,
    arch: Architecture,
    hardware: Hardware,
    work: Workload,
    plan: Offload,
    exact: float,
) -> Flags | None:
    """The best policy in whole percentages and tensors near the block and placement of ``plan``.

    Where the block fills every memory, no rounded placement may fit; blocks of fewer batches, down
    to three quarters, are tried too. ``exact`` is the throughput without rounding, by which
    ``loss`` is measured. None where nothing fits.
    """
    batches = float(plan.batches)
    fewer = np.unique(np.maximum(np.floor(batches * np.array(SHRINK)), 1.0))
    tried = list(itertools.product(fewer, _candidates(arch, plan.placement)))
    rows = [[k, *w[:2], *(x / 100.0 for x in p[2:])] for k, (p, w) in tried]
    names = ["batches"]
    names += [
        f"{kind}_{tier}" for kind in ("weights", "cache", "hidden") for tier in ("gpu", "cpu")
    ]
    given = model.replace(solve=False)

    columns = dict(zip(names, np.array(rows).T, strict=True))
    rate, fits = once(_prices, given, arch, hardware, work, plan, columns, points=MANY)
    if not fits.any():
        return None
    rate = np.where(fits, rate, -np.inf)
    # of equally fast ones the nearest to the exact placement
    exactly = 100.0 * np.array([getattr(plan, name) for name in names[1:]], float)
    far = np.abs(np.array([p for _, (p, _) in tried]) - exactly).sum(axis=1)
    best = int(np.argmin(np.where(rate >= rate.max() * (1.0 - 1e-9), far, np.inf)))
    k, (percent, shares) = tried[best]
    return Flags(
        percent=percent,
        weights=shares,
        gpu_batch=int(float(plan.gpu_batch)),
        batches=int(k),
        throughput=float(rate[best]),
        loss=1.0 - float(rate[best]) / exact,
    )


def _prices(
    model: Offloading,
    arch: Architecture,
    hardware: Hardware,
    work: Workload,
    plan: Offload,
    columns: dict[str, Array],
) -> tuple[Array, Array]:
    """(throughput, whether it fits) of ``plan`` with each row of ``columns``."""

    def price(values: dict[str, Array]) -> tuple[Array, Array]:
        priced = model.estimate(arch, hardware, work, plan.replace(**values))
        return priced.throughput, priced.feasible

    return jax.vmap(price)(columns)
