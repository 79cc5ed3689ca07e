"""The kernels of a pass one by one: their work, what binds each, and how many layers have them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Estimate, decode_context, passes_of
from infer_jax.estimators.kernels.coefficients import KernelsPlan
from infer_jax.estimators.kernels.efficiency import Kernel
from infer_jax.estimators.kernels.model import Kernels
from infer_jax.results import Row
from infer_jax.specs import Architecture, ForwardPass, Hardware, Plan, Workload


class Profiled(NamedTuple):
    """A kernel, its FLOP per byte, and whether arithmetic binds it."""

    kernel: Kernel
    intensity: Array
    computing: Array


Profile = list[dict[str, Profiled]]  # by block, and by the kernel's name


def profile_kernels(
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


def rows(arch: Architecture, profile: Sequence[Mapping[str, Profiled]]) -> list[Row]:
    """One row for each kernel of each block, and then of the output head, the last profile.

    ``block`` is None for the head's; a row is of one layer.
    """
    layers = [(i, float(block.count)) for i, block in enumerate(arch.blocks)]
    layers += [(None, 1.0)] * (len(profile) - len(layers))
    return [
        {
            "block": block,
            "layers": count,
            "kernel": name,
            "time_us": float(1e6 * x.kernel.seconds),
            "flop": float(x.kernel.flops),
            "bytes": float(x.kernel.bytes),
            "intensity_flop_per_byte": float(x.intensity),
            "mfu": float(x.kernel.flops / x.kernel.peak / x.kernel.seconds),
            "bound": "compute" if bool(x.computing) else "memory",
        }
        for (block, count), kernels in zip(layers, profile, strict=False)
        for name, x in kernels.items()
        if x.kernel.seconds > 0
    ]


def account(
    estimator: Kernels, arch: Architecture, hardware: Hardware, work: Workload, plan: KernelsPlan
) -> tuple[Estimate, Array, Array, dict[str, Profile]]:
    """The estimate, tokens of a prefill, the largest batch, kernels of both passes, by name."""
    # prompts of a prefill pass in all groups, as ``Kernels.estimate`` has them
    group = jnp.maximum(plan.prefill_tokens / jnp.maximum(work.isl, 1.0), 1.0)
    prompts = group * plan.ep * (1.0 + plan.two_batch)
    passes = {
        "prefill": ForwardPass(
            sequences=prompts, new_tokens=work.isl, cached_tokens=0.0 * work.isl
        ),
        "decode": ForwardPass(
            sequences=work.batch,
            new_tokens=jnp.ones_like(work.batch),
            cached_tokens=decode_context(work),
        ),
    }
    profiles = {x: profile_kernels(estimator, arch, hardware, f, plan) for x, f in passes.items()}
    answer = estimator.estimate(arch, hardware, work, plan)
    largest = estimator.largest_batch(arch, hardware, work, plan)
    return answer, prompts * work.isl, largest, profiles


def kernel_passes(
    estimator: Kernels,
    arch: Architecture,
    hardware: Hardware,
    work: Workload,
    plans: tuple[Plan, Plan],
) -> dict[str, Profile]:
    """The kernels of the prefill of a prompt in each group, and of a token of every request."""
    prompt, token = plans
    prefill, decode = passes_of(work)
    passes = {
        "prefill": (prefill.replace(sequences=prompt.ep), prompt),
        "decode": (decode.replace(sequences=jnp.maximum(work.batch, token.ep)), token),
    }
    return {
        stage: profile_kernels(estimator, arch, hardware, forward, plan)
        for stage, (forward, plan) in passes.items()
    }
