"""``ij.offload``: the best block and placement of a model that is larger than its GPU."""

from typing import Annotated

from infer_jax import estimators, verbs
from infer_jax.results.problems import refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import SHARE, OneOf, Option, look_up, seconds_of
from infer_jax.verbs.progress import busy

COMPRESSIONS = OneOf(lambda: ("none", "weights", "cache", "both"))
SCHEDULES = OneOf(look_up("estimators.offloading.plan", "SCHEDULES"))


@verb
def offload(
    config: opt.Config,
    hardware: opt.System = "t4_host",
    *,
    isl: opt.Isl = 512,
    osl: opt.Osl = 32,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    latency: Annotated[float | str | None, Option.of("TIME", opt.TIME)] = None,
    compress: Annotated[str, Option.of("WHAT", COMPRESSIONS)] = "none",
    schedule: Annotated[str, Option.of("ORDER", SCHEDULES)] = "zig-zag",
    gpu_attention: Annotated[bool, Option.of()] = False,
    no_overlap: Annotated[bool, Option.of()] = False,
    values_read: Annotated[float, Option.of("SHARE", SHARE)] = 1.0,
    gpus: Annotated[float, Option.of("N", opt.WHOLE)] = 1.0,
    price: opt.Prices = None,
    estimator: opt.EstimatorName = None,
    set: opt.Changes = None,
) -> "verbs.OffloadResult":
    """Which block, and where do weights, KV cache and hidden states live, for most tokens/s?

    Args:
        latency: Limit of a block's time: 600s; bare is ms.
        compress: Store in 4 bits: none, weights, cache or both.
        schedule: row-by-row, zig-zag or diagonal.
        gpu_attention: Decode attends on the GPU, not on the CPU.
        no_overlap: Transfers wait for the computation.
        values_read: Values that sparse attention reads; 1: dense.
        gpus: Machines in a pipeline.

    Raises:
        InputError: a model or system that cannot be read, a word or a number that is not allowed.

    >>> import infer_jax as ij
    >>> best = ij.offload("opt-6.7b", "t4_host", isl=512, osl=32)
    >>> float(round(sum(best.block.placement["weights"].values()), 6))
    1.0
    """
    import numpy as np

    from infer_jax.estimators.offloading.search import search
    from infer_jax.verbs import inputs
    from infer_jax.verbs.offload_result import best_block, offloading

    setup = inputs.setup(config, hardware, quant, kv_dtype, price, set)
    name, arch = estimator or "offloading", setup.model.architecture
    model = offloading(name, setup)
    layers = sum(float(b.count) for b in arch.blocks)
    if gpus > layers:
        raise refuse("gpus", gpus, f"at most the {layers:g} layers")
    work = inputs.workload(isl, osl, 0.0)
    inputs.check_context(setup.model, work)
    plan = estimators.Offload.of(
        pp=gpus,
        schedule=schedule,
        overlap=float(not no_overlap),
        cpu_attention=float(not gpu_attention),
        compress_weights=float(compress in ("weights", "both")),
        compress_cache=float(compress in ("cache", "both")),
        values_read=values_read,
    )
    with busy("compiling and searching"):
        grid = search(model, arch, setup.hardware, work, plan)
    limit = seconds_of(latency)
    best, block = grid.best(limit), None
    if best is not None:
        here = {"gpu_batch": grid.gpu_batch[best], "batches": grid.batches[best]}
        plan = plan.replace(**{name: np.asarray(x) for name, x in here.items()})
        with busy("pricing the best block"):
            block = best_block(model, arch, setup.hardware, work, plan)
    return verbs.OffloadResult(setup, name, work, gpus, limit, grid, block)
