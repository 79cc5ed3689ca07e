"""Copies of a server behind a router, each with a clock of its own.

A copy acts on the others through the router alone. Each has its passes up to its next event put
together; the loop goes on with the event that comes first, of any copy, or the next arrival, and
changes one copy in an iteration.
"""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from infer_jax.compiling import full
from infer_jax.errors import InputError
from infer_jax.replays.cluster import (
    BY_PREFIX,
    ROUTERS,
    Beginnings,
    Planned,
    QueueLoad,
    ServerGroup,
    ServerStates,
    Windows,
    check_servers,
)
from infer_jax.replays.decode_run import StepTime, decode_run, steps_until
from infer_jax.replays.log import RoutedLog
from infer_jax.replays.loops import entries_or_turns, serve_by
from infer_jax.replays.requests import FAR_FUTURE, Requests
from infer_jax.replays.rows import Rows
from infer_jax.replays.rules import Rules
from infer_jax.replays.server import Server
from infer_jax.replays.state import State, change_where, put


@entries_or_turns
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
    entries: int,
) -> RoutedLog:
    """Serve all requests by ``copies`` of a server, each by the same ``rules``.

    A router sends each request to a copy when it arrives, by what the copies have then: requests
    that run are those in the pass that runs. ``begins``: of prompts, for a router by prefix;
    ``windows``: when each copy takes requests, for copies that start late or leave.
    ``width`` and ``entries`` as of ``replay``, of each copy.

    Raises:
        InputError: fewer than one copy, an unknown router, one by prefix without ``begins``.
    """
    check_servers("replay_copies", "copies", copies, router, ROUTERS)
    if router in BY_PREFIX and begins is None:
        raise InputError("replay_copies", "begins", None, f"those of prompts, for {router}")
    group = CopyGroup(step, rules, requests, concurrency, router, begins, windows=windows)
    return group.replay(copies, width, entries)


@cache
def _copies_program(platform: str) -> Callable[..., RoutedLog]:
    """Compiled fully, whatever the environment says: it runs for long."""
    static = ("copies", "router", "width", "entries")
    return jax.jit(replay_copies, static_argnames=static, compiler_options=full(platform))


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
            prefixes, rules that do not poll for requests before every pass, windows in which a
            request finds no copy.
    """
    check_servers("serve_copies", "copies", copies, router, ROUTERS)
    if float(rules.poll) > 1:
        raise InputError("serve_copies", "poll", float(rules.poll), "1: a poll before every pass")
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
    program = _copies_program(jax.default_backend())
    return serve_by(program, step, rules, requests, concurrency, begins, windows, **how)


class CopyGroup(ServerGroup):
    """Copies of a server, each with a clock of its own."""

    def start(self, servers: int, width: int, entries: int) -> ServerStates:
        c = super().start(servers, width, entries)
        like = jax.eval_shape(lambda s: self.plan(self.server(c), s)[1], c.at(c.sent.count)[0])
        none = jax.tree.map(lambda x: jnp.zeros((servers, *x.shape), x.dtype), like)
        yes, end = jnp.ones_like(none.again), jnp.full_like(none.run.end, FAR_FUTURE)
        none = Planned(none.batch._replace(idle=yes), none.run._replace(end=end), yes)
        return c._replace(rows=Rows.of((c.servers, none)))

    def iterate(self, c: ServerStates) -> ServerStates:
        """The next request is sent, if none of the copies' events comes before; else the first is.

        The copy with the event runs what it has put together, or gets the request, and plans anew.
        """
        finished = c.finished
        due, ends = self.due(c, finished), self.planned(c).run.end
        first = jnp.argmin(ends).astype(jnp.int32)
        comes = due <= ends[first]
        now = jnp.where(comes, jnp.maximum(due, c.now), ends[first])
        k = lax.cond(comes, lambda: self.choose(c, self.load_at(c, now), now), lambda: first)
        c = self.send(c._replace(now=now), k, now, comes)
        server, (s, planned) = self.server(c), c.at(k)
        assert planned is not None
        s = server.scheduler.receive(s, c.sent.count - 1, comes)
        at, before = s.log.entries, s.clock.finished
        s = server.advance(s, ~comes & ~planned.again, planned.batch, planned.run)
        path = s.log.path
        assert path.server is not None
        s = s.update(log={"path": path._replace(server=put(path.server, at, k))})
        # requests sent at one time are all routed by the loads before the copies poll
        held = self.due(c, finished + s.clock.finished - before) <= now
        ready = Planned(planned.batch, planned.run._replace(end=now), held | planned.again)

        s, planned = change_where(~held, (s, ready), lambda x: self.plan(server, x[0]))
        return c.put(k, s, planned)

    def plan(self, server: Server, s: State) -> tuple[State, Planned]:
        """A copy after it has tried to feed a prompt, and what it does up to its next event.

        One that has its pass together is left as it is.
        """
        s, again = server.scheduler.compose(s)
        batch = server.batch(s)
        run = server.plan(s, ~again & ~batch.idle, batch)
        end = jnp.where(again | batch.waits, s.clock.now, run.end)
        return s, Planned(batch, run._replace(end=end), again)

    def planned(self, c: ServerStates) -> Planned:
        """What each copy does next."""
        planned = c.rows.trees[1]
        assert planned is not None
        return planned

    def load_at(self, c: ServerStates, now: Array) -> QueueLoad:
        """What the copies have at a time in the passes that run."""
        load = self.load(c)
        if self.router != "minimum_tokens":
            return load

        def growth(s: State, planned: Planned) -> Array:
            """Tokens of the passes before the one that runs."""
            batch = planned.batch
            feeds = batch.decoding, batch.context, s.batch.tokens, s.batch.pairs
            run = decode_run(self.step, *feeds, planned.run.steps, batch.grows)
            before = steps_until(run, now - s.clock.now) - 1
            return jnp.where(batch.idle, 0, batch.grows * before)

        return load._replace(tokens=load.tokens + c.map(growth, self.planned(c)))
