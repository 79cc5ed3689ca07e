"""Offloading a model from a small GPU to its host and disk (FlexGen, arXiv 2303.06865).

A job is a block of samples that is prefilled and decoded layer by layer, weights, cache and
hidden states split over GPU, CPU and disk. A layer takes the longest of groups of transfers and
arithmetic; the split that minimises the time per sample is a linear program. A block is priced
as a whole, so this estimator answers ``estimate`` alone.
"""

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Estimate, Limit, Phase
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.offloading import published
from infer_jax.estimators.offloading.coefficients import (
    HIDDEN,
    IMPROVED,
    LINKS,
    PAPER,
    RELEASED,
    WORK,
    Attained,
    Coefficients,
)
from infer_jax.estimators.offloading.job import Job, Peak, Peaks, Terms, mean_layer
from infer_jax.estimators.offloading.placing import best_placement
from infer_jax.estimators.offloading.plan import Offload
from infer_jax.physics.cost import usd_per_million_tokens
from infer_jax.physics.memory.tiers import Moved, Placement, grouped_bytes
from infer_jax.specs import (
    Architecture,
    Hardware,
    Plan,
    Workload,
    checked,
    number,
    spec,
)


@spec
class JobEstimate(Estimate):
    """An estimate of a block: ``ttft`` is its prefill, ``tpot`` its step of one token each."""

    time: Array = number("time of the block", unit="s", kind="time")
    samples: Array = number("samples that finish in that time", kind="count")
    decode_throughput: Array = number(
        "output tokens per second and chip while decoding", unit="tokens/s", kind="rate"
    )


class PlacedJob(NamedTuple):
    """A job with its tensors placed: the layer's times and the peaks of the memories."""

    job: Job
    at: Placement
    prefill: Terms
    decode: Terms
    prefill_time: Array
    decode_time: Array
    peaks: Peaks


