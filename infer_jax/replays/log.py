"""The log of a replay: times of every request, queue, batch and cache over time; their slopes.

A replay decides (who is admitted when, how many passes until the next event); what is left is a sum
of step times. Along a path that is held, times are smooth functions of the step's coefficients and
of arrivals, so that any mode of differentiation goes through. The slope is that of the path: where
a number moves an event across the end of a pass, the path changes, and that jump is in no slope.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from infer_jax.replays.decode_run import StepTime, decode_run, run_time
from infer_jax.replays.requests import FAR_FUTURE, Requests, power_of_two
from infer_jax.replays.state import UNREACHED, Path, Record, State


class Marks(NamedTuple):
    """For each request, the entries of the path at which it arrived, was admitted and so on."""

    before: Int[Array, " n"]  # it was admitted at its end, or at the start where it is -1
    first: Int[Array, " n"]  # at its end
    last: Int[Array, " n"]  # at its end
    arrival: Int[Array, " n"]  # at its end: whose finish let it in (closed loop), or -1


class Log(NamedTuple):
    """Times of every request (s) and the series of the server, both padded at the end."""

    arrival: Float[Array, " n"]
    admitted: Float[Array, " n"]
    first: Float[Array, " n"]
    last: Float[Array, " n"]
    output: Int[Array, " n"]
    count: Int[Array, ""]  # requests; the rest of the arrays is padding
    path: Path
    marks: Marks
    preempted: Int[Array, " n"]  # times
    complete: Bool[Array, ""]  # whether all were served: else the path was too short
    entries: Int[Array, ""]  # of the path
    cached: Int[Array, " n"] | None = None  # prompt tokens that were found in a prefix cache

    @property
    def turns(self) -> Int[Array, ""]:
        """``entries``, by its old name."""
        return self.entries

    @property
    def there(self) -> Bool[Array, " n"]:
        """Which entries are requests."""
        return jnp.arange(self.arrival.shape[-1]) < self.count

    def mean(self, values: Array, where: Array | None = None) -> Float[Array, ""]:
        """The mean of a value of each request."""
        counted = self.there if where is None else self.there & where
        return jnp.sum(jnp.where(counted, values, 0.0)) / jnp.maximum(jnp.sum(counted), 1)

    @property
    def ttft(self) -> Float[Array, " n"]:
        """Seconds to the first token, of each request."""
        return self.first - self.arrival

    @property
    def tpot(self) -> Float[Array, " n"]:
        """Seconds a token after the first, of each request; 0 of those that have one token."""
        return (self.last - self.first) / jnp.maximum(self.output - 1, 1)

    @property
    def latency(self) -> Float[Array, " n"]:
        """Seconds from arrival to last token, of each request."""
        return self.last - self.arrival

    @property
    def queue(self) -> Int[Array, " t"]:
        """Requests that have arrived and do not run, at the end of each entry of the path."""
        order = jnp.sort(jnp.where(self.there, self.arrival, FAR_FUTURE))
        came = jnp.searchsorted(order, self.path.time, side="right")
        return came - self.path.finished - self.path.running


class RoutedLog(NamedTuple):
    """The log of several servers: one of all requests, and the server of each.

    Its path has the entries of one server after those of another: those of server k are from
    ``begin[k]`` up to ``begin[k + 1]``.
    """

    log: Log
    server: Int[Array, " n"]
    begin: Int[Array, " servers+1"]

    @property
    def complete(self) -> Bool[Array, ""]:
        """Whether all were served."""
        return self.log.complete

    def servers(self) -> list[Log]:
        """The log of each server alone, as NumPy arrays, all padded to one length."""
        log, server, begin = jax.device_get((self.log, self.server, self.begin))
        server, ends = server[: int(log.count)], begin[1:]
        entries, counts = np.diff(begin), np.bincount(server, minlength=len(ends))
        sizes = [power_of_two(max(x.max(), 1)) for x in (counts, entries)]
        spans = map(slice, begin, ends)
        return [_of_one(log, np.flatnonzero(server == k), x, sizes) for k, x in enumerate(spans)]


def _of_one(log: Log, mine: np.ndarray, span: slice, sizes: Sequence[int]) -> Log:
    """The log of one of several servers: of some requests, and a part of the path."""

    def rows(values: np.ndarray) -> np.ndarray:
        return np.pad(values[mine], (0, sizes[0] - len(mine)))

    def entries(values: np.ndarray) -> np.ndarray:
        return np.pad(values[span], (0, sizes[1] - (span.stop - span.start)))

    names = ("arrival", "admitted", "first", "last", "output", "preempted", "cached")
    columns = jax.tree.map(rows, {name: getattr(log, name) for name in names})
    marks = (np.maximum(rows(np.asarray(x)) - span.start, -1) for x in log.marks)
    counts = {"count": np.asarray(len(mine)), "entries": np.asarray(span.stop - span.start)}
    return log._replace(
        **columns, **counts, path=jax.tree.map(entries, log.path), marks=Marks(*marks)
    )


def log_of(s: State, requests: Requests, concurrency: Array | None) -> Log:
    """The log of a finished run: steps and entries become times."""
    zero = jnp.zeros_like(s.log.entries)
    return _log(s, s.log, (zero, s.log.entries), requests, concurrency, s.cache.cached)


def routed_log_of(servers: State, record: Record, requests: Requests, server: Array) -> RoutedLog:
    """The log of several servers (a leading axis) that wrote one record; ``server``: of each
    request."""
    count, size = servers.clock.now.shape[0], record.path.time.shape[0]
    assert record.path.server is not None
    owner = jnp.where(jnp.arange(size) < record.entries, record.path.server, count)
    order = jnp.argsort(owner, stable=True)
    begin = jnp.searchsorted(owner[order], jnp.arange(count + 1)).astype(jnp.int32)
    record = record._replace(path=jax.tree.map(lambda x: x[order], record.path))
    cached = servers.cache.cached
    if cached is not None:
        cached = cached[server, jnp.arange(server.shape[0])]
    span = begin[server], begin[server + 1]
    return RoutedLog(_log(servers, record, span, requests, None, cached), server, begin)


def _log(
    s: State,
    record: Record,
    span: tuple[Array, Array],
    requests: Requests,
    concurrency: Array | None,
    cached: Array | None,
) -> Log:
    """The log of one server or several; ``span``: entries of the path of each request's server."""
    size, index = record.path.time.shape[0], jnp.arange(record.last.shape[0])
    written, there = jnp.arange(size) < record.entries, index < requests.count
    path = jax.tree.map(lambda x: jnp.where(written, x, jnp.zeros_like(x)), record.path)

    def halve(_: int, between: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = between
        middle = (low + high) // 2
        later = (path.steps[middle] < record.last) & (low < high)
        return jnp.where(later, middle + 1, low), jnp.where(later, high, middle)

    # the entry of the last token is found by its step, by halves
    begin, end = (jnp.broadcast_to(x, index.shape) for x in span)
    last, _ = lax.fori_loop(0, size.bit_length(), halve, (begin, end))
    last = jnp.minimum(jnp.maximum(last, begin + record.ready), size - 1)
    before = jnp.where(record.admitted > 0, begin + record.admitted - 1, -1)
    marks = Marks(before, begin + record.first, last, jnp.full_like(last, -1))
    if concurrency is not None:
        # one that was held back is sent when an earlier one leaves
        left = jnp.sort(jnp.where(there, last, UNREACHED))
        leaver = index - concurrency
        marks = marks._replace(arrival=jnp.where(leaver >= 0, left[jnp.maximum(leaver, 0)], -1))
    all_in = ~jnp.any(jnp.asarray(s.cache.overflowed))
    return Log(
        **_times(path, marks, requests, concurrency),
        output=requests.output,
        count=requests.count,
        path=path,
        marks=marks,
        preempted=jnp.where(there, record.preempted, 0),
        complete=(jnp.sum(s.clock.finished) >= requests.count) & all_in,
        entries=record.entries,
        cached=None if cached is None else jnp.where(there, cached, 0),
    )


def _times(
    path: Path, marks: Marks, requests: Requests, concurrency: Array | None
) -> dict[str, Array]:
    """The times of all requests, from those of the entries of a path."""
    admitted = jnp.where(marks.before >= 0, path.time[jnp.maximum(marks.before, 0)], 0.0)
    arrival = requests.arrival
    if concurrency is not None:
        sent = path.time[jnp.maximum(marks.arrival, 0)]
        held = (marks.arrival >= 0) & (sent > arrival)
        arrival = jnp.where(held, sent, arrival)
    first, last = path.time[marks.first], path.time[marks.last]
    return {"arrival": arrival, "admitted": admitted, "first": first, "last": last}


def path_gradient(
    step: StepTime,
    log: Log,
    requests: Requests,
    concurrency: Array | None = None,
    *,
    phase: bool = False,
) -> Log:
    """The log of the same events, at the times (s) that they have by ``step`` and the arrivals.

    Its means have the derivatives of the path that is held: exact where the path does not change
    (infinitesimal perturbation analysis: Ho and Cao 1983). Passes add up what they take longer
    until the server is idle, while arrivals stay where they are: of a mean over many arrivals that
    is no slope of TTFT. With ``phase`` an arrival keeps its place within the passes it falls among,
    and waits for arrivals their length: what the number of passes does not change is then right.
    """
    path = lax.stop_gradient(log.path)
    arrival = jnp.asarray(requests.arrival)
    spent = durations(step, path, arrival.dtype)
    requests = jax.tree.map(jnp.asarray, requests._replace(arrival=arrival))
    if phase and concurrency is None:
        before = _before(path.time)
        spent = jnp.where(path.count > 0, spent, path.time - before)
        ends = lax.cummax(path.time)  # entries that were never written, at zero, come after all
        at = jnp.minimum(jnp.searchsorted(ends, arrival), path.time.shape[0] - 1)
        length = (path.time - before)[at]
        part = (arrival - before[at]) / jnp.where(length > 0.0, length, 1.0)
        times = jnp.cumsum(spent)
        moved = _before(times)[at] + lax.stop_gradient(part) * spent[at]
        requests = requests._replace(arrival=moved)
    else:
        # what was spent since the last wait, after the arrival that ended it
        elapsed = jnp.cumsum(spent)
        since = lax.cummax(jnp.where(path.woken_by >= 0, jnp.arange(spent.shape[0]), -1))
        came = arrival[jnp.maximum(path.woken_by, 0)]
        times = elapsed + jnp.where(since >= 0, (came - elapsed)[jnp.maximum(since, 0)], 0.0)
    path = path._replace(time=times)
    return log._replace(path=path, **_times(path, log.marks, requests, concurrency))


def _before(times: Array) -> Array:
    """The begin of each entry."""
    return jnp.concatenate([jnp.zeros_like(times[:1]), times[:-1]])


def durations(step: StepTime, path: Path, kind: jnp.dtype) -> Float[Array, " t"]:
    """Seconds of each entry of a path; 0 for waits and beyond the end."""

    def entry_time(
        decoding: Array, context: Array, fed: Array, pairs: Array, count: Array, grows: Array
    ) -> Array:
        count = jnp.maximum(count, 1)
        passes = decode_run(step, decoding, context, fed, pairs.astype(kind), count, grows)
        return run_time(passes, passes.count.astype(kind))

    # a step time may have no slope at nothing fed: entries that run nothing ask for another
    used = path.count > 0
    grows = path.decoding if path.grows is None else path.grows
    columns = (path.decoding, path.context, path.fed, path.pairs, path.count, grows)
    seconds = jax.vmap(entry_time)(*(jnp.where(used, x, jnp.ones_like(x)) for x in columns))
    if path.fetching is not None:
        seconds += path.fetching
    return jnp.where(used, seconds, 0.0)
