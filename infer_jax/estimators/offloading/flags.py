"""A placement as FlexGen's command-line options, and the throughput that rounding loses.

FlexGen takes whole percentages and places whole weight tensors: the tensors of an attention or a
feedforward layer are laid end to end over the percentages of disk, CPU and GPU, in this order, and
each goes where its middle falls. Cache and hidden states are cut at any percentage. Source: the
released runtime of FlexGen.
"""

import itertools
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from infer_jax.compiling import MANY, once
from infer_jax.estimators.offloading.model import Offloading
from infer_jax.estimators.offloading.plan import Offload
from infer_jax.physics import attention as att, feedforward as ffn
from infer_jax.physics.memory.tiers import Placement
from infer_jax.specs import Architecture, Block, Hardware, Workload

SHRINK = (1.0, 0.99, 0.98, 0.97, 0.96, 0.95, 0.925, 0.9, 0.85, 0.8, 0.75)
Percent = tuple[int, int, int, int, int, int]  # wg wc cg cc hg hc
Shares = tuple[float, float, float]  # on GPU, CPU, disk


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
