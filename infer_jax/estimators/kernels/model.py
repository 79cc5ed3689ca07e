"""InferSim's model: a pass is a sum of kernels, each at its own measured efficiency.

Two assemblies of the same kernels: the authors' own, with its units and quirks, and a corrected
one; two sources of efficiency: look-up tables and smooth curves.
Source: InferSim, Alibaba (2025), technical report and https://github.com/alibaba/InferSim.
"""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import jax.numpy as jnp
from jax import Array

from infer_jax import footprint
from infer_jax.catalog.published import kernels_constants
from infer_jax.errors import InputError
from infer_jax.estimators.estimate import (
    Estimate,
    Phase,
    decode_context,
    estimate_of_passes,
    passes_of,
)
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.kernels.coefficients import Coefficients, KernelsPlan
from infer_jax.estimators.kernels.corrected import Rank, corrected_pass, server_account
from infer_jax.estimators.kernels.efficiency import Curves, Kernel
from infer_jax.estimators.kernels.published import PhaseInputs
from infer_jax.estimators.kernels.published_pass import budget, published_pass
from infer_jax.estimators.kernels.tables import Tables
from infer_jax.footprint import EngineSettings, MeanLengths
from infer_jax.results import Row
from infer_jax.specs import (
    Architecture,
    ForwardPass,
    Hardware,
    Plan,
    Workload,
    checked,
    spec,
)

TAKEN = (
    "flop_giga",
    "byte_giga",
    "memory_share",
    "link_share",
    "causal",
    "schedule_prefill",
    "schedule_decode",
    "schedule_decode_hybrid",
)
OWN = ("memory_share", "link_share", "schedule_prefill", "schedule_decode", "reserve")


@spec
class Kernels(Coefficients, Estimator):
    """The kernel-level model: each kernel at its own measured efficiency, plus fixed times."""

    table = "kernels"
    checked_against = "a sum of kernels without scheduler or waits: no measured rows of servers"

    @property
    def memory_account(self) -> str:
        """The authors' where ``published``, else that of ``memory``."""
        return "by InferSim, weights, cache and a fixed reserve" if self.published else ""

    @classmethod
    def corrected(cls, efficiency: "Curves | Tables | None" = None) -> "Kernels":
        """For users: plain units, every kernel of a layer, latencies; docs/theories lists them all.

        Without an efficiency it is a roofline, until ``fitted`` to a chip.
        """
        return cls.of(efficiency=efficiency or Curves.of(), server=EngineSettings.of())

    @classmethod
    def as_published(cls, efficiency: "Curves | Tables | None" = None) -> "Kernels":
        """The authors' program: 1024 and 2^30 for giga, 0.8 of every bandwidth, its quirks."""
        constants = kernels_constants()
        return cls.of(
            efficiency=efficiency or Curves.of(),
            reserve=constants["reserve_gb"] * 1e9 * constants["byte_giga"],
            published=True,
            **{name: constants[name] for name in TAKEN},
        )

    @classmethod
    def from_tables(
        cls, folder: str | os.PathLike[str], device: str, default_mfu: float
    ) -> "Kernels":
        """The corrected model on a folder of kernel tables; infeasible where a row is missing.

        Raises:
            InputError: as ``load_kernel_tables``.
        """
        return cls.corrected(Tables.load(folder, device, default_mfu, default_mfu))

    def fitted(self, coefficients: Mapping[str, float]) -> Self:
        """This variant with a chip's curves, as the ``[kernels]`` table of a profile has them.

        Raises:
            InputError: no coefficients; a name that is none, or a value out of bounds.
        """
        if not coefficients:
            allowed = "a system whose profile has a [kernels] table, or one that measure wrote"
            raise InputError("kernels", "curves of this system", "missing", allowed)
        own = {k: v for k, v in coefficients.items() if k in OWN}
        curves = {k: v for k, v in coefficients.items() if k not in OWN}
        return self.with_(**own).replace(efficiency=Curves.of().fitted(curves))

    def fitted_to(self, tables: Mapping[str, Mapping[str, float]]) -> Self:
        """The same with its own table of a profile, on a server of that system.

        Raises:
            InputError: as ``fitted``.
        """
        fitted = super().fitted_to(tables)
        if fitted.server is None:
            return fitted
        return fitted.replace(server=fitted.server.on(tables))

    @checked
    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
    ) -> Phase:
        """One pass on tp x ep GPUs: scheduling, and for each layer its kernels and exchanges.

        Attention runs in ``ep`` data-parallel groups of ``tp`` ranks, each with its share of the
        sequences. Stages of a pipeline are passed in turn.
        """
        return self._pass(arch, hardware, forward, plan)[0]

    def profile(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
    ) -> list[dict[str, Kernel]]:
        """Every kernel of one layer of each block on one rank for one micro-batch, by name."""
        return self._pass(arch, hardware, forward, plan)[1]

    def _pass(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
    ) -> tuple[Phase, list[dict[str, Kernel]]]:
        widened = KernelsPlan.widen(plan)
        if self.published:
            return published_pass(self, arch, hardware, forward, widened)
        return corrected_pass(Rank(self, arch, hardware, forward, widened))

    @checked
    def estimate(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Plan
    ) -> Estimate:
        """An estimate: TTFT of a pass that fills every group, TPOT at the mean context.

        A prefill pass has ``plan.prefill_tokens`` tokens in each group, at least one prompt.
        """
        full = KernelsPlan.widen(plan)
        fresh = workload.isl - workload.prefix
        one = jnp.ones_like(workload.batch)
        prompts = full.prefill_tokens / jnp.maximum(fresh, 1.0)
        if not self.published:
            prompts = jnp.maximum(prompts, 1.0)
        prompts = jnp.where(full.prefill_tokens > 0, prompts, 1.0)
        prompts = prompts * full.ep * (1.0 + full.two_batch)
        context = decode_context(workload)
        if self.published:
            context = jnp.floor(workload.isl + workload.osl / 2.0)
        first = self.step(
            arch,
            hardware,
            ForwardPass(sequences=prompts, new_tokens=fresh, cached_tokens=workload.prefix),
            full,
        )
        decode = self.step(
            arch,
            hardware,
            ForwardPass(sequences=workload.batch, new_tokens=one, cached_tokens=context),
            full,
        )
        prompted = jnp.maximum(prompts * fresh, 1.0)
        return estimate_of_passes(hardware, workload, full, first, decode, prompted)

    def largest_batch(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Plan
    ) -> Array:
        """Requests of isl + osl tokens that fit, whole ones in every group; 0 where none does."""
        widened, tokens = KernelsPlan.widen(plan), workload.isl + workload.osl
        one = jnp.ones_like(tokens)
        token = ForwardPass(sequences=widened.ep, new_tokens=one, cached_tokens=tokens)
        if self.published:
            held = budget(PhaseInputs.of(self, arch, hardware, token, widened, "decode"))
            fit = jnp.maximum(held.space, 0.0) / (held.token * tokens + held.state)
        else:
            gpu, launched = server_account(Rank(self, arch, hardware, token, widened))
            lengths = MeanLengths(workload.isl, workload.osl, held=1.0)
            fit = footprint.requests_held(gpu, lengths, launched)
        return widened.ep * jnp.floor(fit)


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
