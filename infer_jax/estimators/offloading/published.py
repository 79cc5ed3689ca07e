"""Times and memory peaks of a layer in FlexGen's two published cost models.

The paper's Appendix A.3 and the cost model that its authors released differ; both are here, term
by term. Decode attends on the CPU over whatever of the cache is not on the GPU.
Source: Sheng et al. 2023 (arXiv 2303.06865), Appendix A.3, and FlexGen's released cost model.
"""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.offloading.job import Job, Peak, Peaks, Terms
from infer_jax.physics.memory.tiers import (
    Moved,
    Placement,
    TierTraffic,
    decode_traffic,
    prefill_traffic,
    seconds,
)
from infer_jax.specs import Spec, number, spec

GIB, TERA = 2.0**30, 1e12
# data-sheet rates of the authors' machine, as in its profile
LINK, READ, WRITE, CHIP, HOST = 16e9, 2e9, 1e9, 65e12, 2.05e12


def _share(doc: str, measured: float, sheet: float) -> Array:
    return number(doc, kind="fraction", default=measured / sheet)


@spec
class ReleasedConstants(Spec):
    """The released constants, as shares of a T4 host's data sheet so that they carry over.

    Source: class CostModelConfig of the released cost model ("google cloud T4").
    """

    to_gpu: Array = _share("CPU to GPU, of the link", 12.89 * GIB, LINK)
    cache_to_cpu: Array = _share("cache, GPU to CPU, of the link", 0.97 * GIB, LINK)
    hidden_to_cpu: Array = _share("hidden states, GPU to CPU, of the link", 4.82 * GIB, LINK)
    read: Array = _share("disk to CPU, of the disk's read rate", 0.473 * GIB, READ)
    cache_written: Array = _share("cache to disk in prefill", 0.746 * GIB, WRITE)
    hidden_written: Array = _share("hidden states to disk in prefill", 2.015 * GIB, WRITE)
    written: Array = _share("CPU to disk in decode", 2.015 * GIB, WRITE)
    matmul_prefill: Array = _share("matrix products in prefill", 21.24 * TERA, CHIP)
    matmul_decode: Array = _share("matrix products in decode", 4.3 * TERA, CHIP)
    attend_prefill: Array = _share("attention in prefill", 9.97 * TERA, CHIP)
    attend_decode: Array = _share("attention on the GPU in decode", 0.079 * TERA, CHIP)
    attend_cpu: Array = _share("attention on the CPU, of its peak", 0.0123 * TERA, HOST)
    weights_read: Array = number(
        "of the disk's rate, what weights attain in decode", kind="fraction", default=0.95
    )
    small_both: Array = number("CPU at small batch and width", kind="fraction", default=0.0168)
    small_batch: Array = number("CPU loss per halving of batch", kind="fraction", default=0.0328)
    small_width: Array = number("CPU loss per halving of width", kind="fraction", default=0.0621)


def paper_rates() -> ReleasedConstants:
    """The same constants without what only the released model has: the factors of disk and CPU."""
    return ReleasedConstants.of(weights_read=1.0, small_both=0.0, small_batch=0.0, small_width=0.0)


def cpu_efficiency(rates: ReleasedConstants, job: Job) -> Array:
    """The share of its rate that the CPU attains at a small batch or a narrow model.

    max(0.1, 1 + c1 u v - c2 u - c3 v), u = max(0, log2(64 / g)), v = max(0, log2(4096 / d)).
    """
    u = jnp.maximum(0.0, jnp.log2(64.0 / job.gpu_batch))
    v = jnp.maximum(0.0, jnp.log2(4096.0 / job.layer.width))
    return jnp.maximum(
        0.1, 1.0 + rates.small_both * u * v - rates.small_batch * u - rates.small_width * v
    )


def terms(rates: ReleasedConstants, job: Job, at: Placement) -> tuple[Terms, Terms]:
    """Seconds of one layer in prefill and for one token, by link and of arithmetic.

    Source: Appendix A.3; the released model has other constants in the same places.
    """
    layer, chip, host = job.layer, job.hardware.chip, job.hardware.host
    b, s, width = job.block, job.prompt, job.layer.buffers.hidden
    link, read = host.link_bandwidth, rates.read * host.disk_read
    to_gpu = Moved(*[rates.to_gpu * link] * 3)
    to_cpu = Moved(link, rates.cache_to_cpu * link, rates.hidden_to_cpu * link)
    write = host.disk_write
    links = TierTraffic(
        to_gpu,
        to_cpu,
        read=Moved(read, read, read),
        written=Moved(write, rates.cache_written * write, rates.hidden_written * write),
    )

    moved = prefill_traffic(at, layer.weights, b * layer.cache(s + 1.0), b * s * width)
    prefill = Terms(
        **moved.times(links),
        compute=seconds(b * s * layer.flops, rates.matmul_prefill * chip.flops_16)
        + seconds(b * layer.attend(s, s), rates.attend_prefill * chip.flops_16),
        attend=jnp.zeros_like(s),
    )

    held, fresh = b * layer.cache(job.middle), b * layer.cache(jnp.ones_like(s))
    moved = decode_traffic(at, layer.weights, held, fresh, b * width)
    attend = b * layer.attend(jnp.ones_like(s), job.middle)
    cpu = rates.attend_cpu * cpu_efficiency(rates, job) * host.flops
    links = links._replace(
        read=Moved(rates.weights_read * read, read, read),
        written=Moved(*[rates.written * write] * 3),
    )
    decode = Terms(
        **moved.times(links),
        compute=seconds(b * layer.flops, rates.matmul_decode * chip.flops_16)
        + seconds(at.gpu.cache * attend, rates.attend_decode * chip.flops_16),
        attend=seconds(at.away.cache * attend, cpu),
    )
    return prefill, decode


