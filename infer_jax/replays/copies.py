"""Copies of a server behind one router that sees their queues: each has a clock of its own.

A copy acts on the others through the router alone. Each has its passes up to its next event put
together; the loop goes on with the event that comes first, of any copy, or the next arrival.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.errors import InputError
from infer_jax.replays.joint import Dispatcher, Joint, RoutedLog, checked_servers
from infer_jax.replays.passes import FedBatch, Ran
from infer_jax.replays.requests import Requests
from infer_jax.replays.routers import BY_PREFIX, ROUTERS, Beginnings, QueueLoad, load_of
from infer_jax.replays.rules import Rules
from infer_jax.replays.scheduler import Server, server_of
from infer_jax.replays.server import checked, sizes_of
from infer_jax.replays.state import State
from infer_jax.replays.stretch import StepTime, steps_until, stretch


def replay_copies(
    step: StepTime,
    rules: Rules,
    requests: Requests,
    concurrency: Array | None = None,
    begins: Beginnings | None = None,
    *,
    copies: int,
    router: str,
    width: int,
    turns: int,
) -> RoutedLog:
    """Serve all requests by ``copies`` of a server, each by the same ``rules``.

    A router sends each request to a copy when it arrives, by what the copies have then: requests
    that run are those in the pass that runs. ``begins``: of prompts, for a router by prefix.
    ``width`` and ``turns`` as of ``replay``, of each copy.

    Raises:
        InputError: fewer than one copy, an unknown router, one by prefix without ``begins``.
    """
    checked_servers("replay_copies", "copies", copies, router, ROUTERS)
    if router in BY_PREFIX and begins is None:
        raise InputError("replay_copies", "begins", None, f"those of prompts, for {router}")
    asked, begins = jax.tree.map(jnp.asarray, (requests, begins))
    group = CopyGroup(step, rules.whole(), Dispatcher(asked, concurrency, router, begins))
    start = group.dispatcher.start(copies, lambda line: group.server(line).start(width, turns))
    return group.dispatcher.log(lax.while_loop(group.dispatcher.busy, group.turn, start))


def serve_copies(
    step: StepTime,
    rules: Rules,
    requests: Requests,
    copies: int,
    router: str,
    concurrency: int | None = None,
) -> RoutedLog:
    """Serve all requests, as ``replay_copies`` does, and see that no copy has one it never holds.

    Raises:
        InputError: as ``serve``; fewer than one copy, an unknown router, one by prefix without
            prefixes, rules that do not look for requests before every pass.
    """
    checked(rules, requests, concurrency)
    checked_servers("serve_copies", "copies", copies, router, ROUTERS)
    if router in BY_PREFIX and requests.prefixes is None:
        raise InputError("serve_copies", "router", router, "one by load: requests have no prefixes")
    if float(rules.poll) > 1:
        raise InputError("serve_copies", "poll", float(rules.poll), "1: a look before every pass")
    begins = None
    if router in BY_PREFIX and requests.prefixes is not None:
        begins = Beginnings.of(requests.prefixes, requests.prompt)
    width, turns = sizes_of(rules, requests, concurrency)
    loop = None if concurrency is None else jnp.asarray(concurrency, jnp.int32)
    while True:
        how = {"copies": int(copies), "router": router, "width": width, "turns": turns}
        log = _program(step, rules, requests, loop, begins, **how)
        if log.complete:
            return log
        turns *= 2  # preempted requests take more of them


@partial(jax.jit, static_argnames=("copies", "router", "width", "turns"))
def _program(step, rules, requests, concurrency, begins, *, copies, router, width, turns):
    how = {"copies": copies, "router": router, "width": width, "turns": turns}
    return replay_copies(step, rules, requests, concurrency, begins, **how)


class Planned(NamedTuple):
    """The pass that each copy has put together, the passes to its next event, and when that is."""

    batch: FedBatch
    ran: Ran
    again: Array  # whether more may be fed to it, so that the passes may not run yet
    end: Array


class CopyGroup(NamedTuple):
    """What stays while the copies' states change."""

    step: StepTime
    rules: Rules
    dispatcher: Dispatcher

    def server(self, line: Requests) -> Server:
        """One copy."""
        return server_of(self.step, self.rules, line, None)

    def turn(self, j: Joint) -> Joint:
        """The next request is sent, if none of the copies' events comes before; else these run.

        Either is masked and none is a branch, which would copy the arrays of all requests.
        """
        each, planned = jax.vmap(self.planned)(j.each, j.lines)
        j, first = j._replace(each=each), jnp.min(planned.end)
        due = self.dispatcher.due(j, jnp.sum(each.finished))
        comes = due <= first
        load = self.load(j, planned, due, jnp.zeros_like(planned.again))
        j = self.dispatcher.route(j, load, jnp.where(comes, due, -1.0), held=False)
        return self.run(j, planned, due, jnp.where(comes, -1.0, first))

    def planned(self, s: State, line: Requests) -> tuple[State, Planned]:
        """A copy after a look at what it might feed, and what it does up to its next event.

        One that has its pass together is left as it is.
        """
        server = self.server(line)
        s, again = server.compose(s)
        batch = server.batch(s)
        ran = server.planned(s, ~batch.idle, batch)
        end = jnp.where(again | batch.waits, s.now, ran.now)
        return s, Planned(batch, ran, again, end)

    def run(self, j: Joint, planned: Planned, due: Array, first: Array) -> Joint:
        """All copies whose event comes before the next request; if one waits for it, the first.

        None where ``first``, the time of the first event, is negative.
        """
        go = ~planned.again & (planned.end < due) & (first >= 0.0)
        if self.dispatcher.concurrency is not None:
            go &= planned.end <= first

        def one(s: State, line: Requests, go: Array, batch: FedBatch, ran: Ran) -> State:
            return self.server(line).after(s, go, batch, ran)

        each = jax.vmap(one)(j.each, j.lines, go, planned.batch, planned.ran)
        j = j._replace(each=each)
        if self.dispatcher.concurrency is None:
            return j
        return self.dispatcher.route(j, self.load(j, planned, first, go), first, held=True)

    def load(self, j: Joint, planned: Planned, now: Array, ran: Array) -> QueueLoad:
        """What the copies have at a time in the passes that run, or where these ``ran``."""
        each = j.each
        if self.dispatcher.router == "minimum_tokens":

            def grown(s: State, batch: FedBatch, steps: Array) -> Array:
                """Tokens of the passes before the one that runs."""
                given = batch.decoding, batch.context, s.fed, s.pairs, steps, batch.grows
                before = steps_until(stretch(self.step, *given), now - s.now) - 1
                return jnp.where(batch.idle, 0, batch.grows * before)

            more = jax.vmap(grown)(each, planned.batch, planned.ran.steps)
            each = each._replace(context=each.context + jnp.where(ran, 0, more))
        return load_of(self.dispatcher.router, each, j.lines)
