"""Does it fit? The memory of one GPU under a plan, and what a vLLM server prints about it."""

from typing import Self

import jax.numpy as jnp
from jax import Array

from infer_jax.physics import capacity, paging
from infer_jax.physics.decoder import total
from infer_jax.physics.numerics import Smoothing
from infer_jax.specs import Architecture, Hardware, Plan, Spec, check_arguments, number, part, spec

GIB = 2.0**30


@spec
class Engine(Spec):
    """What a user sets on the command line of the server.

    The defaults of vLLM 0.9 to 0.20 on a GPU of 70 GiB and more; on smaller ones and on the
    A100 ``batched_tokens`` is 2048 and ``sequences`` 256 (vllm/engine/arg_utils.py).
    """

    utilization: Array = number(
        "share of the memory the server may use", kind="fraction", high=1, default=0.9
    )
    context: Array = number(
        "longest request, max_model_len", unit="tokens", kind="count", low=1, default=8192.0
    )
    batched_tokens: Array = number(
        "tokens of one pass at most, max_num_batched_tokens",
        unit="tokens",
        kind="count",
        low=1,
        default=8192.0,
    )
    sequences: Array = number(
        "sequences of one pass at most, max_num_seqs", kind="count", low=1, default=1024.0
    )
    block: Array = number("tokens of a block", unit="tokens", kind="count", low=1, default=16.0)
    state_pages: Array = number(
        "copies of the recurrent state per request: 1, or 2 where prefixes are cached",
        kind="count",
        low=1,
        default=1.0,
    )


@spec
class Overheads(Spec):
    """What a version of vLLM takes beside weights and cache. Each is a measurement.

    ``visible``: 79.18 GiB that CUDA reports over 80 GB of the data sheet (H100). ``logits``:
    the sampler's copies, 2 + 4 bytes for the logits in 16 and in 32 bits, 4 + 4 for
    probabilities and noise, about 1 for masks. Source of the defaults: start-up log of
    Llama-3.1-8B on the H100 at vLLM 0.19.0 with tp 1 and 2, in llm-d-incubation/llm-d-planner,
    accuracy/ (1.89 GiB of activations; 0.25 and 2.07 GiB outside PyTorch).
    """

    visible: Array = number(
        "memory that the driver shows, over that of the data sheet",
        kind="fraction",
        default=79.18 * GIB / 80e9,
    )
    context: Array = number(
        "memory outside PyTorch on a rank alone", unit="bytes", kind="size", default=0.25 * GIB
    )
    collectives: Array = number(
        "more of it where ranks of tp or ep communicate",
        unit="bytes",
        kind="size",
        default=1.82 * GIB,
    )
    logits: Array = number(
        "peak of sampling, per sequence and entry of the vocabulary",
        unit="bytes",
        kind="size",
        default=15.0,
    )
    graphs: Array = number(
        "set aside for CUDA graphs before the cache is sized",
        unit="bytes",
        kind="size",
        default=0.0,
    )

    multiple: Array = number(
        "what 4-bit kernels round the width of experts up to a multiple of",
        kind="count",
        low=1,
        default=256.0,
    )

    @classmethod
    def vllm_0_10(cls) -> Self:
        """vLLM 0.10 to 0.16: the sampler sorts the vocabulary, which more than doubles its peak.

        Source: Llama-3.1-8B on the H100 (4.76 GiB of activations, 0.13 GiB outside PyTorch)
        and Llama-3.3-70B at tp 2 (0.55 GiB), in llm-d/llm-d-benchmark,
        config_explorer/empirical-vllm-memory-results.md.
        """
        return cls.of(context=0.13 * GIB, collectives=0.42 * GIB, logits=38.4)

    @classmethod
    def vllm_0_17(cls) -> Self:
        """vLLM 0.17: no sort any more (Qwen3-14B in llm-d-planner: 5.64, then 2.23 GiB)."""
        return cls.of(context=0.13 * GIB, collectives=0.42 * GIB)

    @classmethod
    def vllm_0_18(cls) -> Self:
        """vLLM 0.18 to 0.20, the default."""
        return cls.of()

    @classmethod
    def vllm_0_21(cls) -> Self:
        """vLLM 0.21 and later, which set an estimate for CUDA graphs aside.

        1.04 GiB, the mean of the graphs of 58 runs on the H100 at 0.19.0, where they are not
        yet subtracted (0.51 to 1.85 GiB; llm-d-planner); less with few sequences.
        """
        return cls.of(graphs=1.04 * GIB)


