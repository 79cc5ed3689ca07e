"""The scheduler: it admits requests, feeds their prompts to a pass, and preempts requests.

An iteration of the loop feeds a part of a prompt to the pass that is put together, or preempts a
request; if nothing more can be fed, the pass runs (``Server``). What most iterations do not need is
in a loop of one iteration or none. All else is decided by choices between numbers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.replays.drafts import tokens_to_come
from infer_jax.replays.prefix_cache import CacheHit
from infer_jax.replays.requests import FAR_FUTURE, Requests
from infer_jax.replays.rules import Rules, ScheduledChunk
from infer_jax.replays.state import (
    UNREACHED,
    Departures,
    Slots,
    State,
    change_where,
    count_slots,
    get,
    note,
    put,
    where,
)


class Scheduler(NamedTuple):
    """Rules, requests, and how many of these may be in flight; none of it changes."""

    rules: Rules
    requests: Requests
    concurrency: Array | None

    def compose(self, s: State) -> tuple[State, Array]:
        """Feed a part of a prompt or preempt; whether that goes on before the pass can run."""
        rules = self.rules
        s, chunk, ok = self.admit(self.begin(s))
        short = passed = jnp.zeros_like(ok)
        if rules.preempts:
            short = rules.is_short(s, self.requests, chunk)
        if rules.requeues_last:
            short &= ~ok
        elif rules.preempts:  # the queue's head was preempted and has finished since
            over = s.queue.head_last <= s.clock.steps
            passed = ~short & over & (s.queue.head < self.requests.count)
        # the arrays of requests are written where they are: a choice between two would copy them
        ok &= ~(short | passed)
        s = change_where(ok, s, lambda s: self.feed(s, chunk))
        if rules.preempts:
            s = s.update(queue={"head": self.following(s.queue.head, passed)})
            s = change_where(short, s, self.make_room)
        s = self.read_next(s)
        return s, ok & self.may_feed(s) | short | passed

    def begin(self, s: State) -> State:
        """A new pass: its budget, and a poll for arrivals."""
        clock, batch, is_new = s.clock, s.batch, s.batch.is_new
        polls = is_new & (lax.rem(clock.passes, self.rules.poll) == 0) & (self.rules.overlap == 0)
        fresh = jax.tree.map(jnp.zeros_like, batch)._replace(
            left=self.rules.prompt_budget(s), request=batch.request, computed=batch.computed
        )
        return s._replace(batch=where(is_new, fresh, batch)).update(
            clock={
                "last_poll": jnp.where(polls, clock.now, clock.last_poll),
                "finished_seen": jnp.where(polls, clock.finished, clock.finished_seen),
            },
            queue={"preempted": s.queue.preempted & ~is_new},
        )

    def admit(self, s: State) -> tuple[State, ScheduledChunk, Array]:
        """The part of a prompt that comes next, and whether it can be fed."""
        rules = self.rules
        cache, hit = s.cache.look_up(self, s)
        s = s._replace(cache=cache)
        chunk = self.candidate(s, hit)
        fits = chunk.waits & rules.admits(s) & rules.fits(s, self.requests, chunk)
        ok = (chunk.tokens > 0) & (chunk.begun | fits)
        if rules.requeues_last:
            # the pass has tokens for the request that waits, and no place or blocks
            tried = chunk.waits & ~chunk.begun & (s.batch.left > 0) & ~s.queue.preempted
            refused = tried & ~ok
            s = s.update(queue={"blocked": s.queue.blocked | refused})
        return s, chunk, ok

    def candidate(self, s: State, hit: CacheHit) -> ScheduledChunk:
        """The part of a prompt that would be fed next: of the one begun, or of the queue."""
        rules, batch, at = self.rules, s.batch, s.queue.next
        begun = batch.request >= 0
        whole = get(self.requests.prompt, at) + s.queue.next_lost
        coming = get(self.requests.output, at) - s.queue.next_lost
        passes, per_pass = s.drafts.next_passes(self.requests, at, coming)
        done = jnp.where(begun, batch.computed, hit.tokens)
        rest = whole - done
        counted = jnp.where(begun, rest, whole) if rules.found_once_read else rest
        cut = batch.left < rules.budget_tokens(counted)
        part = jnp.where(rules.chunked > 0, lax.div(batch.left, rules.unit) * rules.unit, 0)
        cost = jnp.where(cut, part, counted)
        tokens = jnp.minimum(cost, rest)
        return ScheduledChunk(
            request=at, begun=begun, waits=self.waits(s), whole=whole, passes=passes,
            coming=coming, done=done, tokens=tokens, cut=tokens < rest, cost=cost, hit=hit,
            per_pass=per_pass,
        )  # fmt: skip

    def waits(self, s: State) -> Array:
        """Whether there is a request that the engine has seen, and that does not run."""
        return (self.arrives(s) <= 0.0) | s.queue.next_returns

    def may_feed(self, s: State) -> Array:
        """Whether another prompt might be fed to the pass, which the next iteration decides."""
        return (s.batch.left > 0) & (s.batch.request < 0) & self.waits(s)

    def feed(self, s: State, chunk: ScheduledChunk) -> State:
        """The state with a part of a prompt in the pass."""
        rules, queue, slots, batch, log = self.rules, s.queue, s.slots, s.batch, s.log
        new, ends, at = ~chunk.begun, ~chunk.cut, chunk.request
        blocks, tokens = rules.reserved_blocks(chunk), chunk.whole + 1
        ready = s.clock.steps + (1 if rules.mixed else 0)
        end = ready + chunk.passes - 1
        slot = jnp.minimum(slots.free, slots.request.shape[0] - 1)
        returned, from_head = queue.returned, new
        if rules.requeues_last:
            rest = jnp.where(returned == queue.returned_last, -1, get(log.behind, returned))
            returned = jnp.where(new & queue.next_returns, rest, returned)
            from_head = new & ~queue.next_returns
        pairs = chunk.tokens * (chunk.done.astype(batch.pairs.dtype) + 0.5 * chunk.tokens)
        once = new & ~queue.next_preempted if rules.preempts else new
        first = ends & (queue.next_lost == 0) if rules.preempts else ends
        return s.update(
            queue={
                "head": self.following(queue.head, from_head),
                "returned": returned,
                "computed": queue.computed + jnp.where(ends, chunk.whole, 0),
            },
            slots={
                "request": put(slots.request, slot, at, ends),
                "end": put(slots.end, slot, end, ends),
                "base": put(slots.base, slot, tokens - ready, ends),
                "blocks": put(slots.blocks, slot, blocks, ends),
                "running": slots.running + new,
                "reserved": slots.reserved + jnp.where(new, blocks, 0),
            },
            batch={
                "left": batch.left - rules.budget_tokens(chunk.cost),
                "tokens": batch.tokens + chunk.tokens,
                "pairs": batch.pairs + pairs,
                "prompts": batch.prompts + ends,
                "contexts": batch.contexts + jnp.where(ends, tokens, 0),
                **rules.update_prefill_budget(s, chunk),
                "request": jnp.where(chunk.cut, at, -1),
                "computed": jnp.where(chunk.cut, chunk.done + chunk.tokens, batch.computed),
            },
            log={
                "admitted": note(log.admitted, at, s.clock.entries, once),
                "first": note(log.first, at, s.clock.entries, first),
                "ready": note(log.ready, at, s.clock.entries, ends),
                "last": note(log.last, at, end, ends),
            },
        )._replace(
            drafts=s.drafts.admit(chunk, slot, ready),
            cache=s.cache.admit(self, s, chunk, new, once),
        )

    def make_room(self, s: State) -> State:
        """The state after a request was preempted: it is recomputed later."""
        rules, queue, slots, batch, log = self.rules, s.queue, s.slots, s.batch, s.log
        yes, steps = jnp.ones_like(queue.blocked), s.clock.steps
        slot, unread = rules.victim(s, self.requests)
        begun = batch.request >= 0 if rules.mixed else jnp.zeros_like(yes)
        decodes = ~begun
        victim = jnp.where(begun, batch.request, get(slots.request, slot))
        cached = get(slots.base, slot) + steps - 1
        cached = jnp.where(begun, batch.computed, cached)
        lost = get(s.drafts.output_tokens(s, self.requests, unread), slot)
        context = jnp.where(decodes, get(s.drafts.context(s, steps), slot), 0)
        anew = jnp.where(decodes, get(self.requests.prompt, victim) + lost, 0)
        after = s.update(
            queue={"preempted": yes, "computed": queue.computed - anew},
            slots={
                "end": put(slots.end, slot, jnp.asarray(UNREACHED), decodes),
                "running": slots.running - 1,
                "decoding": slots.decoding - decodes,
                "context": slots.context - context,
            },
            batch={"request": jnp.where(begun, -1, batch.request)},
            log={
                "produced": note(log.produced, victim, lost, decodes),
                "last": note(log.last, victim, jnp.asarray(UNREACHED), decodes),
                "preempted": put(log.preempted, victim, get(log.preempted, victim) + 1),
            },
        )._replace(cache=s.cache.preempt(self, s, victim, cached))
        left = get(slots.end, slot) - steps + unread
        after = after.drafts.preempt(after, slot, left, unread, decodes)
        return rules.requeue(self, s, after, victim, slot)

    def read_next(self, s: State) -> State:
        """The state with what it needs to know of the next request and of the head of the queue.

        It is read here, once all is written: XLA copies an array that is read beside a write.
        """
        queue, log = s.queue, s.log
        at, returns = queue.head, queue.next_returns
        if self.rules.requeues_last:
            first = queue.returned
            returns = (first >= 0) & (get(log.arrived_before, first) <= queue.head)
            at = jnp.where(returns, first, at)
        at = jnp.where(s.batch.request >= 0, s.batch.request, at)
        s = s.update(queue={"next": at, "next_returns": returns})
        s = s._replace(drafts=s.drafts.read_next(log, at))
        if not self.rules.preempts:
            return s
        return s.update(
            queue={
                "next_lost": get(log.produced, at),
                "next_preempted": get(log.preempted, at) > 0,
                "head_last": get(log.last, queue.head),
            }
        )

    def count(self, s: State, steps: Array, done: Array) -> tuple[Departures, Slots]:
        """Slots at step ``steps``: those that are ``done``, and the others."""
        rules, slots = self.rules, s.slots
        held = rules.slot_tokens(s, steps)
        sums = rules.slot_sums(*tokens_to_come(slots.end - steps, s.drafts.per_pass), *held)
        blocks = rules.leaving_blocks(s, *held)
        return count_slots(slots, done, s.drafts.context(s, steps), blocks, sums)

    def recount(self, s: State) -> State:
        """The state with its slots counted anew, once requests were put there or taken out."""
        none = jnp.zeros_like(s.slots.end, bool)
        return s._replace(slots=self.count(s, s.clock.steps, none)[1])

    def following(self, head: Array, ok: Array) -> Array:
        """The head of the queue once that one is taken, where ``ok``."""
        if self.requests.following is None:
            return head + ok
        return jnp.where(ok, get(self.requests.following, head), head)

    def receive(self, s: State, at: Array, ok: Array) -> State:
        """A server that has one more request behind all others, where ``ok``.

        It is new, so that nothing is read of it: XLA would copy the arrays of all requests.
        """
        queue, none = s.queue, self.requests.count
        alone = ok & (queue.head >= none)
        is_next = alone & (queue.next >= none)
        new = queue._replace(
            next=at, next_lost=jnp.zeros_like(at), next_preempted=jnp.zeros_like(alone)
        )
        s = s._replace(queue=where(is_next, new, queue), drafts=s.drafts.receive(is_next))
        return s.update(
            queue={
                "head": jnp.where(alone, at, queue.head),
                "head_last": jnp.where(alone, UNREACHED, queue.head_last),
            }
        )

    def arrives(self, s: State) -> Array:
        """Seconds until the next request arrives; 0 or less if the engine has seen it."""
        clock, head = s.clock, s.queue.head
        kind = clock.now.dtype
        at, soon = get(self.requests.arrival, head), jnp.finfo(kind).tiny
        due = jnp.where(at <= clock.last_poll, 0.0, jnp.maximum(at - clock.now, soon))
        if self.concurrency is None:
            return due
        more = head < self.requests.count
        is_seen = more & (head < self.concurrency + clock.finished_seen)
        is_sent = more & (head < self.concurrency + clock.finished)
        later = jnp.where(is_sent, soon, FAR_FUTURE).astype(kind)
        return jnp.maximum(due, jnp.where(is_seen, 0.0, later))

    def arrived(self, s: State) -> Array:
        """Requests that have arrived, as the engine has seen."""
        count = jnp.searchsorted(self.requests.arrival, s.clock.last_poll, side="right")
        count = count.astype(jnp.int32)
        if self.concurrency is None:
            return count
        return jnp.minimum(count, self.concurrency + s.clock.finished_seen)
