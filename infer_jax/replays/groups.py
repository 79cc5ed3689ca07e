"""Several servers that take turns: copies behind a router, and attention ranks that share experts.

A copy has a clock of its own and acts on the others through the router alone. Each has its passes
up to its next event put together; the loop goes on with the event that comes first, of any copy, or
the next arrival.

Each rank has a scheduler, slots and a cache. All run their passes together, for the experts of a
layer see the tokens of all ranks: a pass takes as long as the slowest rank's own part and the work
on the tokens of all. A rank that has nothing to feed runs along.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from infer_jax.errors import InputError
from infer_jax.replays.decode_run import LONGEST, StepTime, decode_run, run_time, steps_until
from infer_jax.replays.log import RoutedLog
from infer_jax.replays.loops import serve_by
from infer_jax.replays.requests import Requests
from infer_jax.replays.routers import (
    BY_LOAD,
    BY_PREFIX,
    ROUTERS,
    Beginnings,
    Cluster,
    QueueLoad,
    ServerGroup,
    Windows,
    check_servers,
    load_of,
)
from infer_jax.replays.rules import Rules
from infer_jax.replays.server import ComposedPass, PassRun
from infer_jax.replays.state import UNREACHED, State, catch_up, where


def replay_copies(
    step: StepTime,
    rules: Rules,
    requests: Requests,
    concurrency: Array | None = None,
    begins: Beginnings | None = None,
    windows: Windows | None = None,
    *,
    copies: int,
    router: str,
    width: int,
    turns: int,
) -> RoutedLog:
    """Serve all requests by ``copies`` of a server, each by the same ``rules``.

    A router sends each request to a copy when it arrives, by what the copies have then: requests
    that run are those in the pass that runs. ``begins``: of prompts, for a router by prefix;
    ``windows``: when each copy takes requests, for copies that start late or leave.
    ``width`` and ``turns`` as of ``replay``, of each copy.

    Raises:
        InputError: fewer than one copy, an unknown router, one by prefix without ``begins``.
    """
    check_servers("replay_copies", "copies", copies, router, ROUTERS)
    if router in BY_PREFIX and begins is None:
        raise InputError("replay_copies", "begins", None, f"those of prompts, for {router}")
    group = CopyGroup(step, rules, requests, concurrency, router, begins, windows=windows)
    return group.replay(copies, width, turns)


_copies_program = jax.jit(replay_copies, static_argnames=("copies", "router", "width", "turns"))


def serve_copies(
    step: StepTime,
    rules: Rules,
    requests: Requests,
    copies: int,
    router: str,
    concurrency: int | None = None,
    windows: Windows | None = None,
) -> RoutedLog:
    """Serve all requests, as ``replay_copies`` does, and see that no copy has one it never holds.

    Raises:
        InputError: as ``serve``; fewer than one copy, an unknown router, one by prefix without
            prefixes, rules that do not look for requests before every pass, windows in which a
            request finds no copy.
    """
    check_servers("serve_copies", "copies", copies, router, ROUTERS)
    if float(rules.poll) > 1:
        raise InputError("serve_copies", "poll", float(rules.poll), "1: a look before every pass")
    begins = None
    if router in BY_PREFIX:
        if requests.prefixes is None:
            allowed = "one by load: requests have no prefixes"
            raise InputError("serve_copies", "router", router, allowed)
        begins = Beginnings.of(requests.prefixes, requests.prompt)
    if windows is not None:
        times = np.asarray(requests.arrival)[: int(requests.count), None]
        alone = ~np.any((windows.begin <= times) & (times < windows.end), axis=1)
        if alone.any():
            at = f"{float(times[alone.argmax(), 0]):g} s"
            raise InputError(
                "serve_copies", "windows", f"none open at {at}", "one at every request"
            )
    how = {"copies": int(copies), "router": router}
    return serve_by(_copies_program, step, rules, requests, concurrency, begins, windows, **how)


class Planned(NamedTuple):
    """The pass that each copy has put together, the passes to its next event, and when that is."""

    batch: ComposedPass
    run: PassRun
    again: Array  # whether more may be fed to it, so that the passes may not run yet
    end: Array


class CopyGroup(ServerGroup):
    """Copies of a server, each with a clock of its own."""

    def turn(self, c: Cluster) -> Cluster:
        """The next request is sent, if none of the copies' events comes before; else these run.

        Either is masked and none is a branch, which would copy the arrays of all requests.
        """
        states, planned = jax.vmap(self.plan)(c.states, c.queues)
        c, first = c._replace(states=states), jnp.min(planned.end)
        due = self.due(c, jnp.sum(states.clock.finished))
        comes = due <= first
        load = self.load(c, planned, due, jnp.zeros_like(planned.again))
        c = self.route(c, load, jnp.where(comes, due, -1.0), held=False)
        return self.run(c, planned, due, jnp.where(comes, -1.0, first))

    def plan(self, s: State, queue: Requests) -> tuple[State, Planned]:
        """A copy after a look at what it might feed, and what it does up to its next event.

        One that has its pass together is left as it is.
        """
        server = self.server(queue)
        s, again = server.scheduler.compose(s)
        batch = server.batch(s)
        run = server.plan(s, ~batch.idle, batch)
        end = jnp.where(again | batch.waits, s.clock.now, run.now)
        return s, Planned(batch, run, again, end)

    def run(self, c: Cluster, planned: Planned, due: Array, first: Array) -> Cluster:
        """All copies whose event comes before the next request; if one waits for it, the first.

        None where ``first``, the time of the first event, is negative.
        """
        go = ~planned.again & (planned.end < due) & (first >= 0.0)
        if self.concurrency is not None:
            go &= planned.end <= first

        def after(s: State, queue: Requests, go: Array, batch: ComposedPass, run: PassRun) -> State:
            return self.server(queue).after(s, go, batch, run)

        states = jax.vmap(after)(c.states, c.queues, go, planned.batch, planned.run)
        c = c._replace(states=states)
        if self.concurrency is None:
            return c
        return self.route(c, self.load(c, planned, first, go), first, held=True)

    def load(self, c: Cluster, planned: Planned, now: Array, ran: Array) -> QueueLoad:
        """What the copies have at a time in the passes that run, or where these ``ran``."""
        states = c.states
        if self.router == "minimum_tokens":

            def growth(s: State, batch: ComposedPass, steps: Array) -> Array:
                """Tokens of the passes before the one that runs."""
                feeds = batch.decoding, batch.context, s.batch.tokens, s.batch.pairs
                run = decode_run(self.step, *feeds, steps, batch.grows)
                before = steps_until(run, now - s.clock.now) - 1
                return jnp.where(batch.idle, 0, batch.grows * before)

            more = jax.vmap(growth)(states, planned.batch, planned.run.steps)
            context = states.slots.context + jnp.where(ran, 0, more)
            states = states.update(slots={"context": context})
        return load_of(self.router, states, c.queues)


class SharedStep(NamedTuple):
    """The time (s) of a pass of several ranks: the slowest of their own parts, and a common one.

    ``own(decoding, context, new, pairs)`` of a rank that feeds anything; ``common(tokens)`` of the
    tokens that each rank feeds; with drafts ``common(tokens, verified)``, of which ``verified`` are
    of requests that decode. Both are functions of arrays, or ``Partial``s.
    """

    own: StepTime
    common: Callable[..., Array]


def replay_ranks(
    step: SharedStep,
    rules: Rules,
    requests: Requests,
    concurrency: Array | None = None,
    *,
    ranks: int,
    router: str,
    width: int,
    turns: int,
) -> RoutedLog:
    """Serve all requests by ``ranks`` attention ranks, each by the same ``rules``.

    A router sends each request to a rank when it arrives, by what the ranks have in the pass that
    runs, and those that it has sent since. ``width`` and ``turns`` as of ``replay``, of each rank.
    """
    check_servers("replay_ranks", "ranks", ranks, router, BY_LOAD)
    group = RankGroup(step.own, rules, requests, concurrency, router, common=step.common)
    return group.replay(ranks, width, turns)


_ranks_program = jax.jit(replay_ranks, static_argnames=("ranks", "router", "width", "turns"))


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
        raise InputError("serve_ranks", "poll", float(rules.poll), "1: a look before every pass")
    return serve_by(_ranks_program, step, rules, requests, concurrency, ranks=ranks, router=router)


class RankGroup(ServerGroup):
    """Attention ranks, whose passes run together."""

    def start(self, servers: int, width: int, turns: int) -> Cluster:
        """Ranks that have the requests which are there from the start."""
        c = super().start(servers, width, turns)
        return self.route_by_load(c, jnp.zeros((), c.states.clock.now.dtype), held=False)

    def turn(self, c: Cluster) -> Cluster:
        """Every rank puts its pass together; then all run, to the next event of any, or wait."""
        ready = jnp.zeros(c.states.clock.entries.shape, bool)

        def compose(carry: tuple[State, Array]) -> tuple[State, Array]:
            s, again, batch = jax.vmap(self.compose)(carry[0], c.queues)
            # who waits for the pass that runs: vLLM's rank that had nothing for it, or all of them
            waits = batch.waits & ~again
            waits &= self.rules.idle_looks | jnp.all(batch.idle & ~again)
            caught = jax.vmap(lambda s, waits: where(waits, catch_up(s), s))(s, waits)
            return caught.update(log={"path": s.log.path}), ~again & ~waits

        states, _ = lax.while_loop(lambda carry: ~jnp.all(carry[1]), compose, (c.states, ready))
        return self.run(c._replace(states=states))

    def compose(self, s: State, queue: Requests) -> tuple[State, Array, ComposedPass]:
        """A rank after a look at what it might feed, whether it has to look again, and its pass.

        One that has it together is left as it is.
        """
        server = self.server(queue)
        s, again = server.scheduler.compose(s)
        free = s.slots.end == UNREACHED
        first = jnp.where(jnp.any(free), jnp.argmax(free), UNREACHED).astype(jnp.int32)
        s = s.update(slots={"soonest": jnp.min(s.slots.end), "free": first})
        return s, again, server.batch(s)

    def run(self, c: Cluster) -> Cluster:
        """All ranks after the next passes, or a wait, and the requests that came meanwhile."""
        s = c.states
        clock, kind = s.clock, s.clock.now.dtype
        batch: ComposedPass = jax.vmap(lambda s, queue: self.server(queue).batch(s))(s, c.queues)
        now, ended = clock.now[0], jnp.sum(clock.finished)
        all_idle, due = jnp.all(batch.idle), self.due(c, ended)
        steps, duration, look = lax.cond(
            all_idle,
            lambda: (jnp.ones_like(c.sent), jnp.zeros((), kind), jnp.zeros((), kind)),
            lambda: self.passes(c, batch, due - now),
        )
        end = jnp.where(all_idle, jnp.maximum(now, due), now + duration)
        run, go = PassRun(steps, end, look, jnp.asarray(-1)), jnp.asarray(True)
        after = jax.vmap(lambda s, queue, batch: self.server(queue).ran(s, go, batch, run))
        states = after(s, c.queues, batch)
        if not self.rules.idle_looks:
            # a rank that ran along has put its next pass together when the others did, and does
            # not know that it was idle
            along = batch.idle & ~all_idle
            looked = along & (self.rules.overlap > 0)
            states = states.update(
                clock={"last_look": jnp.where(looked, now + look, states.clock.last_look)},
                queue={"share": jnp.where(along, s.queue.share, states.queue.share)},
            )
        # who came during the pass met the ranks as they were then
        growth = jnp.where(batch.idle, 0, batch.grows * (steps - 1))
        before = s.update(slots={"context": s.slots.context + growth})
        c = self.route_by_load(c._replace(states=before), end, held=False)
        return self.route_by_load(c._replace(states=states), end, held=True)

    def passes(self, c: Cluster, batch: ComposedPass, due: Array) -> tuple[Array, Array, Array]:
        """Passes until the next event of any rank, their time (s), and that of the last look."""
        s, kind, overlap = c.states, c.states.clock.now.dtype, self.rules.overlap > 0

        def longest_run(s: State, queue: Requests, batch: ComposedPass) -> Array:
            server = self.server(queue)
            arrives = server.scheduler.arrives(s)
            unseen = server.wakes(s, arrives) & (arrives <= jnp.finfo(kind).tiny)
            longest = server.longest_run(s, batch.prompts, arrives)
            longest = jnp.where(batch.idle, LONGEST, longest)
            # one that runs along though requests wait looks again when the pass has run
            refused = batch.idle & server.scheduler.waits(s)
            return jnp.where(unseen | refused, 1, longest)

        longest = jnp.min(jax.vmap(longest_run)(s, c.queues, batch))
        tokens = s.batch.tokens
        decoding, fed = (jnp.where(batch.idle, 0, x).astype(kind) for x in (batch.decoding, tokens))
        verified = decoding * (1.0 + self.rules.drafts)
        split = () if s.drafts is None else (verified,)
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

        def several() -> tuple[Array, Array, Array]:
            decoding, context, pairs = (
                x[slowest] for x in (batch.decoding, batch.context, s.batch.pairs)
            )
            fed, growth = tokens[slowest], batch.grows[slowest]
            run = decode_run(pass_time, decoding, context, fed, pairs, longest, growth)
            soon = due < run_time(run, longest.astype(kind))
            steps = lax.cond(soon, lambda: steps_until(run, due), lambda: longest)
            looked = jnp.where(overlap, steps - 1, steps)
            look = run_time(run, looked.astype(kind))
            return steps, run_time(run, steps.astype(kind)), look

        def single() -> tuple[Array, Array, Array]:
            seconds = first[slowest] + common
            return longest, seconds, jnp.where(overlap, 0.0, seconds)

        return lax.cond(longest > 1, several, single)

    def route_by_load(self, c: Cluster, now: Array, *, held: bool) -> Cluster:
        """``route`` by what the ranks have in these states."""
        return self.route(c, load_of(self.router, c.states, c.queues), now, held=held)
