"""The compiled loop that replays a server from event to event: a turn of it, and its parts.

A turn of the loop feeds a part of a prompt to the pass that is put together, or makes room, and
if nothing more can be fed runs what there is to run: one pass with prompts, all decode passes up
to the next event, or a wait for the next arrival. What most turns do not need is left out of them:
prices of many passes by a branch, a part of a prompt and room to be made by a loop of one turn or
none. All else is decided by choices between numbers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.replays import caches, drafted, feeding
from infer_jax.replays.eviction import evict
from infer_jax.replays.passes import FedBatch, Ran
from infer_jax.replays.prefix_cache import PrefixCache
from infer_jax.replays.requests import FAR, Requests
from infer_jax.replays.rules import Feed, Rules
from infer_jax.replays.state import NEVER, State, caught_up, empty, get, put, swept, where
from infer_jax.replays.stretch import LONGEST, StepTime, seconds_of, steps_until, stretch


def server_of(
    step: StepTime, rules: Rules, requests: Requests, concurrency: Array | None
) -> "Server":
    """A server whose numbers are arrays of the loop's types."""
    return Server(step, rules.whole(), jax.tree.map(jnp.asarray, requests), concurrency)


class Server(NamedTuple):
    """Rules and requests: what stays while the state changes."""

    step: StepTime
    rules: Rules
    requests: Requests
    concurrency: Array | None

    def start(self, width: int, turns: int) -> State:
        kind = jnp.result_type(self.requests.arrival)
        count = self.requests.prompt.shape[0]
        state = empty(count, width, turns, kind, self.rules.sums)
        if self.requests.drafts is not None:
            state = drafted.opened(state, self.requests.drafts, width)
        state = caches.opened(self.rules, state, self.requests, width)
        return self.rules.opened(state)

    def busy(self, s: State) -> Array:
        return (s.finished < self.requests.count) & (s.turn < s.path.time.shape[0])

    def turn(self, s: State) -> State:
        """One turn of the loop: feed, make room, or run what there is to run."""
        s, again = self.compose(s)
        return self.run(s, ~again)

    def compose(self, s: State) -> tuple[State, Array]:
        """Feed a part of a prompt or make room; whether that has to go on before a pass can run."""
        s, feed, ok = self.look(self.begin(s))
        if not self.rules.preempts:
            fed = self.ahead(feeding.fed(self.rules, self.requests, s, feed, ok))
            return fed, ok & self.more(fed)
        short = self.rules.short(s, self.requests, feed)
        passed = jnp.zeros_like(short)
        if self.rules.returns:
            short &= ~ok
        else:
            # the place of a request that was preempted and has finished since
            passed = ~short & (s.head_last <= s.steps) & (s.head < self.requests.count)
        # the arrays of requests are written where they are: a choice between two would copy them
        ok &= ~(short | passed)
        fed = feeding.fed(self.rules, self.requests, s, feed, ok)
        fed = fed._replace(head=fed.head + passed)
        fed = self.ahead(evict(self.rules, self.requests, fed, short, self.arrived))
        return fed, ok & self.more(fed) | short | passed

    def more(self, s: State) -> Array:
        """Whether another prompt might be fed to the pass: the next turn sees whether it can."""
        return (s.left > 0) & (s.part < 0) & self.next(s).waits

    def look(self, s: State) -> tuple[State, Feed, Array]:
        """The part of a prompt that comes next, and whether it can be fed."""
        waits = (self.arrives(s) <= 0.0) | s.up_back
        s = caches.tried(self.rules, s, self.requests, waits)
        feed = self.next(s)
        ok = self.feeds(s, feed)
        s = caches.looked(s, feed)
        if self.rules.returns:
            refused = feed.waits & ~feed.begun & ~ok & (s.left > 0) & ~s.barred
            s = s._replace(full=s.full | refused)
        return s, feed, ok

    def begin(self, s: State) -> State:
        """A new pass: its budget, and a look at who has arrived."""
        look = s.fresh & (lax.rem(s.passes, self.rules.poll) == 0) & (self.rules.overlap == 0)
        zero = jnp.zeros_like(s.fed)
        return s._replace(
            looked=jnp.where(look, s.now, s.looked),
            seen=jnp.where(look, s.finished, s.seen),
            left=jnp.where(s.fresh, self.rules.room(s), s.left),
            fed=jnp.where(s.fresh, zero, s.fed),
            pairs=jnp.where(s.fresh, 0.0, s.pairs),
            joined=jnp.where(s.fresh, zero, s.joined),
            joined_tokens=jnp.where(s.fresh, zero, s.joined_tokens),
            joining=jnp.where(s.fresh, zero, s.joining),
            charged=jnp.where(s.fresh, 0.0, s.charged),
            barred=s.barred & ~s.fresh,
            fresh=jnp.zeros_like(s.fresh),
        )

    def next(self, s: State) -> Feed:
        """The part of a prompt that would be fed next: of the one begun, or of the queue."""
        begun, at, lost = s.part >= 0, s.up, s.up_lost
        waits = (self.arrives(s) <= 0.0) | s.up_back
        whole = get(self.requests.prompt, at) + lost
        coming = get(self.requests.output, at) - lost
        drafts = drafted.look(s.growth, self.requests.drafts, at)
        out = coming if drafts is None else 1 + drafts.passes
        found = caches.look(self.rules, s, self.requests)
        hit = get(self.requests.cached, at) if found is None else found.all * self.rules.block
        done = jnp.where(begun, s.part_done, hit)
        rest = whole - done
        counted = jnp.where(begun, rest, whole) if self.rules.stores else rest
        cut = s.left < self.rules.spent(counted)
        part = jnp.where(
            self.rules.chunked > 0, lax.div(s.left, self.rules.unit) * self.rules.unit, 0
        )
        paid = jnp.where(cut, part, counted)
        chunk = jnp.minimum(paid, rest)
        return Feed(
            at, begun, waits, whole, out, coming, done, chunk, chunk < rest, paid, found, drafts
        )

    def ahead(self, s: State) -> State:
        """The state with what it needs to know of the next request and of the head of the queue.

        It is read here, once all is written: XLA copies an array that is read beside a write.
        """
        at, back = s.head, s.up_back
        if self.rules.returns:
            ring = jnp.remainder(s.taken, s.again.shape[0] - 1)
            back = (s.taken < s.back) & (get(s.stamp, ring) <= s.head)
            at = jnp.where(back, get(s.again, ring), at)
        s = s._replace(up=jnp.where(s.part >= 0, s.part, at), up_back=back)
        s = s._replace(growth=drafted.ahead(s.growth, s.up))
        if not self.rules.preempts:
            return s
        return s._replace(
            up_lost=get(s.produced, s.up),
            up_again=get(s.preempted, s.up) > 0,
            head_last=get(s.last, s.head),
        )

    def arrives(self, s: State) -> Array:
        """Seconds until the next request arrives; 0 or less if the engine has seen it."""
        kind = s.now.dtype
        at = get(self.requests.arrival, s.head)
        due = jnp.where(at <= s.looked, 0.0, jnp.maximum(at - s.now, jnp.finfo(kind).tiny))
        if self.concurrency is None:
            return due
        more = s.head < self.requests.count
        seen = more & (s.head < self.concurrency + s.seen)
        there = more & (s.head < self.concurrency + s.finished)
        later = jnp.where(there, jnp.finfo(kind).tiny, FAR).astype(kind)
        return jnp.maximum(due, jnp.where(seen, 0.0, later))

    def arrived(self, s: State) -> Array:
        """Requests that have arrived, as the engine has seen."""
        came = jnp.searchsorted(self.requests.arrival, s.looked, side="right").astype(jnp.int32)
        return came if self.concurrency is None else jnp.minimum(came, self.concurrency + s.seen)

    def feeds(self, s: State, feed: Feed) -> Array:
        """Whether it can be fed."""
        place = feed.waits & self.rules.admits(s)
        return (feed.chunk > 0) & (feed.begun | place & self.rules.fits(s, self.requests, feed))

    def run(self, s: State, go: Array) -> State:
        """Where ``go``, run the pass, the decode passes to the next event, or wait."""
        go, batch = go & self.busy(s), self.batch(s)
        return self.after(s, go, batch, self.planned(s, go & ~batch.idle, batch))

    def planned(self, s: State, go: Array, batch: FedBatch) -> Ran:
        """What runs up to the next event, if (``go``) anything does, or the next arrival."""
        steps, duration, look = self.steps(s, go, batch)
        due = get(self.requests.arrival, s.head)
        now = jnp.where(batch.idle, jnp.maximum(s.now, due), s.now + duration)
        return Ran(steps, now, look, jnp.where(batch.idle & (due > s.now), s.head, -1))

    def after(self, s: State, go: Array, batch: FedBatch, ran: Ran) -> State:
        """The state once that ran, where ``go``, or once it has waited for the pass that runs."""
        caught = go & batch.waits
        go &= ~caught
        after = self.ran(s, go, batch, ran)
        # the slots are looked through in every turn, for what was fed or made room, too
        slots = {"ends": after.ends, "soonest": after.soonest, "free": after.free}
        path, after = after.path, where(go, after, s)
        after = where(caught, caught_up(after), after)._replace(path=path, **slots)
        return caches.ended(self.rules, self.requests, s, after, go, caught)

    def batch(self, s: State) -> FedBatch:
        """What the pass that is put together feeds."""
        rules, prompts = self.rules, s.fed > 0
        decodes = ~prompts if not rules.beside else True
        once_more = (s.late, s.late_tokens) if not rules.beside else (0, 0)
        if s.growth is not None:
            once_more = (s.growth.over, s.late_tokens)
        decoding = jnp.where(decodes, s.decoding + once_more[0], 0)
        context = jnp.where(decodes, s.context + once_more[1], 0)
        idle = ~prompts & (s.decoding + once_more[0] == 0)
        # an engine that puts passes together ahead, and has none, waits for the one that runs
        lags = (rules.overlap > 0) & ((s.looked < s.now) | (s.seen < s.finished) | (s.late > 0))
        over = jnp.where(decoding > 0, once_more[0], 0)
        growth = s.decoding if s.growth is None else s.growth.each
        grows = jnp.where(decodes, growth, 0)
        return FedBatch(prompts, decoding, context, over, grows, idle, idle & lags)

    def ran(self, s: State, go: Array, batch: FedBatch, ran: Ran) -> State:
        """The state after passes, where ``go``, with their entry in the path."""
        rules, decoding, idle = self.rules, batch.decoding, batch.idle
        count, now, look = jnp.where(idle, 0, ran.steps), ran.now, ran.look
        fed = jnp.where(decoding > 0, count, 0) if not rules.beside else count
        grown = s.context + fed * batch.grows
        after = self.left(s, go, s.steps + fed, grown, batch.prompts, idle)
        after = after._replace(
            now=now,
            looked=jnp.where(idle, now, jnp.where(look >= 0.0, s.now + look, s.looked)),
            seen=jnp.where(idle | (look >= 0.0), s.finished, s.seen),
            passes=s.passes + count,
            turn=s.turn + 1,
            fresh=jnp.ones_like(s.fresh),
        )
        entry = {
            "time": now, "decoding": decoding, "context": batch.context, "fed": s.fed,
            "pairs": s.pairs, "count": count, "steps": after.steps, "jump": ran.until,
            "running": after.running, "finished": after.finished,
            "blocks": rules.used(after, self.requests),
            "over": batch.over,
        }  # fmt: skip
        if s.growth is not None:
            entry["grows"] = s.growth.each
        path = s.path._replace(
            **{name: put(getattr(s.path, name), s.turn, value) for name, value in entry.items()}
        )
        return after._replace(path=path)

    def most(self, s: State, prompts: Array, due: Array) -> Array:
        """Passes until the next event that is no arrival."""
        rules = self.rules
        most = jnp.minimum(s.soonest - s.steps, LONGEST)
        if rules.preempts:
            most = jnp.where(s.barred, 1, jnp.minimum(most, rules.safe(s)))
        if rules.returns:
            most = jnp.where(s.full & s.clearing, 1, most)
        waits = (s.late > 0) & (due <= 0.0) if rules.beside else s.late > 0
        if s.growth is not None:
            waits |= s.growth.over > 0
        waits |= caches.waits(s)
        return jnp.where(prompts | waits, 1, jnp.maximum(most, 1))

    def wakes(self, s: State, due: Array) -> Array:
        """Whether a request that arrives ends a row of passes."""
        # where a refusal is remembered, the engine tries whether there is a slot or not
        return (due > 0.0) & (~s.full if self.rules.returns else s.running < self.rules.slots)

    def steps(self, s: State, go: Array, batch: FedBatch) -> tuple[Array, Array, Array]:
        """Passes until the next event, their time (s), and that until the last look at arrivals.

        The last is negative without a look. Passes put together ahead look at the begin of the
        one before: who arrives in a pass is fed in the next but one.
        """
        rules, overlap, due = self.rules, self.rules.overlap > 0, self.arrives(s)
        most, wakes = self.most(s, batch.prompts, due), self.wakes(s, due)
        decoding, context, kind = batch.decoding, batch.context, s.now.dtype
        grow = None if s.growth is None else s.growth.each

        def look_of(steps: Array) -> Array:
            look = lax.div(s.passes + steps, rules.poll) * rules.poll - s.passes
            return jnp.where(overlap, steps - 1, look)

        def many() -> tuple[Array, Array, Array]:
            passes = stretch(self.step, decoding, context, s.fed, s.pairs, most, grow)
            spent = seconds_of(passes, most.astype(kind))
            soon = wakes & (due < spent)
            come = lax.cond(soon, lambda: steps_until(passes, due), lambda: most)
            looks = lax.div(s.passes + come + rules.poll - 1, rules.poll) * rules.poll - s.passes
            later = jnp.where(due > jnp.finfo(kind).tiny, come + 1, 1)
            looks = jnp.where(overlap, later, looks)
            steps = jnp.where(wakes, jnp.minimum(most, looks), most)
            look = look_of(steps)
            looked = overlap | (look > 0)
            until = jnp.where(looked, seconds_of(passes, look.astype(kind)), -1.0)
            return steps, seconds_of(passes, steps.astype(kind)), until

        def single() -> tuple[Array, Array, Array]:
            fed = [x.astype(kind) for x in (decoding, context, s.fed)]
            seconds = jnp.asarray(self.step(fed[0], fed[1], fed[2], s.pairs)).astype(kind)
            if isinstance(s.kept, PrefixCache):
                seconds += (s.kept.fetched * rules.fetch).astype(kind)
            until = jnp.where(overlap, 0.0, jnp.where(look_of(most) > 0, seconds, -1.0))
            return most, seconds, until.astype(kind)

        def none() -> tuple[Array, Array, Array]:
            return most, jnp.zeros_like(s.now), jnp.zeros_like(s.now)

        # the one choice that is a branch: most turns run one pass or none
        return lax.cond(go, lambda: lax.cond(most > 1, many, single), none)

    def left(
        self, s: State, go: Array, steps: Array, context: Array, prompts: Array, idle: Array
    ) -> State:
        """The state at step ``steps``, those that have their last token gone."""
        done, lags = go & (s.ends <= steps), self.rules.overlap > 0
        s = drafted.flying(s, steps, ~prompts & ~idle, lags)
        tokens = self.rules.tokens(s, steps)
        to_come = drafted.to_come(s.ends - steps, s.growth and s.growth.each_of)
        watched = self.rules.watched(*to_come, *tokens)
        kept = s.base + steps if s.growth is None else jnp.zeros_like(s.base)
        over = swept(s, done, kept, self.rules.leaving(s, *tokens), watched)
        after = s._replace(
            steps=steps,
            context=context + s.joined_tokens - over.tokens,
            decoding=s.decoding + s.joined - over.gone,
            running=s.running - over.gone,
            finished=s.finished + over.gone,
            held=s.held if self.rules.preempts else s.held - over.more,
            late=jnp.where(lags, over.gone, 0),
            late_blocks=jnp.where(lags, over.blocks, 0),
            late_tokens=jnp.where(lags, over.tokens, 0),
            late_more=jnp.where(lags, over.more, 0),
            decoded=lags & ~prompts & ~idle,
            unread=jnp.where(lags & prompts, s.joining, 0),
            ends=jnp.where(done, NEVER, s.ends),
            soonest=over.soonest,
            free=over.free,
            watched=over.watched,
        )
        if s.growth is not None:
            after = drafted.summed(after, s.ends, done, lags, surely=self.rules.beside)
        return self.rules.noted(s, after, over.gone, prompts, idle)
