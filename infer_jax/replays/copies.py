"""Copies of a server behind one router that sees their queues: each has a clock of its own.

A copy acts on the others through the router alone. Each has its passes up to its next event put
together; the loop goes on with the event that comes first, of any copy, or the next arrival.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.errors import InputError
from infer_jax.replays.decode_run import StepTime, decode_run, steps_until
from infer_jax.replays.log import RoutedLog
from infer_jax.replays.loops import serve_by
from infer_jax.replays.requests import Requests
from infer_jax.replays.routers import (
    BY_PREFIX,
    ROUTERS,
    Beginnings,
    Cluster,
    QueueLoad,
    ServerGroup,
    check_servers,
    load_of,
)
from infer_jax.replays.rules import Rules
from infer_jax.replays.server import ComposedPass, PassRun
from infer_jax.replays.state import State


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
    check_servers("replay_copies", "copies", copies, router, ROUTERS)
    if router in BY_PREFIX and begins is None:
        raise InputError("replay_copies", "begins", None, f"those of prompts, for {router}")
    group = CopyGroup(step, rules, requests, concurrency, router, begins)
    return group.replay(copies, width, turns)


_program = jax.jit(replay_copies, static_argnames=("copies", "router", "width", "turns"))


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
    check_servers("serve_copies", "copies", copies, router, ROUTERS)
    if float(rules.poll) > 1:
        raise InputError("serve_copies", "poll", float(rules.poll), "1: a look before every pass")
    begins = None
    if router in BY_PREFIX:
        if requests.prefixes is None:
            allowed = "one by load: requests have no prefixes"
            raise InputError("serve_copies", "router", router, allowed)
        begins = Beginnings.of(requests.prefixes, requests.prompt)
    how = {"copies": int(copies), "router": router}
    return serve_by(_program, step, rules, requests, concurrency, begins, **how)


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
