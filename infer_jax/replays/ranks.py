"""Attention ranks that share experts.

Each rank has a scheduler, slots and a cache. All run their passes together, for the experts of a
layer see the tokens of all ranks: a pass takes as long as the slowest rank's own part and the work
on the tokens of all. A rank that has nothing to feed runs along.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.errors import InputError
from infer_jax.replays.cluster import BY_LOAD, QueueLoad, ServerGroup, ServerStates, check_servers
from infer_jax.replays.decode_run import LONGEST, StepTime, decode_run, run_time, steps_until
from infer_jax.replays.log import RoutedLog
from infer_jax.replays.loops import entries_or_turns, serve_by
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules
from infer_jax.replays.server import ComposedPass, PassRun
from infer_jax.replays.state import State, catch_up, where


class SharedStep(NamedTuple):
    """The time (s) of a pass of several ranks: the slowest of their own parts, and a common one.

    ``own(decoding, context, new, pairs)`` of a rank that feeds anything; ``common(tokens)`` of the
    tokens that each rank feeds; with drafts ``common(tokens, verified)``, of which ``verified`` are
    of requests that decode. Both are functions of arrays, or ``Partial``s.
    """

    own: StepTime
    common: Callable[..., Array]


@entries_or_turns
def replay_ranks(
    step: SharedStep,
    rules: Rules,
    requests: Requests,
    concurrency: Array | None = None,
    *,
    ranks: int,
    router: str,
    width: int,
    entries: int,
) -> RoutedLog:
    """Serve all requests by ``ranks`` attention ranks, each by the same ``rules``.

    A router sends each request to a rank when it arrives, by what the ranks have in the pass that
    runs, and those that it has sent since. ``width`` and ``entries``: as of ``replay``, of a rank.
    """
    check_servers("replay_ranks", "ranks", ranks, router, BY_LOAD)
    group = RankGroup(step.own, rules, requests, concurrency, router, common=step.common)
    return group.replay(ranks, width, entries)


_ranks_program = jax.jit(replay_ranks, static_argnames=("ranks", "router", "width", "entries"))


def serve_ranks(
    step: SharedStep,
    rules: Rules,
    requests: Requests,
    ranks: int,
    router: str,
    concurrency: int | None = None,
) -> RoutedLog:
    """Serve all requests, as ``replay_ranks`` does, and see that no rank has one it never holds.

    Raises:
        InputError: as ``serve``; fewer than one rank, an unknown router, a prefix cache.
    """
    check_servers("serve_ranks", "ranks", ranks, router, BY_LOAD)
    if not isinstance(step, SharedStep):
        allowed = "a SharedStep: the seconds of a rank's own part, and of the common one"
        raise InputError("serve_ranks", "step", type(step).__name__, allowed)
    if requests.prefixes is not None:
        raise InputError("serve_ranks", "prefixes", "given", "none: ranks have no such queues")
    if float(rules.poll) > 1:
        raise InputError("serve_ranks", "poll", float(rules.poll), "1: a poll before every pass")
    return serve_by(_ranks_program, step, rules, requests, concurrency, ranks=ranks, router=router)


class RankGroup(ServerGroup):
    """Attention ranks, whose passes run together."""

    def start(self, servers: int, width: int, entries: int) -> ServerStates:
        """Ranks that have the requests of time 0.

        An iteration is an entry of every rank.
        """
        c = super().start(servers, width, entries * servers)
        return self.route(c, self.load(c), c.now, c.finished)

    def is_busy(self, c: ServerStates) -> Array:
        more = c.record.entries + c.sent.last.shape[0] <= c.record.path.time.shape[0]
        return super().is_busy(c) & more

    def iterate(self, c: ServerStates) -> ServerStates:
        """Every rank puts its pass together; then all run, to the next event of any, or wait."""

        def compose(carry: tuple[ServerStates, Array]) -> tuple[ServerStates, Array]:
            c, batch = carry[0].each(lambda s: self.compose(carry[0], s))
            # a rank without a request in the running pass waits for it (vLLM), or all ranks do
            waits = batch.waits & (self.rules.idle_polls | jnp.all(batch.idle))

            def catch(s: State, waits: Array) -> State:
                return where(waits, catch_up(s), s)._replace(log=None)

            return c.with_servers(c.map(catch, waits)), jnp.any(waits)

        return self.run(lax.while_loop(lambda carry: carry[1], compose, (c, c.now >= 0.0))[0])

    def compose(self, c: ServerStates, s: State) -> tuple[State, ComposedPass]:
        """A rank that has put its pass together, and that pass.

        One that has it together is left as it is.
        """
        server = self.server(c)

        def feed(carry: tuple[State, Array]) -> tuple[State, Array]:
            s, again = server.scheduler.compose(carry[0])
            return server.scheduler.recount(s), again

        s, _ = lax.while_loop(lambda carry: carry[1], feed, (s, c.now >= 0.0))
        return s, server.batch(s)

    def run(self, c: ServerStates) -> ServerStates:
        """All ranks after the next passes, or a wait, and the requests that came meanwhile."""
        s, server = c.servers, self.server(c)
        clock, kind = s.clock, s.clock.now.dtype
        batch: ComposedPass = c.map(server.batch)
        now, finished = clock.now[0], c.finished
        all_idle, due = jnp.all(batch.idle), self.due(c, finished)
        wait = PassRun(jnp.ones_like(c.sent.count), jnp.maximum(now, due), jnp.zeros((), kind))
        run = lax.cond(all_idle, lambda: wait, lambda: self.passes(c, batch, due - now))

        def finish(s: State, batch: ComposedPass) -> tuple[State, dict[str, Array | int]]:
            s = s._replace(log=c.record)
            after = server.finish(s, jnp.asarray(True), batch, run)
            return after._replace(log=None), server.entry(s, after, batch, run)

        states, entries = jax.vmap(finish)(s, batch)
        ranks = jnp.arange(clock.now.shape[0], dtype=jnp.int32)
        entries |= {"server": ranks, "woken_by": jnp.full_like(ranks, -1)}
        at = c.record.entries
        path = c.record.path.write(at, entries)
        record = c.record._replace(path=path, entries=at + len(ranks))
        if not self.rules.idle_polls:
            # a rank that ran along has put its next pass together when the others did, and does
            # not know that it was idle
            along = batch.idle & ~all_idle
            polled = along & (self.rules.overlap > 0)
            states = states.update(
                clock={"last_poll": jnp.where(polled, now + run.last_poll, states.clock.last_poll)},
                queue={
                    "new_token_ratio": jnp.where(
                        along, s.queue.new_token_ratio, states.queue.new_token_ratio
                    )
                },
            )
        # requests that arrived during the pass were routed by the loads of that time
        growth = jnp.where(batch.idle, 0, batch.grows * (run.steps - 1))
        before = s.update(slots={"context": s.slots.context + growth})
        load = self.load(c.with_servers(before))
        c = c.with_servers(states)._replace(record=record, now=run.end)
        c = self.route(c, load, c.now, finished)
        return self.route(c, self.load(c), c.now, c.finished, held=True)

    def route(
        self, c: ServerStates, load: QueueLoad, now: Array, finished: Array, *, held: bool = False
    ) -> ServerStates:
        """Requests that are sent by ``now`` each at the end of the queue of a rank.

        ``held``: those that waited for one which has just ended, and are sent at ``now``.
        """

        def send(carry: tuple[ServerStates, QueueLoad]) -> tuple[ServerStates, QueueLoad]:
            c, load = carry
            at, yes = c.sent.count, jnp.asarray(True)
            time = now if held else self.requests.arrival[at]
            k = self.choose(c, load, time)
            c = self.send(c, k, time, yes)
            c = c.put(k, self.server(c).scheduler.receive(c.at(k)[0], at, yes))
            more = load._replace(
                waiting=load.waiting.at[k].add(1),
                tokens=load.tokens.at[k].add(self.requests.prompt[at]),
            )
            return c, more

        return lax.while_loop(lambda x: self.due(x[0], finished) <= now, send, (c, load))[0]

    def passes(self, c: ServerStates, batch: ComposedPass, due: Array) -> PassRun:
        """Passes up to the next event of any rank; ``due``: seconds until a request is sent."""
        s, kind, overlap = c.servers, c.now.dtype, self.rules.overlap > 0
        now, server = s.clock.now[0], self.server(c)

        def longest_run(s: State, batch: ComposedPass) -> Array:
            arrives = server.scheduler.arrives(s)
            unseen = server.wakes(s, arrives) & (arrives <= jnp.finfo(kind).tiny)
            longest = server.longest_run(s, batch.prompts, arrives)
            longest = jnp.where(batch.idle, LONGEST, longest)
            # one that runs along though requests wait tries again when the pass has run
            refused = batch.idle & server.scheduler.waits(s)
            return jnp.where(unseen | refused, 1, longest)

        longest = jnp.min(c.map(longest_run, batch))
        tokens = s.batch.tokens
        decoding, fed = (jnp.where(batch.idle, 0, x).astype(kind) for x in (batch.decoding, tokens))
        verified = decoding * (1.0 + self.rules.drafts)
        split = () if self.requests.drafts is None else (verified,)
        assert self.common is not None
        common = jnp.asarray(self.common(verified + fed, *split)).astype(kind)

        def own_time(index: Array) -> Array:
            """Seconds of each rank's own part in the pass of that number."""
            context = batch.context + batch.grows * index
            decoding, fed = batch.decoding.astype(kind), tokens.astype(kind)
            times = jax.vmap(self.step)(decoding, context.astype(kind), fed, s.batch.pairs)
            return jnp.where(batch.idle, -1.0, times)

        def changes(count: Array) -> Array:
            """Whether another rank is the slowest in the last of ``count`` passes."""
            return (count > 1) & (jnp.argmax(own_time(count - 1)) != slowest)

        first = own_time(jnp.zeros_like(longest))
        slowest = jnp.argmax(first)
        longest = lax.while_loop(changes, lambda count: jnp.maximum(count // 2, 1), longest)

        def pass_time(*feeds: Array) -> Array:
            return self.step(*feeds) + common

        def several() -> PassRun:
            decoding, context, pairs = (
                x[slowest] for x in (batch.decoding, batch.context, s.batch.pairs)
            )
            fed, growth = tokens[slowest], batch.grows[slowest]
            run = decode_run(pass_time, decoding, context, fed, pairs, longest, growth)
            soon = due < run_time(run, longest.astype(kind))
            steps = lax.cond(soon, lambda: steps_until(run, due), lambda: longest)
            last_poll = run_time(run, jnp.where(overlap, steps - 1, steps).astype(kind))
            return PassRun(steps, now + run_time(run, steps.astype(kind)), last_poll)

        def single() -> PassRun:
            seconds = first[slowest] + common
            return PassRun(longest, now + seconds, jnp.where(overlap, 0.0, seconds))

        return lax.cond(longest > 1, several, single)
