"""``ij.kernels``: a pass as a sum of kernels, with time, work and bound of each."""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.compiling import once
from infer_jax.estimators import Estimate
from infer_jax.estimators.estimate import decode_context
from infer_jax.estimators.kernels import Kernels, KernelsPlan
from infer_jax.specs import Architecture, ForwardPass, Hardware, Workload
from infer_jax.verbs import inputs, options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.kernel_rows import Profile, profiled, rows
from infer_jax.verbs.kernels_result import STAGES, KernelsResult
from infer_jax.verbs.option import SHARE, Option, either
from infer_jax.verbs.progress import busy
from infer_jax.verbs.split import check_split


class KernelEstimate(NamedTuple):
    """The estimate, tokens of a prefill, the largest batch, kernels of both passes."""

    estimate: Estimate
    tokens: Array
    largest: Array
    profiles: dict[str, Profile]


@verb
def kernels(
    config: opt.Config,
    hardware: opt.System,
    *,
    tp: opt.Tp = 1.0,
    ep: opt.Ep = 1.0,
    nodes: Annotated[float | None, Option("Nodes of the instance.", "N", opt.WHOLE)] = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,
    osl: opt.Osl = 512,
    batch: opt.Batch = None,
    prefill_tokens: Annotated[
        float | None, Option("Tokens of a prefill pass a group.", "TOKENS", opt.WHOLE)
    ] = None,
    deepep: Annotated[bool, Option("Dispatch and combine by DeepEP.")] = False,
    two_batch: Annotated[bool, Option("Two micro-batches that overlap.")] = False,
    sm_share: Annotated[
        float, Option("SMs that compute while prefill dispatches.", "SHARE", SHARE)
    ] = 1.0,
    price: opt.Price = None,
    as_published: Annotated[bool, Option("The authors' assembly, with its quirks.")] = False,
    set: opt.Changes = None,
) -> KernelsResult:
    """What is each kernel's time, FLOP, bytes and bound; TTFT, TPOT and tokens/s per GPU?

    Raises:
        InputError: a model or system that cannot be read, a system without kernel curves, a
            split that no engine runs.

    >>> import infer_jax as ij
    >>> sums = ij.kernels("qwen3-30b-a3b", "h20_sxm", ep=4, batch=400)
    >>> {row["kernel"]: row["bound"] for row in sums.kernels["prefill"]}["attention"]
    'compute'
    """
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set)
    arch = asked.model.architecture
    tp, ep = either(tp, 1.0), either(ep, 1.0)
    check_split(arch, tp, 1.0, ep)
    name = "kernels.published" if as_published else "kernels"
    estimator = inputs.estimator(name, asked)
    assert isinstance(estimator, Kernels)
    ways = {"deepep": float(deepep), "two_batch": float(two_batch), "sm_share": sm_share}
    tokens = either(prefill_tokens, 0.0)
    plan = KernelsPlan.of(tp=tp, ep=ep, nodes=either(nodes, 0.0), prefill_tokens=tokens, **ways)
    work = inputs.workload(isl, osl, 0.0, either(batch, ep))
    inputs.check_context(asked.model, work)
    with busy("compiling and evaluating"):
        answer: KernelEstimate = once(_answer, estimator, arch, asked.hardware, work, plan)
    return KernelsResult(
        asked=asked,
        estimator=name,
        published=bool(estimator.published),
        workload=work,
        plan=plan,
        estimate=answer.estimate,
        prefill_tokens=answer.tokens,
        largest_batch=answer.largest,
        kernels={stage: rows(arch, answer.profiles[stage]) for stage in STAGES},
    )


def _answer(
    estimator: Kernels, arch: Architecture, hardware: Hardware, work: Workload, plan: KernelsPlan
) -> KernelEstimate:
    prompts = _prompts(work, plan)
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
    return KernelEstimate(
        estimator.estimate(arch, hardware, work, plan),
        prompts * work.isl,
        estimator.largest_batch(arch, hardware, work, plan),
        {stage: profiled(estimator, arch, hardware, f, plan) for stage, f in passes.items()},
    )


def _prompts(work: Workload, plan: KernelsPlan) -> Array:
    """Prompts of a prefill pass in all groups, as ``Kernels.estimate`` has them."""
    each = jnp.maximum(plan.prefill_tokens / jnp.maximum(work.isl, 1.0), 1.0)
    return each * plan.ep * (1.0 + plan.two_batch)
