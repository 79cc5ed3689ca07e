"""Several servers behind one router: the queue of each, and how the next request is sent.

``CopyGroup`` and ``RankGroup`` say how the servers take turns.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Int

from infer_jax.errors import InputError
from infer_jax.replays.decode_run import StepTime
from infer_jax.replays.log import RoutedLog, log_of
from infer_jax.replays.requests import FAR_FUTURE, Requests
from infer_jax.replays.routers import Beginnings, QueueLoad, chosen
from infer_jax.replays.rules import Rules
from infer_jax.replays.server import Server, server_of
from infer_jax.replays.state import State


def check_servers(where: str, name: str, servers: int, router: str, names: Sequence[str]) -> None:
    """Check that there is a server at least, and a router of one of these ``names``.

    Raises:
        InputError: another router, or no whole number of servers.
    """
    if router not in names:
        raise InputError(where, "router", router, f"one of {', '.join(names)}")
    if servers != int(servers) or servers < 1:
        raise InputError(where, name, servers, "a whole number of at least 1")


class Cluster(NamedTuple):
    """All servers, attention ranks or copies, and the requests that were sent to each."""

    states: State  # with a leading axis, as ``queues``
    queues: Requests  # those that were sent to each server, in order
    sent: Int[Array, ""]  # requests that have a server
    server: Int[Array, " n"]
    position: Int[Array, " n"]  # of a request in the queue of its server


class ServerGroup:
    """What stays while the servers' states change: their pass, rules and requests, and the router.

    ``concurrency``: requests that may be in flight in all servers; ``begins``: how prompts begin,
    where the router compares them.
    """

    def __init__(
        self,
        step: StepTime,
        rules: Rules,
        requests: Requests,
        concurrency: Array | None,
        router: str,
        begins: Beginnings | None = None,
    ):
        self.requests, self.begins = jax.tree.map(jnp.asarray, (requests, begins))
        self.step, self.rules = step, rules.integers()
        self.concurrency, self.router = concurrency, router

    def server(self, queue: Requests) -> Server:
        """One server."""
        return server_of(self.step, self.rules, queue, None)

    def turn(self, c: Cluster) -> Cluster:
        """The servers after their next events."""
        raise NotImplementedError

    def replay(self, servers: int, width: int, turns: int) -> RoutedLog:
        """What happens to all requests."""
        end = lax.while_loop(self.is_busy, self.turn, self.start(servers, width, turns))
        logs = jax.vmap(lambda s, queue: log_of(s, queue, None))(end.states, end.queues)
        ended = jnp.sum(end.states.clock.finished) >= self.requests.count
        return RoutedLog(logs, end.server, end.position, jnp.all(logs.complete) & ended)

    def start(self, servers: int, width: int, turns: int) -> Cluster:
        """Servers that no request was sent to."""
        requests = self.requests
        none = jnp.zeros_like(requests.count)
        queue = requests._replace(arrival=jnp.full_like(requests.arrival, FAR_FUTURE), count=none)
        states, queues = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (servers, *x.shape)),
            (self.server(queue).start(width, turns), queue),
        )
        nowhere = jnp.zeros_like(requests.prompt)
        return Cluster(states, queues, none, nowhere, nowhere)

    def is_busy(self, c: Cluster) -> Array:
        """Whether requests are left, and entries of the path."""
        more = jnp.max(c.states.clock.entries) < c.states.log.path.time.shape[-1]
        return (jnp.sum(c.states.clock.finished) < self.requests.count) & more

    def due(self, c: Cluster, ended: Array) -> Array:
        """When the next request is sent; FAR_FUTURE of one that waits for another."""
        due = self.requests.arrival[c.sent]
        if self.concurrency is None:
            return due
        return jnp.where(c.sent < self.concurrency + ended, due, FAR_FUTURE).astype(due.dtype)

    def route(self, c: Cluster, load: QueueLoad, now: Array, *, held: bool) -> Cluster:
        """Requests that are sent by ``now`` each in the queue of a server.

        ``held``: those that waited for one which has just ended, and are sent at ``now``.
        """
        ended = jnp.sum(c.states.clock.finished)

        def is_due(carry: tuple[Cluster, QueueLoad]) -> Array:
            return self.due(carry[0], ended) <= now

        def send(carry: tuple[Cluster, QueueLoad]) -> tuple[Cluster, QueueLoad]:
            c, load = carry
            server = chosen(self.router, load, c.sent, self.begins, c.server)
            time = now if held else self.requests.arrival[c.sent]
            more = load._replace(
                waiting=load.waiting.at[server].add(1),
                tokens=load.tokens.at[server].add(self.requests.prompt[c.sent]),
            )
            return self._send(c, server, time), more

        return lax.while_loop(is_due, send, (c, load))[0]

    def _send(self, c: Cluster, server: Array, time: Array) -> Cluster:
        """The next request at the end of the queue of a server."""
        at, queues, requests = c.sent, c.queues, self.requests
        position = queues.count[server]

        def append(queue: Array, values: Array) -> Array:
            return queue.at[server, position].set(values[at])

        names = ("prompt", "output", "cached", "drafts")  # of each request
        rows = {n: jax.tree.map(append, getattr(queues, n), getattr(requests, n)) for n in names}
        ours, theirs = requests.prefixes, queues.prefixes
        if ours is not None and theirs is not None:
            parts = ("parts", "depth", "covered", "ends")
            own = {n: append(getattr(theirs, n), getattr(ours, n)) for n in parts}
            rows["prefixes"] = theirs._replace(**own)
        queues = queues._replace(
            arrival=queues.arrival.at[server, position].set(time),
            count=queues.count.at[server].add(1),
            **rows,
        )
        return c._replace(
            queues=queues,
            sent=at + 1,
            server=c.server.at[at].set(server.astype(jnp.int32)),
            position=c.position.at[at].set(position),
        )
