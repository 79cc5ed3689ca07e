"""Servers behind one router: the line of requests of each, and the sending of the next one."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from infer_jax.errors import InputError
from infer_jax.replays.log import Log, log_of
from infer_jax.replays.requests import FAR, Requests
from infer_jax.replays.routers import Beginnings, QueueLoad, chosen
from infer_jax.replays.state import State


def checked_servers(where: str, name: str, servers: int, router: str, names: Sequence[str]) -> None:
    """Do nothing where there is a server at least, and a router of one of these ``names``.

    Raises:
        InputError: another router, or no whole number of servers.
    """
    if router not in names:
        raise InputError(where, "router", router, f"one of {', '.join(names)}")
    if servers != int(servers) or servers < 1:
        raise InputError(where, name, servers, "a whole number of at least 1")


class Joint(NamedTuple):
    """All servers, attention ranks or copies, and the requests that were sent to each."""

    each: State  # with a leading axis, as ``lines``
    lines: Requests  # those that were sent to each server, as they were
    sent: Int[Array, ""]  # requests that have a server
    rank: Int[Array, " n"]
    place: Int[Array, " n"]  # of a request in the line of its server


class RoutedLog(NamedTuple):
    """The log of each server, with a leading axis; the server of each request, its place there."""

    logs: Log
    rank: Int[Array, " n"]
    place: Int[Array, " n"]
    complete: Array

    def of(self, name: str) -> Float[Array, " n"]:
        """A column of all requests, in their own order."""
        return getattr(self.logs, name)[self.rank, self.place]


class Dispatcher(NamedTuple):
    """The requests of all servers, how many may be in flight, and the router."""

    requests: Requests
    concurrency: Array | None
    router: str
    begins: Beginnings | None = None  # of prompts, where the router compares them

    def start(self, servers: int, state: Callable[[Requests], State]) -> Joint:
        """Servers that no request was sent to; ``state`` starts one with its line."""
        asked = self.requests
        none = jnp.zeros_like(asked.count)
        line = asked._replace(arrival=jnp.full_like(asked.arrival, FAR), count=none)

        def many(x: Array) -> Array:
            return jnp.broadcast_to(x, (servers, *x.shape))

        each, lines = jax.tree.map(many, (state(line), line))
        where_to = jnp.zeros_like(asked.prompt)
        return Joint(each, lines, none, where_to, where_to)

    def busy(self, j: Joint) -> Array:
        """Whether requests are left, and room for the path."""
        there = jnp.max(j.each.turn) < j.each.path.time.shape[-1]
        return (jnp.sum(j.each.finished) < self.requests.count) & there

    def due(self, j: Joint, ended: Array) -> Array:
        """When the next request is sent, if that is known: FAR of one that waits for another."""
        due = self.requests.arrival[j.sent]
        if self.concurrency is None:
            return due
        return jnp.where(j.sent < self.concurrency + ended, due, FAR).astype(due.dtype)

    def route(self, j: Joint, load: QueueLoad, now: Array, *, held: bool) -> Joint:
        """Requests that are sent by ``now`` each in the line of a server.

        ``held``: those that waited for one which has just ended, and are sent at ``now``.
        """
        ended = jnp.sum(j.each.finished)

        def come(given: tuple[Joint, QueueLoad]) -> Array:
            return self.due(given[0], ended) <= now

        def send(given: tuple[Joint, QueueLoad]) -> tuple[Joint, QueueLoad]:
            j, load = given
            rank = chosen(self.router, load, j.sent, self.begins, j.rank)
            time = now if held else self.requests.arrival[j.sent]
            more = load._replace(
                waiting=load.waiting.at[rank].add(1),
                tokens=load.tokens.at[rank].add(self.requests.prompt[j.sent]),
            )
            return self._sent(j, rank, time), more

        return lax.while_loop(come, send, (j, load))[0]

    def _sent(self, j: Joint, rank: Array, time: Array) -> Joint:
        """The next request at the end of the line of a server."""
        at, lines, asked = j.sent, j.lines, self.requests
        place = lines.count[rank]

        def moved(line: Array, given: Array) -> Array:
            return line.at[rank, place].set(given[at])

        names = ("prompt", "output", "cached", "drafts")  # of each request
        rows = {n: jax.tree.map(moved, getattr(lines, n), getattr(asked, n)) for n in names}
        if asked.prefixes is not None and lines.prefixes is not None:
            parts = ("parts", "depth", "covered", "ends")
            own = {n: moved(getattr(lines.prefixes, n), getattr(asked.prefixes, n)) for n in parts}
            rows["prefixes"] = lines.prefixes._replace(**own)
        lines = lines._replace(
            arrival=lines.arrival.at[rank, place].set(time),
            count=lines.count.at[rank].add(1),
            **rows,
        )
        return j._replace(
            lines=lines, sent=at + 1, rank=j.rank.at[at].set(rank.astype(jnp.int32)),
            place=j.place.at[at].set(place),
        )  # fmt: skip

    def log(self, j: Joint) -> RoutedLog:
        """What happened to all requests."""
        logs = jax.vmap(lambda s, line: log_of(s, line, None))(j.each, j.lines)
        complete = jnp.all(logs.complete) & (jnp.sum(j.each.finished) >= self.requests.count)
        return RoutedLog(logs, j.rank, j.place, complete)
