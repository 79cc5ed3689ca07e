"""The rules of TensorRT-LLM's scheduler."""

from infer_jax.errors import InputError
from infer_jax.replays.block_reuse import BlockReuse
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
    overlap: bool = True,
    drafts: float = 0,
    reuse: bool = False,
) -> WholeLife | Preempting:
    """TensorRT-LLM: in-flight batching; no eviction, or (``evicts``) the last request is paused.

    The names are ``max_num_tokens``, ``max_batch_size``, ``tokens_per_block``,
    ``enable_chunked_prefill``, ``capacity_scheduler_policy`` and ``disable_overlap_scheduler``
    (false by default). Sources: NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/batch_manager/
    capacityScheduler.cpp at 02a10fe and microBatchScheduler.cpp at 0a949d3: first come, first
    served; a prompt that is cut is cut at a multiple of a block. Overlap: tensorrt_llm/_torch/
    pyexecutor/py_executor.py at 4b7d719, ``_executor_loop_overlap``: a pass is scheduled and
    launched before the results of the one before it are read; a request whose last token is in
    flight is in no further pass (``GENERATION_TO_COMPLETE``), and counts as active until then.
    Drafts (``max_draft_len`` of MTP and of EAGLE in one model) count as tokens of a pass, 1 + k of
    each request that decodes (microBatchScheduler.cpp), and take no blocks beyond prompt and output
    (kvCacheManager.cpp at 002ba6a, ``getRemainingBlocksToCompletion``); put together ahead, a
    request is in one pass more unless the one that runs was wanted for one token
    (``willCompleteNextIteration``). ``reuse`` is ``enable_block_reuse``. Left out: overlap, drafts
    and reuse where requests are paused, drafts with reuse, prompts in equal progress, adapters,
    micro-batches of a pipeline, and prompts that would fit what is left of a unit after one was
    cut.

    >>> type(trtllm(blocks=1000)).__name__, type(trtllm(blocks=1000, evicts=True)).__name__
    ('WholeLife', 'Preempting')

    Raises:
        InputError: drafts or reuse where requests are paused, or drafts with reuse.
    """
    sizes = {
        "budget": budget, "slots": slots, "blocks": blocks, "block": block,
        "chunked": float(chunked), "unit": block,
    }  # fmt: skip
    if evicts and drafts:
        raise InputError("trtllm", "drafts", drafts, "0 where requests are paused")
    if reuse and (evicts or drafts):
        what = "requests are paused" if evicts else "tokens are drafted"
        raise InputError("trtllm", "reuse", True, f"no where {what}")
    if evicts:
        return Preempting.of(**sizes, hold=1)
    if reuse:
        return BlockReuse.of(**sizes, overlap=float(overlap))
    return WholeLife.of(**sizes, overlap=float(overlap), drafts=drafts)
