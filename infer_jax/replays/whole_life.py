"""Rules of engines that reserve cache for a whole request before they admit it."""

import jax.numpy as jnp
from jax import Array

from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Feed, Rules
from infer_jax.replays.state import State
from infer_jax.specs import spec


@spec
class WholeLife(Rules):
    """Decodes first, parts of prompts beside them; no request is ever preempted.

    TensorRT-LLM's GUARANTEED_NO_EVICT: requests in progress go on; a new one, in order of arrival,
    is taken in if the blocks to its end are free after those that all others will need, and the
    first that is not ends the search. Source: NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/batch_manager/
    capacityScheduler.cpp (GuaranteedNoEvictScheduler) at 02a10fe. Drafts take tokens of a pass and
    no blocks of their own: those to a request's end are of its prompt and output
    (kvCacheManager.cpp at 002ba6a, ``getRemainingBlocksToCompletion``).
    """

    speculates = True

    def fits(self, s: State, requests: Requests, feed: Feed) -> Array:
        spare = jnp.where(s.running + s.late > 0, self.watermark, 0)
        return s.held + s.late_blocks + self.set_aside(feed) <= self.blocks - spare

    def set_aside(self, feed: Feed) -> Array:
        return self.needed(feed.whole + feed.coming)

    def taken(self, s: State, requests: Requests) -> Array:
        return s.held

    def largest(self, prompt: Array, output: Array) -> Array:
        return self.needed(prompt + output)
