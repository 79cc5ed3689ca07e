"""Search of the best block: every GPU batch and number of batches, each placed optimally.

FlexGen stops at the first number of batches that does not help; here the whole grid is solved in
one batched program, and the placement of every point is the exact optimum of its linear program.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax import Array

from infer_jax.compiling import MANY, once
from infer_jax.errors import InputError
from infer_jax.estimators.offloading.model import Offloading
from infer_jax.estimators.offloading.placing import MEMORIES, best_placement
from infer_jax.estimators.offloading.plan import Offload
from infer_jax.physics.pareto import frontier_rows
from infer_jax.specs import Architecture, Hardware, Workload

GPU_BATCHES = (
    *(1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 96, 128, 160, 192, 256),
    *(2**i for i in range(9, 13)),
)
EVERY = 1024  # number of batches up to which each is tried; beyond, steps of one percent
CHUNK = 1024  # linear programs of one call


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
