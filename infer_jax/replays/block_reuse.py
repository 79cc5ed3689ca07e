"""Rules of engines that reserve whole lives, and keep prompts in blocks that others use again."""

import jax.numpy as jnp
from jax import Array

from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Feed
from infer_jax.replays.state import State, get
from infer_jax.replays.whole_life import WholeLife
from infer_jax.specs import spec


@spec
class BlockReuse(WholeLife):
    """Whole lives are reserved, and blocks of prompts that are found are shared.

    TensorRT-LLM with ``enable_block_reuse`` (cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp at
    b35ac1b, ``WindowBlockManager``): blocks to a request's end are set aside whatever is found
    (``getRemainingBlocksToCompletion``), and those that requests share count once from the next
    pass on; a new prompt takes tokens of the budget for all of it (microBatchScheduler.cpp at
    0a949d3). Blocks are taken for the whole prompt at its admission (``addSequence``), and found
    from when the prompt's last pass has been read (``storeContextBlocks``). A request whose next
    block another one computes waits for it (capacityScheduler.cpp at 02a10fe,
    ``beneficialToSkip``).
    """

    speculates = False
    keeps = True
    stores = True
    sums = 2

    def watched(self, left: Array, before: Array, last: Array, now: Array) -> tuple[Array, ...]:
        """Blocks after the last step, and at the next one."""
        return self.needed(last), self.needed(now)

    def fits(self, s: State, requests: Requests, feed: Feed) -> Array:
        spare = jnp.where(s.running + s.late > 0, self.watermark, 0)
        held, waits = s.held + s.late_more, jnp.asarray(False)
        if feed.found is not None:
            waits = feed.found.waits
            held -= feed.found.counted
        return ~waits & (held + self.set_aside(feed) <= self.blocks - spare)

    def taken(self, s: State, requests: Requests) -> Array:
        return s.watched[1] + self._part(s, requests) - self.shared(s)

    def leaving(self, s: State, last: Array, now: Array) -> tuple[Array, Array]:
        return self.needed(last), s.size

    def used(self, s: State, requests: Requests) -> Array:
        return s.watched[0] + self._part(s, requests) + s.late_blocks - self.shared(s)

    def _part(self, s: State, requests: Requests) -> Array:
        """Blocks of the prompt that is partly computed: all of it has them."""
        whole = get(requests.prompt, jnp.maximum(s.part, 0))
        return jnp.where(s.part >= 0, self.needed(whole), 0)
