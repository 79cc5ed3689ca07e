"""The rules of vLLM's scheduler, with its own defaults."""

from infer_jax.replays.preempting import Preempting


def vllm(
    *,
    blocks: float,
    budget: float = 8192,
    slots: float = 1024,
    block: float = 16,
    chunked: bool = True,
    entire: bool = True,
    watermark: float = 0.0,
    overlap: bool = True,
    drafts: float = 0,
) -> Preempting:
    """vLLM V1: decodes first, parts of prompts beside them, the last one preempted.

    The names are ``max_num_batched_tokens``, ``max_num_seqs``, ``block_size``,
    ``enable_chunked_prefill``, ``scheduler_reserve_full_isl``, ``watermark`` (a share of the
    blocks) and ``async_scheduling`` (``overlap``; the default since 0.14.0). Sources: vllm-project/
    vllm, vllm/v1/core/sched/scheduler.py at 00024d3 (order, budget, preemption);
    vllm/config/scheduler.py and vllm/v1/core/kv_cache_manager.py at 6cf7b26 (a whole prompt's room,
    watermark, both younger than the first); vllm/v1/engine/core.py (``step_with_batch_queue``) and
    vllm/v1/core/sched/async_scheduler.py at 014b235 (overlap), pull request 27614 (its default).
    Prefix caches are in ``prefix_cache``. Left out: long prompts kept short by
    ``long_prefill_token_threshold``, priorities, connectors, and of overlap the pass too many of a
    request that ends by a stop word, and that a request whose last token is in flight may be
    preempted.

    >>> float(vllm(blocks=1000, watermark=0.01).watermark)
    10.0
    """
    sizes = {
        "budget": budget, "slots": slots, "blocks": blocks, "block": block,
        "chunked": float(chunked), "entire": float(entire), "watermark": int(watermark * blocks),
    }  # fmt: skip
    return Preempting.of(**sizes, overlap=float(overlap), drafts=drafts)