@spec
class Offloading(Coefficients, Estimator):
    """The offloading model: its constants, and the laws that make a variant."""

    table = "offloading"
    checked_against = "one machine that offloads to host and disk, fitted to FlexGen on a T4"
    needs_host = True

    @property
    def memory_account(self) -> str:
        """FlexGen's own: ``memory`` counts no tensors on hosts and disks."""
        return "by FlexGen, whose runtime splits tensors over GPU, CPU and disk"

    @classmethod
    def paper(cls, solve: bool = True) -> "Offloading":
        """Appendix A.3: a phase takes the longest of its five terms."""
        rates = published.paper_rates()
        none = {"group": 0.0, "cache_bits": 16.0}
        return cls.of(rates=rates, laws=PAPER, solve=solve, **none)

    @classmethod
    def released(cls, solve: bool = True) -> "Offloading":
        """The authors' released cost model: pairs of transfers add up, 0.8 of each memory."""
        return cls.of(
            rates=published.ReleasedConstants.of(),
            usable=0.8,
            group=0.0,
            cache_bits=16.0,
            laws=RELEASED,
            solve=solve,
            hidden_on_disk=False,
        )

    @classmethod
    def improved(cls, solve: bool = True) -> "Offloading":
        """Rooflines of GPU and CPU memory, compression, GPU attention, partial overlap."""
        return cls.of(
            rates=Attained.of(),
            hidden=HIDDEN,
            laws=IMPROVED,
            solve=solve,
            hidden_on_disk=False,  # no runtime does it
        )

    @classmethod
    def as_planned(cls) -> "Offloading":
        """``improved`` with the placement that the plan gives, not solved for."""
        return cls.improved(solve=False)

    def fitted(self, coefficients: Mapping[str, float]) -> "Offloading":
        """This variant with a profile's constants: names of its rates, or of its own.

        Raises:
            InputError: a name that is no constant, or a value out of bounds.
        """
        own = {k: v for k, v in coefficients.items() if k in ("usable", "hidden")}
        rest = {k: v for k, v in coefficients.items() if k not in own}
        return self.with_(**own).replace(rates=self.rates.with_(**rest))

    def job(self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Offload) -> Job:
        """The inputs of the laws; row-by-row, a block is one GPU batch."""
        weight = jnp.where(
            plan.compress_weights > 0.5, grouped_bytes(self.weight_bits, self.group), 0.0
        )
        squeezes = (plan.compress_cache > 0.5) & (self.cache_bits < 16.0)
        cache = jnp.where(squeezes, grouped_bytes(self.cache_bits, self.group), 0.0)
        return Job(
            layer=mean_layer(arch, weight, cache, self.group),
            hardware=hardware,
            plan=plan,
            gpu_batch=plan.gpu_batch,
            batches=jnp.where(plan.schedule < 0.5, 1.0, plan.batches),
            prompt=workload.isl,
            tokens=workload.osl,
        )

    def answer(self, job: Job, at: Placement) -> PlacedJob:
        """The times and peaks of a job whose tensors are placed."""
        prefill, decode = self.laws.terms(self.rates, job, at)
        return PlacedJob(
            job=job,
            at=at,
            prefill=prefill,
            decode=decode,
            prefill_time=reduce(jnp.maximum, self.lengths(prefill, self.laws.prefill, job)),
            decode_time=reduce(jnp.maximum, self.lengths(decode, self.laws.decode, job)),
            peaks=self.laws.memory(job, at),
        )

    @checked
    def estimate(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Plan
    ) -> JobEstimate:
        """One block of gpu_batch x batches samples of ``workload.isl`` and ``workload.osl``.

        The placement of the tensors is the best one (``solve``) or the plan's. Latency of the
        block is ``time``; ``throughput`` is b n / T per GPU. A plain ``Plan`` is a block of one
        sample with everything on the CPU.
        """
        block = Offload.widen(plan)
        job = self.job(arch, hardware, workload, block)
        at = best_placement(self, job).placement if self.solve else block.placement
        return self.priced(self.answer(job, at), hardware)

    def limits(self, answer: PlacedJob, gpu: Peak, cpu: Peak) -> dict[str, Limit]:
        """Memory limits of a phase with these peaks."""
        chip, host = answer.job.hardware.chip, answer.job.hardware.host
        need = {"GPU": gpu.need, "CPU": cpu.need, "disk": answer.peaks.disk.need}
        size = {"GPU": chip.memory, "CPU": host.memory, "disk": host.disk}
        limits = {
            f"{name} memory": Limit(need=need[name], capacity=self.usable * size[name])
            for name in need
        }
        if not self.hidden_on_disk:
            none = jnp.zeros_like(answer.at.disk.hidden)
            limits["hidden states on disk"] = Limit(
                need=none + answer.at.disk.hidden, capacity=none
            )
        return limits

    def priced(self, answer: PlacedJob, hardware: Hardware) -> JobEstimate:
        """The estimate of a job whose tensors are placed."""
        j, chip = answer.job, hardware.chip
        prefills, decodes = self.weights(j)
        steps = decodes / jnp.maximum(j.tokens - 1.0, 1.0)
        stages = j.plan.pp
        repeats = jnp.where(j.plan.schedule < 0.5, j.plan.batches, 1.0)
        samples = stages * repeats * j.block
        first, each = prefills * answer.prefill_time, steps * answer.decode_time
        time = first + decodes * answer.decode_time
        peaks = answer.peaks
        peak = stages * chip.flops_16
        one = jnp.ones_like(j.prompt)
        prompt = samples * j.layer.count * (j.prompt * j.layer.flops)
        prompt = prompt + samples * j.layer.count * j.layer.attend(j.prompt, j.prompt)
        token = samples * j.layer.count * (j.layer.flops + j.layer.attend(one, j.middle))
        layout = {
            f"{kind}_{tier}": getattr(getattr(answer.at, tier), kind)
            for kind in Moved._fields
            for tier in answer.at._fields
        } | {
            "gpu_batch": j.plan.gpu_batch,
            "batches": j.plan.batches,
            "pp": stages,
        }
        return JobEstimate(
            ttft=first,
            tpot=each,
            chips=stages,
            throughput=samples * j.tokens / time / stages,
            cost=usd_per_million_tokens(stages, hardware.price, time, samples * j.tokens),
            input_cost=usd_per_million_tokens(
                stages, hardware.price, first, jnp.maximum(samples * j.prompt, 1.0)
            ),
            prefill=Phase(
                time=first,
                terms=_scaled(answer.prefill, prefills),
                limits=self.limits(answer, peaks.gpu_prefill, peaks.cpu_prefill),
                mfu=prompt / (first * peak),
                layout=layout,
            ),
            decode=Phase(
                time=each,
                terms=_scaled(answer.decode, steps),
                limits=self.limits(answer, peaks.gpu_decode, peaks.cpu_decode),
                mfu=token / (each * peak),
                layout=layout,
            ),
            time=time,
            samples=samples,
            decode_throughput=samples / each / stages,
        )


def _scaled(terms: Terms, factor: Array) -> dict[str, Array]:
    return {name: factor * getattr(terms, name) for name in (*LINKS, *WORK)}
