"""The log of a replay: times of every request, and queue, batch and cache over time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from infer_jax.replays.requests import FAR_FUTURE, Requests
from infer_jax.replays.state import UNREACHED, Path, State


class Marks(NamedTuple):
    """For each request, the entries of the path at which it arrived, was admitted and so on."""

    admitted: Int[Array, " n"]  # at its begin
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
    count: Int[Array, ""]  # requests; those behind are padding
    path: Path
    marks: Marks
    preempted: Int[Array, " n"]  # times
    complete: Bool[Array, ""]  # whether all were served: else the path was too short
    turns: Int[Array, ""]  # entries of the path
    cached: Int[Array, " n"] | None = None  # prompt tokens that were found in a prefix cache

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
    """The log of each server, with a leading axis; the server of each request, its place there."""

    logs: Log
    rank: Int[Array, " n"]
    place: Int[Array, " n"]
    complete: Array

    def of(self, name: str) -> Float[Array, " n"]:
        """A column of all requests, in their own order."""
        return getattr(self.logs, name)[self.rank, self.place]


def log_of(s: State, requests: Requests, concurrency: Array | None) -> Log:
    """The log of a finished run: steps and entries become times."""
    record = s.log
    entries = jnp.arange(record.path.time.shape[0])
    written = entries < s.clock.entries
    path = jax.tree.map(lambda x: jnp.where(written, x, jnp.zeros_like(x)), record.path)
    steps = jnp.where(written, path.steps, UNREACHED)
    last = jnp.maximum(jnp.searchsorted(steps, record.last), record.ready)
    last = jnp.minimum(last, entries[-1])
    index = jnp.arange(record.last.shape[0])
    there = index < requests.count
    arrival = jnp.full_like(last, -1)
    if concurrency is not None:
        # one that was held back is sent when an earlier one leaves
        left = jnp.sort(jnp.where(there, last, UNREACHED))
        leaver = index - concurrency
        arrival = jnp.where(leaver >= 0, left[jnp.maximum(leaver, 0)], -1)
    marks = Marks(record.admitted, record.first, last, arrival)
    complete = (s.clock.finished >= requests.count) & jnp.logical_not(s.cache.overflowed)
    cached = s.cache.cached
    cached = None if cached is None else jnp.where(there, cached, 0)
    facts = {"preempted": jnp.where(there, record.preempted, 0), "cached": cached}
    facts |= {"complete": complete, "turns": s.clock.entries}
    return timed(path, marks, requests, concurrency, **facts)


def timed(
    path: Path, marks: Marks, requests: Requests, concurrency: Array | None, **facts: object
) -> Log:
    """The times of all requests, from those of the entries of a path; ``facts``: the rest."""
    begin = jnp.where(marks.admitted > 0, path.time[jnp.maximum(marks.admitted - 1, 0)], 0.0)
    arrival = requests.arrival
    if concurrency is not None:
        sent = path.time[jnp.maximum(marks.arrival, 0)]
        held = (marks.arrival >= 0) & (sent > arrival)
        arrival = jnp.where(held, sent, arrival)
    first, last = path.time[marks.first], path.time[marks.last]
    output, count = requests.output, requests.count
    return Log(arrival, begin, first, last, output, count, path, marks, **facts)  # pyright: ignore[reportArgumentType]
