"""Attention ranks that share experts: queues of their own, passes on one clock.

Each rank has a scheduler, slots and a cache. All run their passes together, for the experts of a
layer see the tokens of all ranks: a pass takes as long as the slowest rank's own part and the work
on the tokens of all. A rank that has nothing to feed runs along.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.errors import InputError
from infer_jax.replays.joint import Dispatcher, Joint, RoutedLog, checked_servers
from infer_jax.replays.passes import FedBatch, Ran
from infer_jax.replays.requests import Requests
from infer_jax.replays.routers import BY_LOAD, load_of
from infer_jax.replays.rules import Rules
from infer_jax.replays.scheduler import Server, server_of
from infer_jax.replays.server import checked, sizes_of
from infer_jax.replays.state import NEVER, State, caught_up, where
from infer_jax.replays.stretch import LONGEST, StepTime, seconds_of, steps_until, stretch


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
    checked_servers("replay_ranks", "ranks", ranks, router, BY_LOAD)
    dispatcher = Dispatcher(jax.tree.map(jnp.asarray, requests), concurrency, router)
    group = RankGroup(step, rules.whole(), dispatcher)
    start = group.start(ranks, width, turns)
    return dispatcher.log(lax.while_loop(dispatcher.busy, group.turn, start))


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
    checked(rules, requests, concurrency)
    checked_servers("serve_ranks", "ranks", ranks, router, BY_LOAD)
    if not isinstance(step, SharedStep):
        allowed = "a SharedStep: the seconds of a rank's own part, and of the common one"
        raise InputError("serve_ranks", "step", type(step).__name__, allowed)
    if requests.prefixes is not None:
        raise InputError("serve_ranks", "prefixes", "given", "none: ranks have no such queues")
    if float(rules.poll) > 1:
        raise InputError("serve_ranks", "poll", float(rules.poll), "1: a look before every pass")
    width, turns = sizes_of(rules, requests, concurrency)
    loop = None if concurrency is None else jnp.asarray(concurrency, jnp.int32)
    while True:
        how = {"ranks": ranks, "router": router, "width": width, "turns": turns}
        log = _program(step, rules, requests, loop, **how)
        if log.complete:
            return log
        turns *= 2  # every rank's events are entries of all


@partial(jax.jit, static_argnames=("ranks", "router", "width", "turns"))
def _program(step, rules, requests, concurrency, *, ranks, router, width, turns):
    return replay_ranks(
        step, rules, requests, concurrency, ranks=ranks, router=router, width=width, turns=turns
    )


class RankGroup(NamedTuple):
    """What stays while the ranks' states change."""

    step: SharedStep
    rules: Rules
    dispatcher: Dispatcher

    def server(self, line: Requests) -> Server:
        """One rank."""
        return server_of(self.step.own, self.rules, line, None)

    def start(self, ranks: int, width: int, turns: int) -> Joint:
        """Ranks that have the requests which are there from the start."""
        j = self.dispatcher.start(ranks, lambda line: self.server(line).start(width, turns))
        return self.route(j, jnp.zeros((), j.each.now.dtype), held=False)

    def turn(self, j: Joint) -> Joint:
        """Every rank puts its pass together; then all run, to the next event of any, or wait."""
        ready = jnp.zeros(j.each.turn.shape, bool)

        def some(given: tuple[State, Array]) -> Array:
            return ~jnp.all(given[1])

        def compose(given: tuple[State, Array]) -> tuple[State, Array]:
            s, again, batch = jax.vmap(self.composed)(given[0], j.lines)
            # who waits for the pass that runs: vLLM's rank that had nothing for it, or all of them
            waits = batch.waits & ~again
            waits &= self.rules.alone | jnp.all(batch.idle & ~again)
            caught = jax.vmap(lambda s, waits: where(waits, caught_up(s), s))(s, waits)
            return caught._replace(path=s.path), ~again & ~waits

        each, _ = lax.while_loop(some, compose, (j.each, ready))
        return self.run(j._replace(each=each))

    def composed(self, s: State, line: Requests) -> tuple[State, Array, FedBatch]:
        """A rank after a look at what it might feed, whether it has to look again, and its pass.

        One that has it together is left as it is.
        """
        server = self.server(line)
        s, again = server.compose(s)
        free = s.ends == NEVER
        first = jnp.where(jnp.any(free), jnp.argmax(free), NEVER).astype(jnp.int32)
        s = s._replace(soonest=jnp.min(s.ends), free=first)
        return s, again, server.batch(s)

    def run(self, j: Joint) -> Joint:
        """All ranks after the next passes, or a wait, and the requests that came meanwhile."""
        s, kind = j.each, j.each.now.dtype
        each = jax.vmap(lambda s, line: self.server(line).batch(s))
        batch: FedBatch = each(s, j.lines)
        now, ended = s.now[0], jnp.sum(s.finished)
        nobody = jnp.all(batch.idle)
        came = self.dispatcher.due(j, ended)
        steps, duration, look = lax.cond(
            nobody,
            lambda: (jnp.ones_like(j.sent), jnp.zeros((), kind), jnp.zeros((), kind)),
            lambda: self.passes(j, batch, came - now),
        )
        after = jnp.where(nobody, jnp.maximum(now, came), now + duration)
        ran = Ran(steps, after, look, jnp.asarray(-1))
        go = jnp.asarray(True)
        states = jax.vmap(
            lambda s, line, batch: self.server(line).ran(s, go, batch, ran), (0, 0, 0)
        )(s, j.lines, batch)
        # who came during the pass met the ranks as they were then
        if not self.rules.alone:
            # a rank that ran along has put its next pass together when the others did, and does
            # not know that it was idle
            along = batch.idle & ~nobody
            looked = along & (self.rules.overlap > 0)
            states = states._replace(
                looked=jnp.where(looked, now + look, states.looked),
                ratio=jnp.where(along, s.ratio, states.ratio),
            )
        grown = jnp.where(batch.idle, 0, batch.grows * (steps - 1))
        met = s._replace(context=s.context + grown)
        j = self.route(j._replace(each=met), after, held=False)
        return self.route(j._replace(each=states), after, held=True)

    def passes(self, j: Joint, batch: FedBatch, due: Array) -> tuple[Array, Array, Array]:
        """Passes until the next event of any rank, their time (s), and that of the last look."""
        s, kind, overlap = j.each, j.each.now.dtype, self.rules.overlap > 0

        def limit(s: State, line: Requests, batch: FedBatch) -> Array:
            server = self.server(line)
            mine = server.arrives(s)
            unseen = server.wakes(s, mine) & (mine <= jnp.finfo(kind).tiny)
            most = jnp.where(batch.idle, LONGEST, server.most(s, batch.prompts, mine))
            # one that runs along though requests wait looks again when the pass has run
            refused = batch.idle & server.next(s).waits
            return jnp.where(unseen | refused, 1, most)

        most = jnp.min(jax.vmap(limit)(s, j.lines, batch))
        decoding, fed = (jnp.where(batch.idle, 0, x).astype(kind) for x in (batch.decoding, s.fed))
        verified = decoding * (1.0 + self.rules.drafts)
        split = (verified,) if s.growth is not None else ()
        common = jnp.asarray(self.step.common(verified + fed, *split)).astype(kind)

        def own(index: Array) -> Array:
            """Seconds of each rank's own part in the pass of that number."""
            context = batch.context + batch.grows * index
            decoding, fed = batch.decoding.astype(kind), s.fed.astype(kind)
            spent = jax.vmap(self.step.own)(decoding, context.astype(kind), fed, s.pairs)
            return jnp.where(batch.idle, -1.0, spent)

        def apart(count: Array) -> Array:
            """Whether another rank is the slowest in the last of ``count`` passes."""
            return (count > 1) & (jnp.argmax(own(count - 1)) != slowest)

        first = own(jnp.zeros_like(most))
        slowest = jnp.argmax(first)
        most = lax.while_loop(apart, lambda count: jnp.maximum(count // 2, 1), most)
        of = [x[slowest] for x in (batch.decoding, batch.context, s.fed, s.pairs, batch.grows)]

        def whole(*given: Array) -> Array:
            return self.step.own(*given) + common

        def many() -> tuple[Array, Array, Array]:
            row = stretch(whole, of[0], of[1], of[2], of[3], most, of[4])
            spent = seconds_of(row, most.astype(kind))
            steps = lax.cond(due < spent, lambda: steps_until(row, due), lambda: most)
            looked = jnp.where(overlap, steps - 1, steps)
            look = seconds_of(row, looked.astype(kind))
            return steps, seconds_of(row, steps.astype(kind)), look

        def single() -> tuple[Array, Array, Array]:
            spent = first[slowest] + common
            return most, spent, jnp.where(overlap, 0.0, spent)

        return lax.cond(most > 1, many, single)

    def route(self, j: Joint, now: Array, *, held: bool) -> Joint:
        """Requests that are sent by ``now`` each in the line of a rank: ``Dispatcher.route``."""
        load = load_of(self.dispatcher.router, j.each, j.lines)
        return self.dispatcher.route(j, load, now, held=held)
