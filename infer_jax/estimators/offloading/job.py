"""The inputs of the offloading laws: the mean layer, the block and the system."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.offloading.layer import MeanLayer
from infer_jax.estimators.offloading.plan import Offload
from infer_jax.physics.memory.offload_schedule import diagonal_tokens
from infer_jax.physics.memory.tiers import Placement
from infer_jax.specs import Hardware, Spec, Workload, number, spec


@spec
class Terms(Spec):
    """Seconds of one layer in one phase, by link and kind of work."""

    to_gpu: Array = number("CPU to GPU", unit="s", kind="time")
    to_cpu: Array = number("GPU to CPU", unit="s", kind="time")
    read: Array = number("disk to CPU", unit="s", kind="time")
    written: Array = number("CPU to disk", unit="s", kind="time")
    compute: Array = number("arithmetic of the GPU", unit="s", kind="time")
    attend: Array = number("attention on the CPU", unit="s", kind="time")


class Peak(NamedTuple):
    """Bytes of one memory in one phase: tensors stored there, working buffers, and the largest
    intermediate result."""

    home: Array
    work: Array
    inter: tuple[Array, ...] = ()

    @property
    def needs(self) -> tuple[Array, ...]:
        """Bytes needed at each step of a layer; all must fit."""
        held = self.home + self.work
        return tuple(held + x for x in self.inter) or (held,)

    @property
    def largest(self) -> Array:
        """The largest intermediate result."""
        return largest(self.inter) if self.inter else jnp.asarray(0.0)

    @property
    def need(self) -> Array:
        """The peak."""
        return self.home + self.work + self.largest


class Peaks(NamedTuple):
    """The three memories in prefill and in decode; the disk holds the same in both."""

    gpu_prefill: Peak
    gpu_decode: Peak
    cpu_prefill: Peak
    cpu_decode: Peak
    disk: Peak


class Job(NamedTuple):
    """A block of samples on a system, without the placement of its tensors."""

    layer: MeanLayer
    hardware: Hardware
    plan: Offload
    gpu_batch: Array  # g
    batches: Array  # k, 1 where the schedule is row-by-row
    prompt: Array  # s
    tokens: Array  # n

    @property
    def block(self) -> Array:
        """Samples of a block: b = g k."""
        return self.gpu_batch * self.batches

    @property
    def end(self) -> Array:
        """Tokens of a sample at its end: S = s + n."""
        return self.prompt + self.tokens

    @property
    def middle(self) -> Array:
        """Tokens of a sample half way through its output: s + n / 2."""
        return self.prompt + self.tokens / 2.0

    @property
    def resident(self) -> Array:
        """Tokens of cache a sample of the block keeps: s + n, or the diagonal schedule's mean."""
        mean = diagonal_tokens(self.prompt, self.tokens)
        return jnp.where(self.plan.schedule > 1.5, mean, self.end)


Phases = tuple[Terms, Terms]
TermLaw = Callable[..., Phases]  # (coefficients, job, placement) -> prefill, decode
MemoryLaw = Callable[[Job, Placement], Peaks]


def job(layer: MeanLayer, hardware: Hardware, workload: Workload, plan: Offload) -> Job:
    """The job of a plan."""
    rowwise = plan.schedule < 0.5
    return Job(
        layer=layer,
        hardware=hardware,
        plan=plan,
        gpu_batch=plan.gpu_batch,
        batches=jnp.where(rowwise, 1.0, plan.batches),
        prompt=workload.isl,
        tokens=workload.osl,
    )


def largest(values: tuple[Array, ...]) -> Array:
    """The largest of some scalars."""
    top = values[0]
    for value in values[1:]:
        top = jnp.maximum(top, value)
    return top