@spec
class Memory(Spec):
    """One GPU's memory in bytes, and what the cache in it holds.

    Where weights and reserves leave no room, ``available`` and all that follows from it are
    negative; ``slack`` tells by how many bytes. ``tokens`` and ``concurrency`` are of one
    group of tp x pp chips: an instance has ep of them and a deployment dp instances.
    """

    weights: dict[str, Array] = part("bytes of weights by kind, as decoder.weight_bytes")
    visible: Array = number("memory that the driver shows", unit="bytes", kind="capacity")
    budget: Array = number("what the server may use of it", unit="bytes", kind="capacity")
    activations: Array = number("peak of the profiling pass", unit="bytes", kind="size")
    reserve: Array = number("CUDA context, collectives, graphs", unit="bytes", kind="size")
    available: Array = number("left for the cache", unit="bytes", kind="size")
    token_bytes: Array = number(
        "cache that a token adds while inside all windows", unit="bytes", kind="size"
    )
    request_bytes: Array = number(
        "cache that a request of the longest context takes", unit="bytes", kind="size"
    )
    slack: Array = number(
        "available less one such request: at 0 and above it fits", unit="bytes", kind="size"
    )
    blocks: Array = number("blocks of the paged cache", kind="count")
    tokens: Array = number(
        "printed as GPU KV cache size; full of requests of the longest context",
        unit="tokens",
        kind="count",
    )
    concurrency: Array = number(
        "printed as maximum concurrency: requests of the longest context", kind="count"
    )

    @property
    def weight_bytes(self) -> Array:
        """Bytes of weights of all kinds."""
        return total(self.weights.values())

    @property
    def fits(self) -> Array:
        """Whether the server starts: one request of the longest context has room."""
        return self.slack >= 0


def memory(
    arch: Architecture,
    hardware: Hardware,
    plan: Plan,
    engine: Engine | None = None,
    overheads: Overheads | None = None,
    smoothing: Smoothing = None,
) -> Memory:
    """What one GPU holds under ``plan``, in bytes, tokens and requests.

    available = utilization * visible - weights - activations - reserve, cut into blocks. Pure
    and differentiable; floors are exact (gradient 0 between steps) unless ``smoothing`` is
    given, and absent at 1. Not counted: vision towers, draft models, adapters, rotary tables.
    Source: vLLM, v1/worker/gpu_worker.py (v0.19); see docs/memory.md for measured errors.

    Raises:
        InputError: an argument that is not of its class.

    >>> import infer_jax as ij
    >>> system, model = ij.load_system("h100_sxm"), ij.load_model("llama-3.1-8b")
    >>> held = memory(model.architecture, system.hardware, ij.Plan.of(tp=1))
    >>> bool(held.fits), round(float(held.token_bytes))
    (True, 131072)
    """
    check_arguments("memory", arch=arch, hardware=hardware, plan=plan)
    engine = Engine() if engine is None else engine
    overheads = Overheads() if overheads is None else overheads
    weights = capacity.weight_bytes(arch, plan, overheads.multiple)
    activations = capacity.activation_peak(
        arch, plan, engine.batched_tokens, engine.sequences, overheads.logits
    )
    spoken = jnp.where(plan.tp * plan.ep > 1.0, overheads.collectives, 0.0)
    reserve = overheads.context + spoken + overheads.graphs
    visible = hardware.chip.memory * overheads.visible
    budget = engine.utilization * visible
    available = budget - total(weights.values()) - activations - reserve

    layers = paging.kinds(arch, plan)
    cut = paging.paging(
        layers,
        engine.block,
        engine.context,
        engine.batched_tokens,
        engine.state_pages,
        smoothing,
    )
    blocks = paging.blocks(available, cut, smoothing)
    request_bytes = cut.request_blocks * cut.block_bytes
    return Memory(
        weights=weights,
        visible=visible,
        budget=budget,
        activations=activations,
        reserve=reserve,
        available=available,
        token_bytes=total(kind.count * kind.token for kind in layers),
        request_bytes=request_bytes,
        slack=available - request_bytes,
        blocks=blocks,
        tokens=paging.tokens(blocks, cut, engine.context, smoothing),
        concurrency=paging.concurrency(blocks, cut),
    )
