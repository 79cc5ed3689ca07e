"""The kernels of a pass as rows of time, work and bound."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypedDict

from jax import Array

from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.kernels.kernel import Kernel
from infer_jax.specs import Architecture, ForwardPass, Hardware, Plan


class Profiled(NamedTuple):
    """A kernel, its FLOP per byte, and whether arithmetic binds it."""

    kernel: Kernel
    intensity: Array
    computing: Array


class KernelRow(TypedDict):
    """One kernel of one layer of a block, for JSON; ``block`` is None for the head's."""

    block: int | None
    layers: float
    kernel: str
    time_us: float
    flop: float
    bytes: float
    intensity_flop_per_byte: float
    mfu: float
    bound: str


Profile = list[dict[str, Profiled]]  # by block, and by the kernel's name


def profiled(
    estimator: Kernels, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
) -> Profile:
    """Each kernel of each block, with its intensity and whether arithmetic binds it."""
    return [
        {
            name: Profiled(k, k.intensity, k.compute_bound(hardware.chip))
            for name, k in kernels.items()
        }
        for kernels in estimator.profile(arch, hardware, forward, plan)
    ]


def rows(arch: Architecture, profile: Sequence[Mapping[str, Profiled]]) -> list[KernelRow]:
    """One row for each kernel of each block, and then of the output head, the last profile."""
    counts = [float(b.count) for b in arch.blocks]
    counts += [1.0] * (len(profile) - len(counts))
    return [
        _row(i if i < len(arch.blocks) else None, count, name, one)
        for i, (count, kernels) in enumerate(zip(counts, profile, strict=False))
        for name, one in kernels.items()
        if one.kernel.seconds > 0
    ]


def _row(block: int | None, layers: float, name: str, one: Profiled) -> KernelRow:
    k = one.kernel
    return {
        "block": block,
        "layers": layers,
        "kernel": name,
        "time_us": float(1e6 * k.seconds),
        "flop": float(k.flops),
        "bytes": float(k.bytes),
        "intensity_flop_per_byte": float(one.intensity),
        "mfu": float(k.flops / k.peak / k.seconds),
        "bound": "compute" if bool(one.computing) else "memory",
    }