def _intermediate(job: Job, tokens: Array, keys: Array) -> tuple[Array, ...]:
    """Bytes of a GPU batch's intermediate results: projections, attention, embedding, MLP.

    Attention of ``tokens`` queries over ``keys`` keys: both, and the scores of every head.
    """
    g, buffers = job.gpu_batch, job.layer.buffers
    attend = buffers.query * tokens + buffers.cache * keys + buffers.score * tokens * keys
    sizes = (buffers.inner * tokens, attend, 2.0 * buffers.hidden * tokens, buffers.mlp * tokens)
    return tuple(g * x for x in sizes)


def _homes(job: Job, tokens: Array) -> tuple[Moved, Moved]:
    """Bytes of the whole model and block: (all, with hidden states of s tokens; on disk)."""
    layer, b, prompted = job.layer, job.block, job.prompt
    cache = b * layer.cache(tokens) * layer.count
    whole = Moved(layer.weights * layer.count / job.plan.pp, cache, 0.0)
    hidden = b * layer.buffers.hidden
    return whole._replace(hidden=prompted * hidden), whole._replace(hidden=hidden)


def _cpu_work(job: Job, at: Placement) -> tuple[Array, Array]:
    """Working buffers of the CPU in prefill and decode: staged weights, hidden states, scores."""
    layer, g, end = job.layer, job.gpu_batch, job.end
    buffers, prompted = layer.buffers, job.prompt * job.layer.buffers.hidden * job.gpu_batch
    prefill = at.away.weights * layer.weights + at.away.hidden * prompted
    decode = (
        at.disk.weights * layer.weights
        + 2.0 * at.disk.hidden * buffers.hidden * g
        + 2.0 * at.disk.cache * layer.cache(end) * g
        + cpu_scratch(job)
    )
    return prefill, decode


def cpu_scratch(job: Job) -> Array:
    """Bytes of scores and results of attention on the CPU, for a GPU batch."""
    buffers = job.layer.buffers
    return (buffers.score * job.end + buffers.hidden) * job.gpu_batch


def paper_memory(job: Job, at: Placement) -> Peaks:
    """Peak bytes by Appendix A.3: of the intermediate results of a layer the largest counts."""
    layer, g, buffers = job.layer, job.gpu_batch, job.layer.buffers
    prompted, resident = job.prompt, job.resident
    before, after = _homes(job, resident)
    staged = 2.0 * at.away.weights * layer.weights
    staged = staged + at.away.hidden * prompted * buffers.hidden * g
    one = jnp.ones_like(prompted)

    def results(tokens: Array, keys: Array) -> tuple[Array, ...]:
        inner, attend, embed, mlp = _intermediate(job, tokens, keys)
        fixed = jnp.maximum(inner, jnp.maximum(embed, mlp))
        return fixed, at.gpu.cache * attend

    work_before, work_after = _cpu_work(job, at)
    return Peaks(
        gpu_prefill=Peak(at.gpu.times(before).total, staged, results(prompted, prompted)),
        gpu_decode=Peak(at.gpu.times(after).total, staged, results(one, job.end)),
        cpu_prefill=Peak(at.cpu.times(before).total, work_before),
        cpu_decode=Peak(at.cpu.times(after).total, work_after),
        disk=Peak(at.disk.times(before).total, jnp.zeros_like(prompted)),
    )


def released_memory(job: Job, at: Placement) -> Peaks:
    """Peak bytes by the released model: intermediate results add up, keys of a step are held
    twice more on the GPU, and the prompt's cache alone counts on the CPU in prefill."""
    layer, g, buffers = job.layer, job.gpu_batch, job.layer.buffers
    prompted, end, resident = job.prompt, job.end, job.resident
    one = jnp.ones_like(prompted)
    before, after = _homes(job, resident)
    staged = 2.0 * at.away.weights * layer.weights
    inner, attend, embed, mlp = _intermediate(job, one, end)
    # scores are counted once, queries, keys, values and results each
    attend = 2.0 * attend - g * buffers.score * end
    decode = inner + at.gpu.cache * attend + embed + mlp
    kept = 2.0 * at.gpu.cache * g * buffers.cache * end
    first = sum(_intermediate(job, prompted, prompted), start=jnp.asarray(0.0))
    work_before, work_after = _cpu_work(job, at)
    short = _homes(job, jnp.minimum(prompted, resident))[0]
    hidden = at.away.hidden * buffers.hidden * g
    return Peaks(
        gpu_prefill=Peak(at.gpu.times(before).total, staged + hidden * prompted, (first,)),
        gpu_decode=Peak(at.gpu.times(after).total, staged + hidden + kept, (decode,)),
        cpu_prefill=Peak(at.cpu.times(short).total, work_before),
        cpu_decode=Peak(at.cpu.times(after).total, work_after),
        disk=Peak(at.disk.times(before).total, jnp.zeros_like(prompted)),
    )
