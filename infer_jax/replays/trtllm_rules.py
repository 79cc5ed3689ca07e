"""The rules of TensorRT-LLM's scheduler."""

from infer_jax.replays.preempting import Preempting
from infer_jax.replays.whole_life import WholeLife


def trtllm(
    *,
    blocks: float,
    budget: float = 8192,
    slots: float = 2048,
    block: float = 32,
    chunked: bool = False,
    evicts: bool = False,
) -> WholeLife | Preempting:
    """TensorRT-LLM: in-flight batching; no eviction, or (``evicts``) the last request is paused.

    The names are ``max_num_tokens``, ``max_batch_size``, ``tokens_per_block``,
    ``enable_chunked_prefill`` and ``capacity_scheduler_policy``. Sources: NVIDIA/TensorRT-LLM,
    cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp at 02a10fe and microBatchScheduler.cpp at
    0a949d3: first come, first served; a prompt that is cut is cut at a multiple of a block. Left
    out: reuse of blocks, prompts in equal progress, adapters, drafts, micro-batches of a pipeline,
    and prompts that would fit what is left of a unit after one was cut.

    >>> type(trtllm(blocks=1000)).__name__, type(trtllm(blocks=1000, evicts=True)).__name__
    ('WholeLife', 'Preempting')
    """
    sizes = {
        "budget": budget, "slots": slots, "blocks": blocks, "block": block,
        "chunked": float(chunked), "unit": block,
    }  # fmt: skip
    return Preempting.of(**sizes, hold=1) if evicts else WholeLife.of(**sizes)
