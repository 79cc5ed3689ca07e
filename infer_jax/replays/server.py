"""One server's loop: the pass that the scheduler has put together runs, up to the next event.

An iteration reads from the top of ``Server.iterate`` down: ``Scheduler.compose`` admits a request,
feeds a part of its prompt, or makes room by a preemption; once nothing more can be fed, ``plan``
finds how many passes run alike, and ``finish`` lets requests go that have their last token.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.replays.decode_run import LONGEST, StepTime, decode_run, run_time, steps_until
from infer_jax.replays.drafts import Drafted
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules
from infer_jax.replays.scheduler import Scheduler
from infer_jax.replays.state import (
    State,
    Unseen,
    catch_up,
    empty,
    get,
    where,
)


class ComposedPass(NamedTuple):
    """What a pass feeds, and whether there is nothing to feed."""

    prompts: Array
    decoding: Array
    context: Array
    over: Array  # decoding requests that have had their last token
    grows: Array  # tokens that a pass adds to the context of the other decoding requests
    idle: Array
    waits: Array  # idle until the results of the running pass are read


class PassRun(NamedTuple):
    """Passes that run up to the next event, or a wait for the next request."""

    steps: Array  # passes
    end: Array  # s
    last_poll: Array  # seconds from their begin until arrivals are polled last, or negative


class Server(NamedTuple):
    """One server's loop: the time of a pass, and the scheduler. Neither changes; ``State`` does."""

    step: StepTime
    scheduler: Scheduler

    @classmethod
    def of(
        cls, step: StepTime, rules: Rules, requests: Requests, concurrency: Array | None = None
    ) -> Self:
        """With numbers as arrays of the loop's types."""
        requests = jax.tree.map(jnp.asarray, requests)
        return cls(step, Scheduler(rules.integers(), requests, concurrency))

    @property
    def requests(self) -> Requests:
        """The requests that it serves."""
        return self.scheduler.requests

    def start(self, width: int, entries: int) -> State:
        """The server at time 0, with ``width`` slots and a path of ``entries`` entries."""
        rules, requests = self.scheduler.rules, self.requests
        kind = jnp.result_type(requests.arrival)
        s = empty(requests.prompt.shape[0], width, entries, kind, rules.sums)
        if requests.drafts is not None:
            s = Drafted.start(s)
        if requests.prefixes is not None:
            s = rules.cache.start(s, requests.prefixes)
        return rules.start(s)

    def is_busy(self, s: State) -> Array:
        """Whether requests are left, and entries of the path."""
        more = s.clock.finished < self.requests.count
        return more & (s.log.entries < s.log.path.time.shape[0])

    def iterate(self, s: State) -> State:
        """One iteration: feed a prompt, preempt, or run the pass that is put together."""
        s, again = self.scheduler.compose(s)
        batch, go = self.batch(s), ~again & self.is_busy(s)
        return self.advance(s, go, batch, self.plan(s, go & ~batch.idle, batch))

    def batch(self, s: State) -> ComposedPass:
        """What the pass that is put together feeds."""
        rules, clock, over = self.scheduler.rules, s.clock, s.unseen.over
        prompts = s.batch.tokens > 0
        decodes = True if rules.mixed else ~prompts
        decoding = jnp.where(decodes, s.slots.decoding + over, 0)
        context = jnp.where(decodes, s.slots.context + s.unseen.over_context, 0)
        idle = ~prompts & (s.slots.decoding + over == 0)
        # an engine that puts passes together ahead, and has none, waits for the one that runs
        unread = clock.last_poll < clock.now
        unread |= (clock.finished_seen < clock.finished) | (s.unseen.finished > 0)
        lags = (rules.overlap > 0) & unread
        over = jnp.where(decoding > 0, over, 0)
        grows = jnp.where(decodes, s.drafts.growth(s), 0)
        return ComposedPass(prompts, decoding, context, over, grows, idle, idle & lags)

    # how long it runs
    def plan(self, s: State, go: Array, batch: ComposedPass) -> PassRun:
        """Passes up to the next event, if (``go``) any run, or the wait for the next arrival."""
        rules, now, kind = self.scheduler.rules, s.clock.now, s.clock.now.dtype
        overlap, due = rules.overlap > 0, self.scheduler.arrives(s)
        longest, wakes = self.longest_run(s, batch.prompts, due), self.wakes(s, due)
        feeds = batch.decoding, batch.context, s.batch.tokens

        def several() -> PassRun:
            run = decode_run(self.step, *feeds, s.batch.pairs, longest, batch.grows)
            sooner = wakes & (due < run_time(run, longest.astype(kind)))
            arrival = lax.cond(sooner, lambda: steps_until(run, due), lambda: longest)
            first = self.first_poll(s, arrival, due)
            steps = jnp.where(wakes, jnp.minimum(longest, first), longest)
            last = self.last_poll(s, steps)
            last_poll = jnp.where(overlap | (last > 0), run_time(run, last.astype(kind)), -1.0)
            return PassRun(steps, now + run_time(run, steps.astype(kind)), last_poll)

        def single() -> PassRun:
            decoding, context, fed = (x.astype(kind) for x in feeds)
            seconds = jnp.asarray(self.step(decoding, context, fed, s.batch.pairs)).astype(kind)
            seconds += jnp.asarray(s.cache.fetched * rules.fetch).astype(kind)
            last_poll = jnp.where(self.last_poll(s, longest) > 0, seconds, -1.0)
            return PassRun(longest, now + seconds, jnp.where(overlap, 0.0, last_poll).astype(kind))

        def wait() -> PassRun:
            arrival = get(self.requests.arrival, s.queue.head)
            return PassRun(longest, jnp.maximum(now, arrival), jnp.zeros_like(now))

        # the one choice that is a branch: most iterations run one pass or none
        return lax.cond(go, lambda: lax.cond(longest > 1, several, single), wait)

    def first_poll(self, s: State, arrival: Array, due: Array) -> Array:
        """Passes until a request is polled that arrives ``due`` s from now, in pass ``arrival``.

        An engine that puts passes together ahead polls at the begin of each, for the next: who
        arrives in a pass is fed in the next but one.
        """
        rules, passes = self.scheduler.rules, s.clock.passes
        ahead = jnp.where(due > jnp.finfo(due.dtype).tiny, arrival + 1, 1)
        polls = lax.div(passes + arrival + rules.poll - 1, rules.poll) * rules.poll
        return jnp.where(rules.overlap > 0, ahead, polls - passes)

    def last_poll(self, s: State, steps: Array) -> Array:
        """Passes before the last poll of ``steps`` passes: the last multiple of ``rules.poll``."""
        rules, passes = self.scheduler.rules, s.clock.passes
        polls = lax.div(passes + steps, rules.poll) * rules.poll
        return jnp.where(rules.overlap > 0, steps - 1, polls - passes)

    def longest_run(self, s: State, prompts: Array, due: Array) -> Array:
        """Passes until the next event that is no arrival."""
        rules, queue = self.scheduler.rules, s.queue
        longest = jnp.minimum(s.slots.soonest - s.clock.steps, LONGEST)
        if rules.preempts:
            safe = jnp.minimum(longest, rules.safe_steps(s))
            longest = jnp.where(queue.preempted, 1, safe)
        if rules.requeues_last:
            longest = jnp.where(queue.blocked & queue.clearing, 1, longest)
        late = s.unseen.finished > 0
        waits = late & (due <= 0.0) if rules.mixed else late
        waits |= (s.unseen.over > 0) | s.cache.waits
        return jnp.where(prompts | waits, 1, jnp.maximum(longest, 1))

    def wakes(self, s: State, due: Array) -> Array:
        """Whether a request that arrives ends a row of passes."""
        # one that was refused ends admission: until then the engine tries without a free slot, too
        if self.scheduler.rules.requeues_last:
            return (due > 0.0) & ~s.queue.blocked
        return (due > 0.0) & (s.slots.running < self.scheduler.rules.slots)

    # what is then
    def advance(self, s: State, go: Array, batch: ComposedPass, run: PassRun) -> State:
        """The state after those passes, where ``go``, or after a wait for the pass that runs."""
        caught = go & batch.waits
        go &= ~caught
        after = self.finish(s, go, batch, run)
        # the slots are counted in every iteration, for prompts fed and requests preempted, too
        slots = {name: getattr(after.slots, name) for name in ("end", "sums", "soonest", "free")}
        after = where(go, after, s)
        after = where(caught, catch_up(after), after).update(slots=slots)
        cache = after.cache.finish(self.scheduler, s, after.clock.steps, go, caught)
        after = after._replace(cache=cache)
        path = s.log.path.write(s.log.entries, self.entry(s, after, batch, run))
        return after.update(log={"path": path, "entries": s.log.entries + go})

    def finish(self, s: State, go: Array, batch: ComposedPass, run: PassRun) -> State:
        """The state after passes, where ``go``, with those gone that have their last token."""
        rules, clock, slots, idle = self.scheduler.rules, s.clock, s.slots, batch.idle
        count, lags = jnp.where(go & ~idle, run.steps, 0), rules.overlap > 0
        steps = clock.steps + (count if rules.mixed else jnp.where(batch.decoding > 0, count, 0))
        done, decodes = go & (slots.end <= steps), ~batch.prompts & ~idle
        context = slots.context + (steps - clock.steps) * batch.grows
        s = s.drafts.launch(s, steps, go, decodes, lags)
        gone, others = self.scheduler.count(s, steps, done)
        # an engine that counts on a token of each pass knows which requests end
        over, over_context = (jnp.zeros_like(x) if rules.mixed else x for x in gone[:2])
        firsts = jnp.where(batch.prompts, s.batch.first_tokens, 0)
        unseen = Unseen(
            finished=gone.count, blocks=gone.blocks, next_blocks=gone.next_blocks, over=over,
            over_context=over_context, over_tokens=over, decoded=decodes, first_tokens=firsts,
        )  # fmt: skip
        polls = run.last_poll >= 0.0
        last_poll = jnp.where(polls, clock.now + run.last_poll, clock.last_poll)
        after = s._replace(
            slots=others._replace(
                running=slots.running - gone.count,
                decoding=slots.decoding + s.batch.prompts - gone.count,
                context=context + s.batch.contexts - gone.context,
                reserved=slots.reserved - (0 if rules.preempts else gone.next_blocks),
            ),
            unseen=jax.tree.map(lambda x: jnp.where(lags, x, jnp.zeros_like(x)), unseen),
        ).update(
            clock={
                "now": run.end,
                "last_poll": jnp.where(idle, run.end, last_poll),
                "finished_seen": jnp.where(idle | polls, clock.finished, clock.finished_seen),
                "finished": clock.finished + gone.count,
                "passes": clock.passes + count,
                "steps": steps,
                "entries": clock.entries + 1,
            },
            batch={"is_new": jnp.ones_like(s.batch.is_new)},
        )
        after = after.drafts.finish(after, slots.end, done, lags, knows_ends=rules.mixed)
        return rules.finish(s, after, gone.count, batch.prompts, idle)

    def entry(
        self, s: State, after: State, batch: ComposedPass, run: PassRun
    ) -> dict[str, Array | int]:
        """The entry of the path from a state to the one after it, for all columns that it has."""
        rules, now = self.scheduler.rules, s.clock.now
        return {
            "time": run.end, "decoding": batch.decoding, "over": batch.over,
            "context": batch.context, "fed": s.batch.tokens, "pairs": s.batch.pairs,
            "count": jnp.where(batch.idle, 0, run.steps), "steps": after.clock.steps,
            "woken_by": jnp.where(batch.idle & (run.end > now), s.queue.head, -1),
            "running": after.slots.running, "finished": after.clock.finished,
            "blocks": rules.used_blocks(after, self.requests), "grows": s.drafts.growth(s),
            "kept": after.cache.idle(rules), "fetching": s.cache.fetched * rules.fetch,
        }  # fmt: skip
