"""TensorRT-LLM's rules: cache is reserved for a whole request before it is admitted."""

import jax.numpy as jnp
from jax import Array

from infer_jax.replays.prefix_cache import PrefixCache
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules, ScheduledChunk
from infer_jax.replays.state import State, get
from infer_jax.specs import spec


@spec
class GuaranteedNoEvict(Rules):
    """Decodes first, parts of prompts beside them; no request is ever preempted.

    TensorRT-LLM's GUARANTEED_NO_EVICT: requests in progress go on; a new one, in order of arrival,
    is taken in if the blocks to its end are free after those that all others will need, and the
    first that is not ends the search. Source: NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/batch_manager/
    capacityScheduler.cpp (GuaranteedNoEvictScheduler) at 02a10fe. Drafts take tokens of a pass and
    no blocks of their own: those to a request's end are of its prompt and output
    (kvCacheManager.cpp at 002ba6a, ``getRemainingBlocksToCompletion``).
    """

    can_draft = True

    def fits(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        spare = jnp.where(s.slots.running + s.unseen.finished > 0, self.watermark, 0)
        taken = s.slots.reserved + s.unseen.blocks
        return taken + self.reserved_blocks(chunk) <= self.blocks - spare

    def reserved_blocks(self, chunk: ScheduledChunk) -> Array:
        return self.blocks_of(chunk.whole + chunk.coming)

    def taken_blocks(self, s: State, requests: Requests) -> Array:
        return s.slots.reserved

    def largest_blocks(self, prompt: Array, output: Array) -> Array:
        return self.blocks_of(prompt + output)


@spec
class BlockReuse(GuaranteedNoEvict):
    """The same where blocks of prompts that are found are shared.

    TensorRT-LLM with ``enable_block_reuse`` (cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp at
    b35ac1b, ``WindowBlockManager``): blocks to a request's end are set aside whatever is found
    (``getRemainingBlocksToCompletion``), and those that requests share count once from the next
    pass on; a new prompt takes tokens of the budget for all of it (microBatchScheduler.cpp at
    0a949d3). Blocks are taken for the whole prompt at its admission (``addSequence``), and found
    from when the prompt's last pass has been read (``storeContextBlocks``). A request whose next
    block another one computes waits for it (capacityScheduler.cpp at 02a10fe,
    ``beneficialToSkip``).
    """

    can_draft = False
    cache = PrefixCache
    found_once_read = True
    sums = 2

    def slot_sums(self, left: Array, before: Array, last: Array, now: Array) -> tuple[Array, ...]:
        """Blocks after the last step, and at the next one."""
        return self.blocks_of(last), self.blocks_of(now)

    def fits(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        spare = jnp.where(s.slots.running + s.unseen.finished > 0, self.watermark, 0)
        held = s.slots.reserved + s.unseen.next_blocks - chunk.hit.counted
        enough = held + self.reserved_blocks(chunk) <= self.blocks - spare
        return jnp.logical_not(chunk.hit.waits) & enough

    def taken_blocks(self, s: State, requests: Requests) -> Array:
        return s.slots.sums[1] + self.prompt_blocks(s, requests) - s.cache.shared

    def used_blocks(self, s: State, requests: Requests) -> Array:
        taken = s.slots.sums[0] + self.prompt_blocks(s, requests)
        return taken + s.unseen.blocks - s.cache.shared

    def leaving_blocks(self, s: State, last: Array, now: Array) -> tuple[Array, Array]:
        return self.blocks_of(last), s.slots.blocks

    def prompt_blocks(self, s: State, requests: Requests) -> Array:
        """All of the prompt has them."""
        whole = get(requests.prompt, jnp.maximum(s.batch.request, 0))
        return jnp.where(s.batch.request >= 0, self.blocks_of(whole), 0)
