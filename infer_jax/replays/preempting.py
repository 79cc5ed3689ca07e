"""Rules of engines that take blocks as tokens come, and preempt the last when they run out."""

import jax.numpy as jnp
from jax import Array

from infer_jax.replays.prefix_cache import PrefixCache
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules, ScheduledChunk
from infer_jax.replays.state import UNREACHED, State, get
from infer_jax.specs import number, spec


@spec
class Preempting(Rules):
    """Decodes first, parts of prompts beside them; the last admitted is computed anew later.

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
    idle_looks = True
    cache = PrefixCache
    preempts = True
    sums = 2

    # admit
    def fits(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        spare = jnp.where(s.slots.running + s.unseen.finished > 0, self.watermark, 0)
        part = chunk.done + chunk.tokens
        tokens = jnp.where((self.entire > 0) | (self.hold > 0), chunk.whole, part)
        taken = self.taken_blocks(s, requests) + s.unseen.blocks - chunk.hit.used
        return taken + self.blocks_of(tokens) <= self.blocks - spare

    def largest_blocks(self, prompt: Array, output: Array) -> Array:
        ahead = 2 + (self.overlap > 0)
        return self.blocks_of(prompt + output + ahead * self.drafts)

    # blocks that are taken
    def slot_sums(self, left: Array, before: Array, last: Array, now: Array) -> tuple[Array, ...]:
        """Blocks after the last step, and at the next one."""
        return self.blocks_of(last), self.blocks_of(now)

    def taken_blocks(self, s: State, requests: Requests) -> Array:
        return s.slots.sums[1] + self.prompt_blocks(s, requests) - s.cache.shared

    def used_blocks(self, s: State, requests: Requests) -> Array:
        taken = s.slots.sums[0] + self.prompt_blocks(s, requests)
        return taken + s.cache.unseen_blocks(s) - s.cache.shared

    def leaving_blocks(self, s: State, last: Array, now: Array) -> tuple[Array, Array]:
        held = self.blocks_of(last)
        return held, held

    def prompt_blocks(self, s: State, requests: Requests) -> Array:
        return self._part_blocks(s, requests, s.clock.steps * 0)

    def _part_blocks(self, s: State, requests: Requests, more: Array) -> Array:
        """Blocks of the prompt that is partly computed, with ``more`` tokens of it."""
        at = jnp.maximum(s.batch.request, 0)
        whole = get(requests.prompt, at) + s.queue.next_lost
        tokens = jnp.where(self.hold > 0, whole, s.batch.computed + more)
        return jnp.where(s.batch.request >= 0, self.blocks_of(tokens), 0)

    # make room
    def is_short(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        more = jnp.where(chunk.begun, chunk.tokens, 0)
        wanted = s.slots.sums[1] + self._part_blocks(s, requests, more) - s.cache.shared
        return (s.batch.tokens == 0) & (wanted + s.unseen.blocks > self.blocks)

    def victim(self, s: State, requests: Requests) -> Array:
        """The last that was admitted."""
        slots = s.slots
        return jnp.argmax(jnp.where(slots.end < UNREACHED, slots.request, -1)).astype(jnp.int32)

    def safe_steps(self, s: State) -> Array:
        free = self.blocks - s.slots.sums[1] - s.unseen.blocks + s.cache.shared
        return self.steps_in(s, free)
