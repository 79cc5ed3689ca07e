"""``ij.offload``: the best block and placement of a model that is larger than its GPU."""

from typing import Annotated

import numpy as np

from infer_jax.compiling import once
from infer_jax.estimators import JobEstimate, Offload, Offloading, make
from infer_jax.estimators.offloading.flags import rounded
from infer_jax.estimators.offloading.plan import SCHEDULES
from infer_jax.estimators.offloading.search import search
from infer_jax.specs import Architecture, Hardware, Workload
from infer_jax.verbs import inputs, options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.offload_result import KINDS, TIERS, BestBlock, OffloadResult
from infer_jax.verbs.option import SHARE, OneOf, Option, seconds_of
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.progress import busy

COMPRESSIONS = ("none", "weights", "cache", "both")
ESTIMATORS = ("offloading", "offloading.paper", "offloading.released")


@verb
def offload(
    config: opt.Config,
    hardware: opt.System = "t4_host",
    *,
    isl: opt.Isl = 512,
    osl: opt.Osl = 32,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    latency: Annotated[
        float | str | None, Option("Limit of a block's time: 600s; bare is ms.", "TIME", opt.TIME)
    ] = None,
    compress: Annotated[
        str,
        Option("Store in 4 bits: none, weights, cache or both.", "WHAT", OneOf(COMPRESSIONS)),
    ] = "none",
    schedule: Annotated[
        str, Option("row-by-row, zig-zag or diagonal.", "ORDER", OneOf(SCHEDULES))
    ] = "zig-zag",
    gpu_attention: Annotated[bool, Option("Decode attends on the GPU, not on the CPU.")] = False,
    no_overlap: Annotated[bool, Option("Transfers wait for the computation.")] = False,
    values_read: Annotated[
        float, Option("Values that sparse attention reads; 1: dense.", "SHARE", SHARE)
    ] = 1.0,
    gpus: Annotated[float, Option("Machines in a pipeline.", "N", opt.WHOLE)] = 1.0,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    set: opt.Changes = None,
) -> OffloadResult:
    """Which block, and where do weights, KV cache and hidden states live, for most tokens/s?

    Args:
        latency: limit of a block's time, s.
        compress: what is stored in 4 bits: none, weights, cache or both.
        schedule: row-by-row, zig-zag or diagonal.
        gpus: machines in a pipeline.

    Raises:
        InputError: a model or system that cannot be read, a word or a number that is not allowed.

    >>> import infer_jax as ij
    >>> best = ij.offload("opt-6.7b", "t4_host", isl=512, osl=32)
    >>> float(round(sum(best.block.placement["weights"].values()), 6))
    1.0
    """
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set)
    name, arch = estimator or ESTIMATORS[0], asked.model.architecture
    model = _estimator(name, asked)
    _stages(arch, gpus)
    work = inputs.workload(isl, osl, 0.0)
    inputs.check_context(asked.model, work)
    plan = Offload.of(
        pp=gpus,
        schedule=schedule,
        overlap=float(not no_overlap),
        cpu_attention=float(not gpu_attention),
        compress_weights=float(compress in ("weights", "both")),
        compress_cache=float(compress in ("cache", "both")),
        values_read=values_read,
    )
    with busy("compiling and searching"):
        grid = search(model, arch, asked.hardware, work, plan)
    limit = seconds_of(latency)
    best, block = grid.best(limit), None
    if best is not None:
        here = {"gpu_batch": grid.gpu_batch[best], "batches": grid.batches[best]}
        plan = plan.replace(**{name: np.asarray(x) for name, x in here.items()})
        with busy("pricing the best block"):
            block = _block(model, arch, asked.hardware, work, plan)
    return OffloadResult(asked, name, work, gpus, limit, grid, block)


def _stages(arch: Architecture, gpus: float) -> None:
    layers = sum(float(b.count) for b in arch.blocks)
    if gpus > layers:
        raise refuse("--gpus", gpus, f"at most the {layers:g} layers")


def _block(
    model: Offloading, arch: Architecture, hardware: Hardware, work: Workload, plan: Offload
) -> BestBlock:
    """The block of ``plan`` with its tensors placed at their best, and FlexGen's flags for it."""
    answer: JobEstimate = once(_estimate, model, arch, hardware, work, plan)
    layout = answer.decode.layout
    shares = {f"{kind}_{tier}" for kind in KINDS for tier in TIERS[:2]}
    placed = plan.replace(**{share: layout[share] for share in shares})
    flags = rounded(model, arch, hardware, work, placed, float(answer.throughput))
    return BestBlock(answer, flags)


def _estimate(
    model: Offloading, arch: Architecture, hardware: Hardware, work: Workload, plan: Offload
) -> JobEstimate:
    return model.estimate(arch, hardware, work, plan)


def _estimator(name: str, asked: inputs.Given) -> Offloading:
    """The offloading estimator of that name with the system's coefficients.

    Raises:
        InputError: another estimator.
    """
    if name not in ESTIMATORS:
        raise refuse("--estimator", name, ", ".join(ESTIMATORS))
    model = make(name, asked.system.coefficients)
    assert isinstance(model, Offloading)
    return model
