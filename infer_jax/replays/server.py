"""One server's loop: the pass that the scheduler has put together runs, up to the next event."""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.replays import drafts as drafting
from infer_jax.replays.decode_run import LONGEST, StepTime, decode_run, run_time, steps_until
from infer_jax.replays.drafts import start_drafts, tokens_to_come
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules
from infer_jax.replays.scheduler import Scheduler
from infer_jax.replays.state import UNREACHED, State, catch_up, departures, empty, get, put, where


class ComposedPass(NamedTuple):
    """What a pass feeds, and whether there is nothing to feed."""

    prompts: Array
    decoding: Array
    context: Array
    over: Array  # decoding requests that have had their last token
    grows: Array  # tokens that a pass adds to the context of the other decoding requests
    idle: Array
    waits: Array  # idle until the results of the running pass are read


class RunLength(NamedTuple):
    """Passes that run up to the next event, how long they take, and when the engine polls last."""

    steps: Array  # passes
    seconds: Array
    last_poll: Array  # seconds from their begin until arrivals are polled last, or negative


class PassRun(NamedTuple):
    """Passes that run, or a wait for the next request."""

    steps: Array  # passes
    end: Array  # s
    last_poll: Array  # seconds from their begin until arrivals are polled last, or negative
    woken_by: Array  # the request whose arrival ended a wait, or -1


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
        s = start_drafts(s, requests.drafts, width)
        if requests.prefixes is not None:
            s = rules.cache.start(s, requests.prefixes, width)
        return rules.start(s)

    def is_busy(self, s: State) -> Array:
        """Whether requests are left, and entries of the path."""
        more = s.clock.finished < self.requests.count
        return more & (s.log.entries < s.log.path.time.shape[0])

    def iterate(self, s: State) -> State:
        """One iteration: feed a prompt, preempt, or run the pass that is put together."""
        s, again = self.scheduler.compose(s)
        batch, go = self.batch(s), ~again & self.is_busy(s)
        return self.after(s, go, batch, self.plan(s, go & ~batch.idle, batch))

    def batch(self, s: State) -> ComposedPass:
        """What the pass that is put together feeds."""
        rules, clock, prompts = self.scheduler.rules, s.clock, s.batch.tokens > 0
        decodes = True if rules.mixed else ~prompts
        over, over_tokens = drafting.unknown(s, decodes_on=not rules.mixed)
        decoding = jnp.where(decodes, s.slots.decoding + over, 0)
        context = jnp.where(decodes, s.slots.context + over_tokens, 0)
        idle = ~prompts & (s.slots.decoding + over == 0)
        # an engine that puts passes together ahead, and has none, waits for the one that runs
        unread = clock.last_poll < clock.now
        unread |= (clock.finished_seen < clock.finished) | (s.unseen.finished > 0)
        lags = (rules.overlap > 0) & unread
        over = jnp.where(decoding > 0, over, 0)
        grows = jnp.where(decodes, drafting.growth(s), 0)
        return ComposedPass(prompts, decoding, context, over, grows, idle, idle & lags)

    def plan(self, s: State, go: Array, batch: ComposedPass) -> PassRun:
        """Passes up to the next event, if (``go``) any run, or the wait for the next arrival."""
        run, now = self.run_length(s, go, batch), s.clock.now
        arrival = get(self.requests.arrival, s.queue.head)
        end = jnp.where(batch.idle, jnp.maximum(now, arrival), now + run.seconds)
        woken_by = jnp.where(batch.idle & (arrival > now), s.queue.head, -1)
        return PassRun(run.steps, end, run.last_poll, woken_by)

    def run_length(self, s: State, go: Array, batch: ComposedPass) -> RunLength:
        """Passes up to the next event, where ``go``; else none."""
        rules, clock, kind = self.scheduler.rules, s.clock, s.clock.now.dtype
        overlap, due = rules.overlap > 0, self.scheduler.arrives(s)
        longest, wakes = self.longest_run(s, batch.prompts, due), self.wakes(s, due)
        feeds = batch.decoding, batch.context, s.batch.tokens

        def several() -> RunLength:
            growth = None if s.drafts is None else s.drafts.context_growth
            run = decode_run(self.step, *feeds, s.batch.pairs, longest, growth)
            sooner = wakes & (due < run_time(run, longest.astype(kind)))
            arrival = lax.cond(sooner, lambda: steps_until(run, due), lambda: longest)
            first = self.first_poll(s, arrival, due)
            steps = jnp.where(wakes, jnp.minimum(longest, first), longest)
            last = self.last_poll(s, steps)
            last_poll = jnp.where(overlap | (last > 0), run_time(run, last.astype(kind)), -1.0)
            return RunLength(steps, run_time(run, steps.astype(kind)), last_poll)

        def single() -> RunLength:
            decoding, context, fed = (x.astype(kind) for x in feeds)
            seconds = self.step(decoding, context, fed, s.batch.pairs)
            seconds = s.cache.wait(rules, jnp.asarray(seconds).astype(kind))
            last_poll = jnp.where(self.last_poll(s, longest) > 0, seconds, -1.0)
            return RunLength(longest, seconds, jnp.where(overlap, 0.0, last_poll).astype(kind))

        def none() -> RunLength:
            return RunLength(longest, jnp.zeros_like(clock.now), jnp.zeros_like(clock.now))

        # the one choice that is a branch: most iterations run one pass or none
        return lax.cond(go, lambda: lax.cond(longest > 1, several, single), none)

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
        waits |= (False if s.drafts is None else s.drafts.over > 0) | s.cache.waits
        return jnp.where(prompts | waits, 1, jnp.maximum(longest, 1))

    def wakes(self, s: State, due: Array) -> Array:
        """Whether a request that arrives ends a row of passes."""
        # one that was refused ends admission: until then the engine tries without a free slot, too
        if self.scheduler.rules.requeues_last:
            return (due > 0.0) & ~s.queue.blocked
        return (due > 0.0) & (s.slots.running < self.scheduler.rules.slots)

    def after(self, s: State, go: Array, batch: ComposedPass, run: PassRun) -> State:
        """The state after those passes, where ``go``, or after a wait for the pass that runs."""
        caught = go & batch.waits
        go &= ~caught
        after = self.ran(s, go, batch, run)
        # the slots are reduced in every iteration, for prompts fed and requests preempted, too
        slots = {name: getattr(after.slots, name) for name in ("end", "soonest", "free")}
        log = {"path": after.log.path}
        after = where(go, after, s)
        after = where(caught, catch_up(after), after).update(slots=slots, log=log)
        return after.cache.finish(self.scheduler, s, after, go, caught)

    def ran(self, s: State, go: Array, batch: ComposedPass, run: PassRun) -> State:
        """The state after passes, where ``go``, with their entry in the path."""
        rules, clock, idle = self.scheduler.rules, s.clock, batch.idle
        count, polled = jnp.where(idle, 0, run.steps), idle | (run.last_poll >= 0.0)
        steps = count if rules.mixed else jnp.where(batch.decoding > 0, count, 0)
        context = s.slots.context + steps * batch.grows
        after = self.finish(s, go, clock.steps + steps, context, batch)
        last_poll = clock.now + run.last_poll
        last_poll = jnp.where(run.last_poll >= 0.0, last_poll, clock.last_poll)
        after = after.update(
            clock={
                "now": run.end,
                "last_poll": jnp.where(idle, run.end, last_poll),
                "finished_seen": jnp.where(polled, clock.finished, clock.finished_seen),
                "passes": clock.passes + count,
                "entries": clock.entries + 1,
            },
            batch={"is_new": jnp.ones_like(s.batch.is_new)},
        )
        entry = {
            "time": run.end, "decoding": batch.decoding, "context": batch.context,
            "fed": s.batch.tokens, "pairs": s.batch.pairs, "count": count,
            "steps": after.clock.steps, "woken_by": run.woken_by, "running": after.slots.running,
            "finished": after.clock.finished, "blocks": rules.used_blocks(after, self.requests),
            "over": batch.over, **({} if s.drafts is None else {"grows": s.drafts.context_growth}),
        }  # fmt: skip
        path = s.log.path
        at = s.log.entries
        columns = {name: put(getattr(path, name), at, x) for name, x in entry.items()}
        return after.update(log={"path": path._replace(**columns), "entries": at + 1})

    def finish(
        self, s: State, go: Array, steps: Array, context: Array, batch: ComposedPass
    ) -> State:
        """The state at step ``steps``, those that have their last token gone."""
        rules, slots, decodes = self.scheduler.rules, s.slots, ~batch.prompts & ~batch.idle
        done, lags = go & (slots.end <= steps), rules.overlap > 0
        s = drafting.launch(s, steps, decodes, lags)
        tokens = rules.slot_tokens(s, steps)
        to_come = tokens_to_come(slots.end - steps, drafting.per_pass(s))
        sums = rules.slot_sums(*to_come, *tokens)
        held = rules.leaving_blocks(s, *tokens)
        contexts = drafting.leaving_tokens(s, steps)
        gone, sums, soonest, free = departures(slots, done, contexts, held, sums)
        reserved = slots.reserved if rules.preempts else slots.reserved - gone.next_blocks
        unseen = zip(("finished", "tokens", "blocks", "next_blocks"), gone, strict=True)
        after = s.update(
            clock={"steps": steps, "finished": s.clock.finished + gone.count},
            slots={
                "end": jnp.where(done, UNREACHED, slots.end),
                "sums": sums,
                "soonest": soonest,
                "free": free,
                "running": slots.running - gone.count,
                "decoding": slots.decoding + s.batch.prompts - gone.count,
                "context": context + s.batch.contexts - gone.tokens,
                "reserved": reserved,
            },
            unseen={
                **{name: jnp.where(lags, x, 0) for name, x in unseen},
                "decoded": lags & decodes,
                "first_tokens": jnp.where(lags & batch.prompts, s.batch.first_tokens, 0),
            },
        )
        after = drafting.finish(after, slots.end, done, lags, knows_ends=rules.mixed)
        return rules.finish(s, after, gone.count, batch.prompts, batch.idle)
