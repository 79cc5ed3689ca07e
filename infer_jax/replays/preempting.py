"""Rules of engines that take blocks as tokens come, and preempt the last when they run out."""

import jax.numpy as jnp
from jax import Array

from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Feed, Rules
from infer_jax.replays.state import NEVER, State, get
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

    speculates = True
    alone = True
    keeps = True
    preempts = True
    sums = 2

    def watched(self, left: Array, before: Array, last: Array, now: Array) -> tuple[Array, ...]:
        """Blocks after the last step, and at the next one."""
        return self.needed(last), self.needed(now)

    def fits(self, s: State, requests: Requests, feed: Feed) -> Array:
        spare = jnp.where(s.running + s.late > 0, self.watermark, 0)
        part = feed.done + feed.chunk
        tokens = jnp.where((self.entire > 0) | (self.hold > 0), feed.whole, part)
        taken = self.taken(s, requests) + s.late_blocks
        if feed.found is not None:
            taken -= feed.found.used
        return taken + self.needed(tokens) <= self.blocks - spare

    def taken(self, s: State, requests: Requests) -> Array:
        return s.watched[1] + self.begun(s, requests) - self.shared(s)

    def leaving(self, s: State, last: Array, now: Array) -> tuple[Array, Array]:
        held = self.needed(last)
        return held, held

    def used(self, s: State, requests: Requests) -> Array:
        late = 0 if s.kept is None else s.late_blocks
        return s.watched[0] + self.begun(s, requests) + late - self.shared(s)

    def short(self, s: State, requests: Requests, feed: Feed) -> Array:
        more = jnp.where(feed.begun, feed.chunk, 0)
        wanted = s.watched[1] + self._part(s, requests, more) - self.shared(s)
        return (s.fed == 0) & (wanted + s.late_blocks > self.blocks)

    def victim(self, s: State, requests: Requests) -> Array:
        """The last that was admitted."""
        return jnp.argmax(jnp.where(s.ends < NEVER, s.who, -1)).astype(jnp.int32)

    def safe(self, s: State) -> Array:
        free = self.blocks - s.watched[1] - s.late_blocks + self.shared(s)
        if s.growth is not None:
            return self.drafted_steps_in(s, free)
        return self.steps_in(free, s.decoding)

    def largest(self, prompt: Array, output: Array) -> Array:
        ahead = 2 + (self.overlap > 0)
        return self.needed(prompt + output + ahead * self.drafts)

    def begun(self, s: State, requests: Requests) -> Array:
        return self._part(s, requests, s.steps * 0)

    def _part(self, s: State, requests: Requests, more: Array) -> Array:
        """Blocks of the prompt that is partly computed."""
        at = jnp.maximum(s.part, 0)
        whole = get(requests.prompt, at) + s.up_lost
        tokens = jnp.where(self.hold > 0, whole, s.part_done + more)
        return jnp.where(s.part >= 0, self.needed(tokens), 0)
