"""Rules of engines that decode in every pass, and feed chunks of prompts in the same one.

Cache is reserved for a whole request before it is admitted, or its blocks are taken as tokens come,
and the last request is preempted when they run out.
"""

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import Array

from infer_jax.replays.prefix_cache import PrefixCache
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules, ScheduledChunk
from infer_jax.replays.state import UNREACHED, State, get
from infer_jax.specs import number, spec

if TYPE_CHECKING:
    from infer_jax.replays.scheduler import Scheduler


@spec
class GuaranteedNoEvict(Rules):
    """Decodes first, then chunks of prompts; no request is ever preempted.

    TensorRT-LLM's GUARANTEED_NO_EVICT: requests in progress go on; a new one, in order of arrival,
    is taken in if the blocks to its end are free after those that all others will need, and the
    first that is not ends the search. Source: NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/batch_manager/
    capacityScheduler.cpp (GuaranteedNoEvictScheduler) at 02a10fe. Drafts take tokens of a pass and
    no blocks of their own: those to a request's end are of its prompt and output
    (kvCacheManager.cpp at 002ba6a, ``getRemainingBlocksToCompletion``).
    """

    can_draft = True

    def fits(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        taken = s.slots.reserved + s.unseen.blocks
        return taken + self.reserved_blocks(chunk) <= self.admission_blocks(s)

    def reserved_blocks(self, chunk: ScheduledChunk) -> Array:
        return self.blocks_of(chunk.whole + chunk.coming)

    def taken_blocks(self, s: State, requests: Requests) -> Array:
        return s.slots.reserved

    used_blocks = taken_blocks

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
    sums = ("last", "next")

    def fits(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        held = s.slots.reserved + s.unseen.next_blocks - chunk.hit.counted
        enough = held + self.reserved_blocks(chunk) <= self.admission_blocks(s)
        return jnp.logical_not(chunk.hit.waits) & enough

    taken_blocks = Rules.taken_blocks

    def used_blocks(self, s: State, requests: Requests) -> Array:
        taken = s.slots.sums.last + self.prompt_blocks(s, requests)
        return taken + s.unseen.blocks - s.cache.shared

    def leaving_blocks(self, s: State, last: Array, now: Array) -> tuple[Array, Array]:
        return self.blocks_of(last), s.slots.blocks

    def prompt_blocks(self, s: State, requests: Requests, more: Array | int = 0) -> Array:
        """All of the prompt has them."""
        whole = get(requests.prompt, jnp.maximum(s.batch.request, 0))
        return jnp.where(s.batch.request >= 0, self.blocks_of(whole), 0)


@spec
class Preempting(Rules):
    """Decodes first, then chunks of prompts; the last admitted is preempted and recomputed.

    vLLM V1 (vllm/v1/core/sched/scheduler.py at 00024d3, ``Scheduler.schedule``): running requests
    are scheduled in order of admission, each takes the blocks of its next tokens, and where none is
    free the last running one is preempted: it goes to the front of the queue, loses its cache and
    computes prompt and output anew. Waiting requests are admitted in order while tokens of the
    budget are left, unless the pass preempted one. Of the requests in order of arrival those that
    run are therefore always the first that have not finished.

    TensorRT-LLM's MAX_UTILIZATION (capacityScheduler.cpp at 02a10fe, MaxUtilizationScheduler) does
    the same, with the blocks of a whole prompt taken at once (``hold`` prompt).
    """

    hold: Array = number(
        "blocks of a prompt taken as its parts are computed, or all at once",
        kind="choice", choices=("part", "prompt"), default=0.0,
    )  # fmt: skip
    entire: Array = number(
        "whether the whole prompt must fit before its first part is fed",
        kind="choice", choices=("no", "yes"), default=1.0,
    )  # fmt: skip

    can_draft = True
    idle_polls = True
    cache = PrefixCache
    preempts = True
    sums = ("last", "next")

    # admission
    def fits(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        part = chunk.done + chunk.tokens
        tokens = jnp.where((self.entire > 0) | (self.hold > 0), chunk.whole, part)
        taken = self.taken_blocks(s, requests) + s.unseen.blocks - chunk.hit.used
        return taken + self.blocks_of(tokens) <= self.admission_blocks(s)

    def largest_blocks(self, prompt: Array, output: Array) -> Array:
        ahead = 2 + (self.overlap > 0)
        return self.blocks_of(prompt + output + ahead * self.drafts)

    # blocks in use
    def leaving_blocks(self, s: State, last: Array, now: Array) -> tuple[Array, Array]:
        held = self.blocks_of(last)
        return held, held

    def prompt_blocks(self, s: State, requests: Requests, more: Array | int = 0) -> Array:
        at = jnp.maximum(s.batch.request, 0)
        whole = get(requests.prompt, at) + s.queue.next_lost
        tokens = jnp.where(self.hold > 0, whole, s.batch.computed + more)
        return jnp.where(s.batch.request >= 0, self.blocks_of(tokens), 0)

    # preemption
    def is_short(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        more = jnp.where(chunk.begun, chunk.tokens, 0)
        wanted = self.decode_blocks(s) + self.prompt_blocks(s, requests, more)
        return (s.batch.tokens == 0) & (wanted > self.blocks)

    def victim(self, s: State, requests: Requests) -> tuple[Array, Array]:
        """The last that was admitted (vLLM: ``self.running.pop()``); no pass of it is unread."""
        slots = s.slots
        slot = jnp.argmax(jnp.where(slots.end < UNREACHED, slots.request, -1)).astype(jnp.int32)
        return slot, jnp.zeros_like(slot)

    def requeue(
        self, ctx: "Scheduler", s: State, after: State, victim: Array, slot: Array
    ) -> State:
        """At its front (vLLM: ``self.waiting.prepend_request``)."""
        return after.update(queue={"head": victim})
