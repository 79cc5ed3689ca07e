"""Several servers behind a router: what is in each, and one record of all requests.

A router sends a request to servers round robin, to the one with the least to do, or by prefix. A
server holds its slots, the pass that it puts together and the head of its queue, so that many
servers take as much memory as one beside what they serve. Requests and what happens to them are in
one set of arrays: those of a server are linked, each to the one that was sent there next.
``CopyGroup`` and ``RankGroup`` say which server runs next.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from infer_jax.errors import InputError
from infer_jax.replays.decode_run import StepTime
from infer_jax.replays.log import RoutedLog, routed_log_of
from infer_jax.replays.requests import FAR_FUTURE, Prefixes, Requests
from infer_jax.replays.rows import Rows
from infer_jax.replays.rules import Rules
from infer_jax.replays.server import ComposedPass, PassRun, Server
from infer_jax.replays.state import UNREACHED, Record, State, note, put

BY_LOAD = ("round_robin", "shortest_queue", "minimum_tokens", "weighted_queue")
BY_PREFIX = ("cache_aware", "prefix_hash")
ROUTERS = (*BY_LOAD, *BY_PREFIX)

WAITING = 4  # a request that waits counts as this many that run
# of ``cache_aware``: the share of a prompt that must have been seen, and what loads count as uneven
MIN_SHARE, UNEVEN_REQUESTS, UNEVEN_RATIO = 0.3, 64, 1.5
# of ``prefix_hash``: tokens that are hashed, and the load over the mean that a server may have
HASHED_TOKENS, MAX_LOAD = 256, 1.25


class QueueLoad(NamedTuple):
    """What each server has, as its router knows."""

    waiting: Int[Array, " servers"]  # requests
    running: Int[Array, " servers"]
    tokens: Int[Array, " servers"]  # in the cache, and of prompts that wait; 0 where nobody asks


class Windows(NamedTuple):
    """When each server takes requests, s; after its end it finishes what it has, and leaves."""

    begin: Float[Array, " servers"]
    end: Float[Array, " servers"]

    def open_at(self, time: Array) -> Array:
        """Which servers take a request then."""
        return (self.begin <= time) & (time < self.end)


class Beginnings(NamedTuple):
    """How the prompt of each request begins, in whole blocks."""

    like: Int[np.ndarray, " n"]  # the first of the earlier ones with the longest equal beginning
    share: Float[np.ndarray, " n"]  # of its tokens that this one begins with
    home: Float[np.ndarray, " n"]  # where the hash of its first tokens falls, from 0 to 1

    @classmethod
    def of(cls, prefixes: Prefixes, prompt: ArrayLike) -> "Beginnings":
        """Those of prompts of ``prompt`` tokens, in the order in which they are sent.

        >>> p = Prefixes.of([[1, 2], [1, 3], [4]], [24, 24, 8], length=8, block=8)
        >>> Beginnings.of(p, [24, 24, 8]).share.round(2).tolist()
        [0.0, 0.33, 0.0]
        """
        parts, depth, sizes = (
            np.asarray(x) for x in (prefixes.parts, prefixes.depth, prefixes.blocks)
        )
        tokens, block = np.asarray(prompt), int(prefixes.block)
        first: dict[int, int] = {}
        homes: dict[tuple[str, int], float] = {}
        random = np.random.default_rng(0)
        columns = np.zeros((3, len(parts)))
        for i, row in enumerate(parts):
            like, seen, there = 0, 0, 0
            wanted = min(HASHED_TOKENS, int(tokens[i])) // block
            key = ("alone", i)
            for part in row[: depth[i]].tolist():
                if there < wanted <= there + sizes[part]:
                    key = ("part", part)
                there += int(sizes[part])
                if first.setdefault(part, i) < i:
                    like, seen = first[part], there
            home = homes.setdefault(key, random.random())
            columns[:, i] = like, seen * block / max(int(tokens[i]), 1), home
        return cls(columns[0].astype(np.int32), columns[1], columns[2])


def chosen(
    router: str, load: QueueLoad, at: Array, begins: Beginnings | None, rank: Array,
    there: Array | None = None,
) -> Array:  # fmt: skip
    """The server that gets the request of number ``at``; ``rank``: the servers of earlier ones.

    ``there``: which servers take requests, all where it is None; turns and hashes go over these.

    ``round_robin``, ``shortest_queue`` (waiting and running requests) and ``minimum_tokens``:
    SGLang's ``--load-balance-method`` (sgl-project/sglang, python/sglang/srt/managers/
    data_parallel_controller.py at 000a3db). ``weighted_queue``: vLLM's, 4 times those that wait
    and those that run (vllm-project/vllm, vllm/v1/engine/core_client.py of 0.10.2,
    ``DPLBAsyncMPClient.get_core_engine_for_request``; a newer one at 00080ee counts all
    alike). The first of equal servers gets it.

    ``cache_aware``: SGLang's router (sgl-model-gateway/src/policies/cache_aware.rs at 053b63f and
    tree.rs at 03744db; the numbers of bindings/python/src/sglang_router/router_args.py at 05e589a).
    Where more than ``MIN_SHARE`` of a prompt has been sent before, it goes where the first of the
    prompts with the longest equal beginning went; else, and where loads are uneven, to the
    shortest queue. ``prefix_hash``: prefix_hash.rs at 065f331; where the hash of the first
    ``HASHED_TOKENS`` tokens falls, or to the shortest queue if that has over ``MAX_LOAD`` times the
    mean.
    """
    queue = load.waiting + load.running
    if there is None:
        there = jnp.ones_like(queue, bool)
    servers = jnp.sum(there, dtype=jnp.int32)

    def least_loaded(values: Array) -> Array:
        """The first server with the least, of those that take requests."""
        return jnp.argmin(jnp.where(there, values, UNREACHED))

    def numbered(k: Array) -> Array:
        """The server of that number among those that take requests."""
        return jnp.argmax(jnp.cumsum(there) > k)

    if router == "round_robin":
        return numbered(jnp.remainder(at, servers))
    if router == "minimum_tokens":
        return least_loaded(load.tokens)
    if router == "weighted_queue":
        return least_loaded(WAITING * load.waiting + load.running)
    shortest = least_loaded(queue)
    if router == "shortest_queue":
        return shortest
    assert begins is not None
    if router == "cache_aware":
        most = jnp.max(queue, initial=0, where=there)
        few = jnp.min(queue, initial=UNREACHED, where=there)
        uneven = (most - few > UNEVEN_REQUESTS) & (most > UNEVEN_RATIO * few)
        alike = rank[jnp.asarray(begins.like)[at]]
        known = (jnp.asarray(begins.share)[at] > MIN_SHARE) & ~uneven
        return jnp.where(known & there[alike], alike, shortest)
    home = numbered(jnp.floor(jnp.asarray(begins.home)[at] * servers))
    total = jnp.sum(queue, where=there)
    # whole numbers on both sides of a tie
    return jnp.where(queue[home] * servers <= MAX_LOAD * (total + 1), home, shortest)


def check_servers(where: str, name: str, servers: int, router: str, names: Sequence[str]) -> None:
    """Check that there is at least one server, and that the router is one of ``names``.

    Raises:
        InputError: another router, or no whole number of servers.
    """
    if router not in names:
        raise InputError(where, "router", router, f"one of {', '.join(names)}")
    if servers != int(servers) or servers < 1:
        raise InputError(where, name, servers, "a whole number of at least 1")


T = TypeVar("T")


class Planned(NamedTuple):
    """The pass that a copy has put together, and the passes to its next event."""

    batch: ComposedPass
    run: PassRun
    again: Array  # whether more may be fed to it, so that the passes may not run yet


class Sent(NamedTuple):
    """Requests that have a server."""

    count: Int[Array, ""]
    server: Int[Array, " n"]
    # of each server: how many, their prompt tokens, and the last
    requests: Int[Array, " servers"]
    tokens: Int[Array, " servers"]
    last: Int[Array, " servers"]


class ServerStates(NamedTuple):
    """The states of a group's servers with one record of all, and the requests sent to them.

    It is for a ``ServerGroup`` what a ``State`` is for a ``Server``.
    """

    rows: Rows[tuple[State, Planned | None]]  # states without record, and what copies do next
    record: Record
    requests: Requests  # with the times at which they were sent
    sent: Sent
    now: Float[Array, ""]  # when the last event was, s

    @property
    def servers(self) -> State:
        """The states with a leading axis, without their record."""
        return self.rows.trees[0]

    def with_servers(self, servers: State) -> "ServerStates":
        """With all servers changed, of which none has planned what it does next."""
        return self._replace(rows=Rows.of((servers, None)))

    @property
    def finished(self) -> Int[Array, ""]:
        """Requests that have their last token."""
        return jnp.sum(self.servers.clock.finished, dtype=jnp.int32)

    def at(self, k: Array) -> tuple[State, Planned | None]:
        """One server, with the record of all, and what it does next."""
        s, planned = self.rows.at(k)
        return s._replace(log=self.record), planned

    def put(self, k: Array, s: State, planned: Planned | None = None) -> "ServerStates":
        """With one server changed."""
        rows = self.rows.put(k, (s._replace(log=None), planned))
        return self._replace(rows=rows, record=s.log)

    def map(self, ask: Callable[..., T], *more: object) -> T:
        """``ask`` of every server, side by side, which leaves the record as it is."""
        return jax.vmap(lambda s, *x: ask(s._replace(log=self.record), *x))(self.servers, *more)

    def each(self, act: Callable[[State], tuple[State, T]]) -> tuple["ServerStates", T]:
        """All servers changed, one after another, and what ``act`` says of each beside that."""

        def body(record: Record, row: Rows) -> tuple[Record, tuple[Rows, T]]:
            s, answer = act(row.trees[0]._replace(log=record))
            return s.log, (Rows.of((s._replace(log=None), None), 0), answer)

        record, (rows, answers) = lax.scan(body, self.record, self.rows)
        return self._replace(rows=rows, record=record), answers


@dataclass(eq=False)
class ServerGroup:
    """Several servers' loop: the time of a pass, rules, requests and router; none of it changes.

    Ranks and copies are subclasses; ``ServerStates`` is what changes.

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

    def server(self, c: ServerStates) -> Server:
        """One server, of those requests that were sent."""
        return Server.of(self.step, self.rules, c.requests, None)

    def iterate(self, c: ServerStates) -> ServerStates:
        """The servers after their next events."""
        raise NotImplementedError

    def replay(self, servers: int, width: int, entries: int) -> RoutedLog:
        """The log of all requests."""
        end = lax.while_loop(self.is_busy, self.iterate, self.start(servers, width, entries))
        return routed_log_of(end.servers, end.record, end.requests, end.sent.server)

    def start(self, servers: int, width: int, entries: int) -> ServerStates:
        """Servers that no request was sent to, with room for ``entries`` entries of all."""
        requests, none = self.requests, jnp.zeros(servers, jnp.int32)
        size, zero = requests.prompt.shape[0], jnp.zeros((), jnp.int32)
        s = Server.of(self.step, self.rules, requests, None).start(width, entries)
        path = s.log.path._replace(server=jnp.zeros(entries, jnp.int32))
        own = s._replace(log=None).update(queue={"head": zero + size - 1, "next": zero + size - 1})
        own = jax.tree.map(lambda x: jnp.broadcast_to(x, (servers, *x.shape)), own)
        requests = requests._replace(
            arrival=jnp.full_like(requests.arrival, FAR_FUTURE),
            following=jnp.full_like(requests.prompt, size - 1),
        )
        sent = Sent(zero, jnp.zeros_like(requests.prompt), none, none, none + size - 1)
        record = s.log._replace(path=path)
        return ServerStates(Rows.of((own, None)), record, requests, sent, s.clock.now)

    def is_busy(self, c: ServerStates) -> Array:
        """Whether requests are left, and entries of the path."""
        more = c.record.entries < c.record.path.time.shape[0]
        return (c.finished < self.requests.count) & more

    def due(self, c: ServerStates, finished: Array) -> Array:
        """When the next request is sent; FAR_FUTURE of one that waits for another."""
        at = c.sent.count
        due = self.requests.arrival[at]
        if self.concurrency is None:
            return due
        return jnp.where(at < self.concurrency + finished, due, FAR_FUTURE).astype(due.dtype)

    def load(self, c: ServerStates) -> QueueLoad:
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

    def choose(self, c: ServerStates, load: QueueLoad, time: Array) -> Array:
        """The server of the next request, at the time when it is sent."""
        there = None if self.windows is None else self.windows.open_at(time)
        at, servers = c.sent.count, c.sent.server
        return chosen(self.router, load, at, self.begins, servers, there).astype(jnp.int32)

    def send(self, c: ServerStates, k: Array, time: Array, ok: Array) -> ServerStates:
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
