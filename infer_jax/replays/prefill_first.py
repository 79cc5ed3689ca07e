"""Rules of engines that stop decoding while a prompt can be computed."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import Array

from infer_jax.replays.drafts import tokens_to_come
from infer_jax.replays.radix_cache import RadixCache
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules, ScheduledChunk
from infer_jax.replays.state import UNREACHED, SlotSums, State, get, note, total
from infer_jax.specs import number, spec

if TYPE_CHECKING:
    from infer_jax.replays.scheduler import Scheduler

HAIR = 1e-6  # tokens


@spec
class PrefillFirst(Rules):
    """Passes feed prompts alone while any can be admitted, and decode otherwise.

    SGLang (python/sglang/srt/managers/schedule_policy.py at 00550cd, ``PrefillAdder``;
    scheduler.py, ``get_next_batch_to_run``; schedule_batch.py, ``retract_decode``). A request is
    admitted if its tokens to compute and to come (``clip`` at the most) are fewer than the free
    ones less a share (``new_token_ratio``) of what running requests have to come. It falls from
    ``ratio`` to ``least`` in ``decay`` decode passes. A request that does not fit, or finds no
    slot, ends admission until one has left and one more decode pass has run. Where the next tokens
    find no room, requests with the fewest tokens (of those the longest prompts) go back to the end
    of the queue, and the ratio becomes (tokens so far + ``ahead`` each) / (all tokens + 1) of the
    others. With drafts those go back whose prompts ended last, and a decode pass reserves
    ``drafts.reserved_tokens``.
    """

    ratio: Array = number("``new_token_ratio`` at the start", kind="fraction", high=1, default=0.7)
    least: Array = number("what it falls to", kind="fraction", high=1, default=0.098)
    decay: Array = number("decode passes in which it falls", kind="count", low=1, default=600.0)
    clip: Array = number("tokens to come counted at most", kind="count", default=4096.0)
    ahead: Array = number(
        "tokens of each that the ratio counts ahead after a retraction", kind="count", default=20.0
    )

    mixed = False
    can_draft = True
    cache = RadixCache
    preempts = True
    requeues_last = True
    sums = SlotSums._fields

    def start(self, s: State) -> State:
        return s.update(
            queue={"new_token_ratio": jnp.asarray(self.ratio, s.queue.new_token_ratio.dtype)}
        )

    # admission
    def fits(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        hit = chunk.hit
        taken = self.taken_blocks(s, requests) + s.unseen.blocks + hit.blocks - hit.used
        free = (self.blocks - taken) * self.block.astype(float)
        sums, unseen = s.slots.sums, s.unseen
        coming = jnp.where(unseen.decoded, sums.to_come_before, sums.to_come + unseen.first_tokens)
        coming += unseen.over_tokens
        rest = free - coming * s.queue.new_token_ratio - s.batch.total_token_offset
        wanted = chunk.whole - hit.blocks * self.block + jnp.minimum(chunk.coming, self.clip)
        # at a tie no request is admitted, whatever the digits of the offset are
        return wanted < rest - HAIR

    def largest_blocks(self, prompt: Array, output: Array) -> Array:
        """With the tokens that its admission wants free beside its own, and those of drafts."""
        ahead = jnp.where(self.drafts > 0, 2 * (1 + self.drafts), 0)
        return self.blocks_of(prompt + output + 1 + ahead)

    def prompt_budget(self, s: State) -> Array:
        return self.budget

    def budget_tokens(self, tokens: Array) -> Array:
        """Whole blocks (``ceil_paged_tokens``)."""
        return self.blocks_of(tokens) * self.block

    def update_prefill_budget(self, s: State, chunk: ScheduledChunk) -> dict[str, Array]:
        """``PrefillAdder._update_prefill_budget``: a page, and the output up to ``clip`` in whole.

        Less ``new_token_ratio`` of it, which ``fits`` counts of all that are in slots. Where the
        output is longer than ``clip``, a first token that was not read leaves as much to come.
        """
        coming = jnp.minimum(chunk.coming, self.clip)
        now, before = tokens_to_come(chunk.passes - 1, chunk.per_pass)
        left = jnp.where(s.unseen.decoded, before, now)
        counted = s.queue.new_token_ratio * jnp.minimum(left, self.clip)
        offset = self.block + jnp.where(chunk.cut, 0.0, coming - counted)
        batch = s.batch
        return {
            "first_tokens": batch.first_tokens + (~chunk.cut & (chunk.coming <= self.clip)),
            "total_token_offset": batch.total_token_offset
            + offset.astype(batch.total_token_offset.dtype),
        }

    # blocks in use
    def slot_sums(self, left: Array, before: Array, last: Array, now: Array) -> SlotSums:
        """Blocks after the last step and at the next, tokens to come, and those a step before."""
        clip = self.clip.astype(jnp.int32)
        verified = jnp.where((self.drafts > 0) & (self.overlap == 0), 1 + self.drafts, 0)
        following = self.blocks_of(now) + self.blocks_of(verified)
        tokens = jnp.minimum(left, clip), jnp.minimum(before, clip)
        return SlotSums(self.blocks_of(last), following, *tokens)

    def slot_tokens(self, s: State, steps: Array) -> tuple[Array, Array]:
        return s.drafts.reserved_tokens(s, steps, self)

    def taken_blocks(self, s: State, requests: Requests) -> Array:
        return s.slots.sums.last + self.prompt_blocks(s, requests) - s.cache.shared

    def leaving_blocks(self, s: State, last: Array, now: Array) -> tuple[Array, Array]:
        return self.blocks_of(last), self.blocks_of(now)

    # preemption
    def is_short(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        short = self.decode_blocks(s) > self.blocks
        return (s.batch.tokens == 0) & (s.slots.decoding > 1) & short

    def victim(self, s: State, requests: Requests) -> tuple[Array, Array]:
        """The fewest tokens so far; of those the longest prompt, then the last to arrive."""
        slot = self._victim_slot(s, requests)
        ready = get(s.log.ready, jnp.maximum(get(s.slots.request, slot), 0))
        return slot, self._runs_in_last(s, ready)

    def _victim_slot(self, s: State, requests: Requests) -> Array:
        there, who = s.slots.end < UNREACHED, jnp.maximum(s.slots.request, 0)
        if s.drafts.order is not None:  # whose prompt ended last
            return jnp.argmax(jnp.where(there, s.drafts.order, -1)).astype(jnp.int32)
        prompt = requests.prompt[who]
        tokens = s.drafts.output_tokens(s, requests, self._unread(s))
        fewest = there & (tokens == jnp.min(jnp.where(there, tokens, UNREACHED)))
        longest = fewest & (prompt == jnp.max(jnp.where(fewest, prompt, 0)))
        return jnp.argmax(jnp.where(longest, s.slots.request, -1)).astype(jnp.int32)

    def _unread(self, s: State) -> Array:
        """Whether each request has a token in the pass that runs while this one is composed."""
        return self._runs_in_last(s, s.log.ready[jnp.maximum(s.slots.request, 0)])

    def _runs_in_last(self, s: State, ready: Array) -> Array:
        ended = ready == s.clock.entries - 1
        return ((self.overlap > 0) & (s.unseen.decoded | ended)).astype(jnp.int32)

    def retracted_tokens(self, s: State) -> Array:
        """Tokens that a retraction evicts for those that remain: ``ahead`` each."""
        return self.ahead.astype(jnp.int32) * (s.slots.decoding - 1 + s.unseen.finished)

    def requeue(
        self, ctx: "Scheduler", s: State, after: State, victim: Array, slot: Array
    ) -> State:
        """At its end, and ``new_token_ratio`` is estimated anew."""
        queue, log = s.queue, s.log
        others, yes = queue.returned >= 0, jnp.ones_like(queue.blocked)
        return after.update(
            queue={
                "returned": jnp.where(others, queue.returned, victim),
                "returned_last": victim,
                "blocked": ~yes,
                "new_token_ratio": self._new_estimate_ratio(s, ctx.requests, slot),
            },
            log={
                "behind": note(log.behind, queue.returned_last, victim, others),
                "arrived_before": note(log.arrived_before, victim, ctx.arrived(s), yes),
            },
        )

    def _new_estimate_ratio(self, s: State, requests: Requests, slot: Array) -> Array:
        """``new_estimate_ratio`` of ``retract_decode``, of all that run but the one in ``slot``."""
        slots = s.slots
        output = requests.output[jnp.maximum(slots.request, 0)]
        rest = (slots.end < UNREACHED) & (jnp.arange(slots.request.shape[0]) != slot)
        tokens = s.drafts.output_tokens(s, requests, self._unread(s))
        so_far = total(jnp.where(rest, tokens + self.ahead, 0.0))
        ratio = so_far / (total(jnp.where(rest, output, 0)) + 1.0)
        return jnp.minimum(ratio, 1.0).astype(s.queue.new_token_ratio.dtype)

    # the end of a pass
    def finish(self, s: State, after: State, gone: Array, prompts: Array, idle: Array) -> State:
        # requests known to have left: all, or (overlap) those of the pass before,
        # which it reads after a decode pass alone
        queue, lags = s.queue, self.overlap > 0
        leaves = jnp.where(lags, s.unseen.finished, gone) > 0
        at_once = jnp.where(lags, False, leaves)
        cleared = jnp.where(prompts, at_once, queue.clearing)
        cleared |= jnp.where(lags, idle, after.slots.decoding == 0)
        still = jnp.where(lags, queue.clearing | leaves, queue.clearing)
        fall = (self.ratio - self.least) / self.decay * (after.clock.steps - s.clock.steps)
        ratio = jnp.maximum(queue.new_token_ratio - fall, self.least)
        ratio = jnp.where(queue.preempted, queue.new_token_ratio, ratio)
        ratio = jnp.where(idle, self.ratio, ratio)
        return after.update(
            queue={
                "blocked": queue.blocked & ~cleared,
                "clearing": jnp.where(prompts, still, leaves),
                "new_token_ratio": ratio.astype(queue.new_token_ratio.dtype),
            }
        )
