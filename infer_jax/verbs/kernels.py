"""``ij.kernels``: a pass as a sum of kernels, with time, work and bound of each."""

from typing import Annotated

from infer_jax import verbs
from infer_jax.results.problems import refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import SHARE, Option, either
from infer_jax.verbs.progress import busy


@verb
def kernels(
    config: opt.Config,
    hardware: opt.System,
    *,
    tp: opt.Tp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,
    layout: opt.Layout = None,
    enable_expert_parallel: opt.ExpertParallel = False,
    enable_dp_attention: opt.DpAttention = False,
    nodes: Annotated[float | None, Option.of("N", opt.WHOLE)] = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,
    osl: opt.Osl = 512,
    batch: opt.Batch = None,
    prefill_tokens: Annotated[float | None, Option.of("TOKENS", opt.WHOLE)] = None,
    deepep: Annotated[bool, Option.of()] = False,
    two_batch: Annotated[bool, Option.of()] = False,
    sm_share: Annotated[float, Option.of("SHARE", SHARE)] = 1.0,
    price: opt.Prices = None,
    as_published: Annotated[bool, Option.of()] = False,
    set: opt.Changes = None,
) -> "verbs.KernelsResult":
    """What is each kernel's time, FLOP, bytes and bound; TTFT, TPOT and tokens/s per GPU?

    Args:
        nodes: Nodes of the instance.
        prefill_tokens: Tokens of a prefill pass a group.
        deepep: Dispatch and combine by DeepEP.
        two_batch: Two micro-batches that overlap.
        sm_share: SMs that compute while prefill dispatches.
        as_published: The authors' assembly, with its quirks.

    Raises:
        InputError: a model or system that cannot be read, a system without kernel curves, a
            split that no engine runs.

    >>> import infer_jax as ij
    >>> sums = ij.kernels("qwen3-30b-a3b", "h20_sxm", ep=4, batch=400)
    >>> {row["kernel"]: row["bound"] for row in sums.kernels["prefill"]}["attention"]
    'compute'
    """
    from infer_jax.estimators.kernels import Kernels, KernelsPlan
    from infer_jax.verbs import inputs
    from infer_jax.verbs.kernels_result import kernels_result

    setup = inputs.setup(config, hardware, quant, kv_dtype, price, set)
    arch = setup.model.architecture
    degrees = {"tp": tp, "ep": ep, "dp": dp}
    split = verbs.LayoutOptions.of(layout, degrees, enable_expert_parallel, enable_dp_attention)
    name = "kernels.published" if as_published else "kernels"
    estimator = inputs.estimator(name, setup)
    assert isinstance(estimator, Kernels)
    common = split.plan(arch, name)
    if common.pp > 1:
        raise refuse("layout", split.words, "one stage: kernels are of one")
    plan = KernelsPlan.of(
        tp=common.tp,
        ep=common.ep,
        nodes=either(nodes, 0.0),
        prefill_tokens=either(prefill_tokens, 0.0),
        deepep=float(deepep),
        two_batch=float(two_batch),
        sm_share=sm_share,
    )
    work = inputs.workload(isl, osl, 0.0, either(batch, float(plan.ep)))
    inputs.check_context(setup.model, work)
    with busy("compiling and evaluating"):
        return kernels_result(setup, name, estimator, work, plan)
