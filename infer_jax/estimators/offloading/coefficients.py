"""Coefficients and laws of the variants of the offloading model."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.offloading import improved, published
from infer_jax.estimators.offloading.job import Job, MemoryLaw, TermLaw, Terms
from infer_jax.specs import Spec, number, part, spec, static

Groups = tuple[tuple[str, ...], ...]
WORK = ("compute", "attend")  # GPU and CPU work in turn
LINKS = ("to_gpu", "to_cpu", "read", "written")
EACH: Groups = (*((name,) for name in LINKS), WORK)
PAIRED: Groups = (("to_gpu", "read"), ("to_cpu", "written"), WORK)
FIRST: Groups = (*(("to_gpu", name) for name in LINKS[1:]), ("to_gpu", *WORK))
# the CPU's memory feeds its attention and the transfers to the GPU
SHARED: Groups = (*EACH, ("to_gpu", "attend"))


class Laws(NamedTuple):
    """The named laws in which the variants differ; a phase takes the longest of its groups."""

    terms: TermLaw
    memory: MemoryLaw
    prefill: Groups
    decode: Groups


PAPER = Laws(published.terms, published.paper_memory, EACH, EACH)
RELEASED = Laws(published.terms, published.released_memory, PAIRED, FIRST)
IMPROVED = Laws(improved.terms, improved.memory, EACH, SHARED)


@spec
class Coefficients(Spec):
    """The constants of the offloading model, and the laws that make a variant."""

    rates: published.ReleasedConstants | improved.Attained = part(
        "what of the data sheet a job attains"
    )
    usable: Array = number("share of each memory that may be used", kind="fraction", default=1.0)
    weight_bits: Array = number("bits of a compressed weight", kind="size", default=4.0)
    cache_bits: Array = number("bits of a compressed cache; 16: none", kind="size", default=4.0)
    group: Array = number(
        "elements that share a scale and a minimum; 0: none are stored", kind="count", default=64.0
    )
    hidden: Array = number("share of time that transfers hide", kind="fraction", high=1, default=1)
    laws: Laws = static("the named laws")
    solve: bool = static("find the best places of the tensors", default=True)
    hidden_on_disk: bool = static("hidden states may live on disk", default=True)

    def lengths(self, terms: Terms, groups: Groups, job: Job) -> tuple[Array, ...]:
        """Seconds by group, h group + (1 - h) sum; a layer takes the longest of them.

        h is 1 where all transfers hide behind the longest, 0 without overlap.
        """
        every = {name: getattr(terms, name) for name in (*LINKS, *WORK)}
        whole = sum(every.values(), start=jnp.asarray(0.0))
        hides = jnp.where(job.plan.overlap > 0.5, self.hidden, 0.0)
        sums = [sum((every[name] for name in names), start=jnp.asarray(0.0)) for names in groups]
        return tuple(hides * x + (1.0 - hides) * whole for x in sums)

    def weights(self, job: Job) -> tuple[Array, Array]:
        """How often a layer's prefill and decode times count in the time of a block.

        T = (2 m - 1) L / m T_pre + (n - 1) L T_gen for the m L-layer blocks that a pipeline of m
        GPUs has in flight; m = 1 is Section 4.3 of the paper, row-by-row repeats it per GPU batch.
        """
        repeats = jnp.where(job.plan.schedule < 0.5, job.plan.batches, 1.0)
        layers, stages = job.layer.count, job.plan.pp
        prefill = (2.0 * stages - 1.0) * layers / stages
        return repeats * prefill, repeats * (job.tokens - 1.0) * layers
