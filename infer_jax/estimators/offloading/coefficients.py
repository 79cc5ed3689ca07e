"""Coefficients and laws of the variants of the offloading model.

The improved variant has rooflines of GPU and CPU memory, and what FlexGen's cost models leave out:
the GPU reads its own memory (a roofline in decode), the CPU attends at the rate of its memory and
in 32 bits, the GPU may attend over cache that is stored elsewhere, compressed tensors are
decompressed before use, new cache is written back, and transfers hide only partly. Ten constants
with the share that hides; all but the time of a step are shares of the data sheet.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.offloading import published
from infer_jax.estimators.offloading.job import Job, MemoryLaw, Peak, Peaks, TermLaw, Terms
from infer_jax.estimators.offloading.published import cpu_scratch, paper_memory
from infer_jax.physics.memory.tiers import (
    Moved,
    Placement,
    TierTraffic,
    decode_traffic,
    prefill_traffic,
    seconds,
)
from infer_jax.specs import Spec, number, part, spec, static

HIDDEN = 0.7745  # share of the time that transfers hide: fitted with the constants below
# bytes that the CPU attends over, of those stored: FlexGen's runtime converts 16 bits to 32 in a
# workspace, for which cache on the CPU is read once more; cache from disk is converted on its way
WORKSPACE = 2.0


@spec
class Attained(Spec):
    """Shares of data-sheet rates that a job attains: eight fitted with ``HIDDEN``, one released.

    Data: the 512-token column of Table 2 and Table 4 (arXiv 2303.06865), within what the machine
    can do: PCIe 16 GB/s, 65 TFLOP/s, and an SSD of about 2 and 1 GB/s, read as up to 2.5 and 1.5.
    ``read`` and ``write`` end at those bounds; the largest residual is 12 %. ``attend`` is not
    seen by these data: it is the released model's 0.079 TFLOP/s for attention on the GPU, of
    which a 16-bit cache takes one a byte, over the chip's 320 GB/s. Weights are read from the
    GPU's memory at its data sheet's rate. Fitted in November 2026 (``experiments/offloading.py
    fit``).
    """

    link: Array = number("weights and hidden states, of the link", kind="fraction", default=0.8131)
    cache_link: Array = number("KV cache, of the link", kind="fraction", default=0.2298)
    read: Array = number("disk to CPU, of the disk's rate", kind="fraction", default=1.25)
    write: Array = number("CPU to disk, of the disk's rate", kind="fraction", default=1.5)
    matmul: Array = number("of the chip's 16-bit rate", kind="fraction", default=0.3325)
    attend: Array = number(
        "attention on the GPU in decode, of the chip's memory bandwidth",
        kind="fraction",
        default=79e9 / 320e9,
    )
    host_memory: Array = number(
        "reading cache on the CPU, of the host's memory bandwidth", kind="fraction", default=0.2562
    )
    opening: Array = number(
        "decompression, of the chip's memory bandwidth", kind="fraction", default=0.06407
    )
    step: Array = number("of a layer for a GPU batch", unit="s", kind="time", default=4.317e-4)


def terms(rates: Attained, job: Job, at: Placement) -> tuple[Terms, Terms]:
    """Seconds of one layer in prefill and for one token, by link and of arithmetic."""
    layer, plan = job.layer, job.plan
    chip, host = job.hardware.chip, job.hardware.host
    b, k, s, width = job.block, job.batches, job.prompt, job.layer.buffers.hidden
    link, cache_link = rates.link * host.link_bandwidth, rates.cache_link * host.link_bandwidth
    crossing = Moved(link, cache_link, link)
    read, write = rates.read * host.disk_read, rates.write * host.disk_write
    links = TierTraffic(crossing, crossing, Moved(*[read] * 3), Moved(*[write] * 3))
    flops, memory = rates.matmul * chip.flops_16, chip.memory_bandwidth
    opening = rates.opening * memory
    streamed = seconds(k * layer.loaded, memory)  # every GPU batch reads the weights
    decompressed = jnp.where(plan.compress_weights > 0.5, seconds(k * layer.loaded, opening), 0.0)
    always = decompressed + k * rates.step
    one = jnp.ones_like(s)

    def compression_time(context: Array) -> Array:
        """Seconds to compress or decompress the cache of the block."""
        amount = seconds(b * layer.decompressed(context), opening)
        return jnp.where(plan.compress_cache > 0.5, amount, 0.0)

    new = b * layer.cache(s + 1.0)
    moved = prefill_traffic(at, layer.weights, new, b * s * width)
    prefill = Terms(
        **moved.times(links),
        compute=jnp.maximum(seconds(b * s * layer.flops, flops), streamed)
        + seconds(b * layer.attend(s, s), flops)
        + compression_time(s)
        + always,
        attend=jnp.zeros_like(s),
    )

    dense = (1.0 + plan.values_read) / 2.0  # keys whole, of the values a share
    held, fresh = b * dense * layer.cache(job.middle), b * layer.cache(one)
    on_gpu = jnp.where(plan.cpu_attention > 0.5, 0.0, 1.0)
    moved = decode_traffic(at, layer.weights, held, fresh, b * width, crossing=on_gpu, returned=1.0)
    touched = b * dense * layer.decompressed(job.middle)
    products = dense * (b * layer.attend(one, job.middle))
    by_gpu = jnp.maximum(seconds(touched, rates.attend * memory), seconds(products, flops))
    bandwidth = rates.host_memory * host.memory_bandwidth
    arithmetic = seconds(products, host.flops)
    from_disk = jnp.maximum(seconds(WORKSPACE * touched, bandwidth), arithmetic)
    from_cpu = jnp.maximum(seconds((1.0 + WORKSPACE) * touched, bandwidth), arithmetic)
    by_cpu = at.cpu.cache * from_cpu + at.disk.cache * from_disk
    here = at.gpu.cache + on_gpu * at.away.cache
    decode = Terms(
        **moved.times(links),
        compute=jnp.maximum(seconds(b * layer.flops, flops), streamed)
        + here * by_gpu
        + dense * compression_time(job.middle)
        + always,
        attend=(1.0 - on_gpu) * by_cpu,
    )
    return prefill, decode


def memory(job: Job, at: Placement) -> Peaks:
    """Peak bytes as in Appendix A.3, and the buffers of decompression and GPU attention.

    Decompressed are one layer's weights and one GPU batch's cache. A GPU that attends over cache
    stored elsewhere holds that of the current GPU batch and of the next one.
    """
    peaks, layer, plan = paper_memory(job, at), job.layer, job.plan
    g = job.gpu_batch
    decompressed = jnp.where(plan.compress_weights > 0.5, layer.loaded, 0.0)
    unpacked = jnp.where(plan.compress_cache > 0.5, g * layer.decompressed(job.end), 0.0)
    staged = 2.0 * at.away.cache * g * layer.cache(job.end)
    staged = jnp.where(plan.cpu_attention > 0.5, 0.0, staged)

    def more(peak: Peak, held: Array) -> Peak:
        return peak._replace(work=peak.work + held)

    return peaks._replace(
        gpu_prefill=more(peaks.gpu_prefill, decompressed),
        gpu_decode=more(peaks.gpu_decode, decompressed + unpacked + staged),
        # a CPU without any of the cache needs no buffers for attention
        cpu_decode=more(peaks.cpu_decode, -at.gpu.cache * cpu_scratch(job)),
    )


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
IMPROVED = Laws(terms, memory, EACH, SHARED)


@spec
class Coefficients(Spec):
    """The constants of the offloading model, and the laws that make a variant."""

    rates: published.ReleasedConstants | Attained = part("what of the data sheet a job attains")
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
