"""Several servers behind a router: what is in each, and one record of all requests.

A server holds its slots, the pass that it puts together and the head of its queue, so that many
servers take as much memory as one beside what they serve. Requests and what happens to them are in
one set of arrays: those of a server are linked, each to the one that was sent there next.
``CopyGroup`` and ``RankGroup`` say how the servers take turns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from infer_jax.replays.decode_run import Rows, StepTime
from infer_jax.replays.log import RoutedLog, routed_log_of
from infer_jax.replays.requests import FAR_FUTURE, Requests
from infer_jax.replays.routers import Beginnings, QueueLoad, Windows, chosen
from infer_jax.replays.rules import Rules
from infer_jax.replays.server import ComposedPass, PassRun, Server, server_of
from infer_jax.replays.state import Record, State, note, put

T = TypeVar("T")


class Planned(NamedTuple):
    """The pass that a copy has put together, the passes to its next event, and when that is."""

    batch: ComposedPass
    run: PassRun
    again: Array  # whether more may be fed to it, so that the passes may not run yet
    end: Array


class Sent(NamedTuple):
    """Requests that have a server."""

    count: Int[Array, ""]
    server: Int[Array, " n"]
    # of each server: how many, their prompt tokens, and the last
    requests: Int[Array, " servers"]
    tokens: Int[Array, " servers"]
    last: Int[Array, " servers"]


class Cluster(NamedTuple):
    """All servers, attention ranks or copies, and the requests that were sent to them."""

    rows: Rows[tuple[State, Planned | None]]  # states without record, and what copies do next
    record: Record
    requests: Requests  # with the times at which they were sent
    sent: Sent
    now: Float[Array, ""]  # when the last event was, s

    @property
    def servers(self) -> State:
        """The states with a leading axis, without their record."""
        return self.rows.trees[0]

    @property
    def finished(self) -> Int[Array, ""]:
        """Requests that have their last token."""
        return jnp.sum(self.servers.clock.finished, dtype=jnp.int32)

    def at(self, k: Array) -> tuple[State, Planned | None]:
        """One server, with the record of all, and what it does next."""
        s, planned = self.rows.at(k)
        return s._replace(log=self.record), planned

    def put(self, k: Array, s: State, planned: Planned | None = None) -> "Cluster":
        """With one server changed."""
        rows = self.rows.put(k, (s._replace(log=None), planned))
        return self._replace(rows=rows, record=s.log)

    def look(self, look: Callable[..., T], *more: object) -> T:
        """What ``look`` says of every server, side by side; it leaves the record as it is."""
        return jax.vmap(lambda s, *x: look(s._replace(log=self.record), *x))(self.servers, *more)

    def each(self, act: Callable[..., tuple[State, T]], *more: object) -> tuple["Cluster", T]:
        """All servers changed, one after another, and what ``act`` says of each beside that."""

        def body(record: Record, x: tuple[Rows, tuple]) -> tuple[Record, tuple[Rows, T]]:
            s, said = act(x[0].trees[0]._replace(log=record), *x[1])
            return s.log, (Rows.of((s._replace(log=None), None), 0), said)

        record, (rows, said) = lax.scan(body, self.record, (self.rows, more))
        return self._replace(rows=rows, record=record), said


@dataclass(eq=False)
class ServerGroup:
    """What stays while the servers' states change: their pass, rules and requests, and the router.

    ``concurrency``: requests that may be in flight in all servers; ``begins``: how prompts begin,
    where the router compares them; ``common``: seconds of the part of a pass that all run together;
    ``windows``: when each server takes requests, at all times where it is None.
    """

    step: StepTime
    rules: Rules
    requests: Requests
    concurrency: Array | None
    router: str
    begins: Beginnings | None = None
    common: Callable[..., Array] | None = None
    windows: Windows | None = None

    def __post_init__(self) -> None:
        given = self.requests, self.begins
        self.requests, self.begins = jax.tree.map(jnp.asarray, given)
        self.rules = self.rules.integers()

    def server(self, c: Cluster) -> Server:
        """One server, of those requests that were sent."""
        return server_of(self.step, self.rules, c.requests, None)

    def turn(self, c: Cluster) -> Cluster:
        """The servers after their next events."""
        raise NotImplementedError

    def replay(self, servers: int, width: int, turns: int) -> RoutedLog:
        """What happens to all requests."""
        end = lax.while_loop(self.is_busy, self.turn, self.start(servers, width, turns))
        return routed_log_of(end.servers, end.record, end.requests, end.sent.server)

    def start(self, servers: int, width: int, entries: int) -> Cluster:
        """Servers that no request was sent to, with room for ``entries`` entries of all."""
        requests, none = self.requests, jnp.zeros(servers, jnp.int32)
        size, zero = requests.prompt.shape[0], jnp.zeros((), jnp.int32)
        s = server_of(self.step, self.rules, requests, None).start(width, entries)
        path = s.log.path._replace(server=jnp.zeros(entries, jnp.int32))
        own = s._replace(log=None).update(queue={"head": zero + size - 1, "next": zero + size - 1})
        own = jax.tree.map(lambda x: jnp.broadcast_to(x, (servers, *x.shape)), own)
        requests = requests._replace(
            arrival=jnp.full_like(requests.arrival, FAR_FUTURE),
            following=jnp.full_like(requests.prompt, size - 1),
        )
        sent = Sent(zero, jnp.zeros_like(requests.prompt), none, none, none + size - 1)
        record = s.log._replace(path=path)
        return Cluster(Rows.of((own, None)), record, requests, sent, s.clock.now)

    def is_busy(self, c: Cluster) -> Array:
        """Whether requests are left, and entries of the path."""
        more = c.record.entries < c.record.path.time.shape[0]
        return (c.finished < self.requests.count) & more

    def due(self, c: Cluster, finished: Array) -> Array:
        """When the next request is sent; FAR_FUTURE of one that waits for another."""
        at = c.sent.count
        due = self.requests.arrival[at]
        if self.concurrency is None:
            return due
        return jnp.where(at < self.concurrency + finished, due, FAR_FUTURE).astype(due.dtype)

    def load(self, c: Cluster) -> QueueLoad:
        """What every server has."""
        servers = c.servers
        running = servers.slots.running
        waiting = c.sent.requests - servers.clock.finished - running
        tokens = jnp.zeros_like(waiting)
        if self.router == "minimum_tokens":
            # prompts that end in the pass that runs are in no context yet
            batch = servers.batch
            ends = jnp.where(batch.is_new, 0, batch.contexts - batch.prompts)
            tokens = servers.slots.context + ends + c.sent.tokens - servers.queue.computed
        return QueueLoad(waiting, running, tokens)

    def choose(self, c: Cluster, load: QueueLoad, time: Array) -> Array:
        """The server of the next request, at the time when it is sent."""
        there = None if self.windows is None else self.windows.open_at(time)
        at, servers = c.sent.count, c.sent.server
        return chosen(self.router, load, at, self.begins, servers, there).astype(jnp.int32)

    def send(self, c: Cluster, k: Array, time: Array, ok: Array) -> Cluster:
        """The next request linked behind those of a server, where ``ok``."""
        sent, requests, at = c.sent, c.requests, c.sent.count
        assert requests.following is not None
        none, before = requests.prompt.shape[0] - 1, sent.last[k]
        # where not, the next request is still to come, and its server is chosen later
        time = jnp.where(ok, time, FAR_FUTURE)
        requests = requests._replace(
            arrival=put(requests.arrival, at, time),
            following=note(requests.following, before, at, ok & (before < none)),
        )
        sent = Sent(
            at + ok,
            put(sent.server, at, k),
            sent.requests.at[k].add(ok),
            sent.tokens.at[k].add(jnp.where(ok, requests.prompt[at], 0)),
            sent.last.at[k].set(jnp.where(ok, at, before)),
        )
        return c._replace(requests=requests, sent=sent)
