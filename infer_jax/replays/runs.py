"""Numbers of replays: times of every request, the gaps between tokens, the server over time."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from infer_jax.replays import Log
from infer_jax.results.numbers import digits, to_json_types

LEVELS = (50, 90, 99)  # per cent
STATISTICS = ("mean", *(f"p{level}" for level in LEVELS))
BATCHES = 16  # groups of successive requests whose means say how sure the mean of all is
# a queue grows without end where at the last arrival this share of all requests wait, more than a
# few, and this many times those at half time: twice as many where it grows evenly
QUEUED_SHARE, QUEUED_AT_LEAST, QUEUE_GROWTH = 0.1, 8, 1.5


class Series(NamedTuple):
    """One server, at the ends of its passes: seconds, and what there is from then on.

    ``cache``: share of the blocks that requests use; ``power``: watts of a chip until then, empty
    where not known; ``kept``: share of the blocks that no request uses and prompts are found in,
    empty where the scheduler has none.
    """

    time: np.ndarray
    queue: np.ndarray
    running: np.ndarray
    cache: np.ndarray
    power: np.ndarray
    kept: np.ndarray

    def time_mean(self, name: str) -> float:
        """The mean over time of a column."""
        values = getattr(self, name)
        if len(self.time) == 1:
            return values[-1]
        return np.average(values[:-1], weights=np.diff(self.time))


class Gaps(NamedTuple):
    """Seconds between two tokens of a request, and how many gaps are that long."""

    seconds: np.ndarray
    count: np.ndarray


class ReplayRun(NamedTuple):
    """One run: of every request in order of arrival, seconds and tokens; of every server, a series.

    ``copy``: the server of each; ``counted``: which requests statistics are of (not those of the
    warm-up).
    """

    arrival: np.ndarray
    admitted: np.ndarray
    first: np.ndarray
    last: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    preempted: np.ndarray
    cached: np.ndarray
    copy: np.ndarray
    counted: np.ndarray
    gaps: Gaps
    series: tuple[Series, ...]

    @property
    def ttft(self) -> np.ndarray:
        """Seconds to the first token."""
        return self.first - self.arrival

    @property
    def tpot(self) -> np.ndarray:
        """Seconds per token after the first; NaN of requests with a single token."""
        more = self.output - 1
        return np.where(more > 0, (self.last - self.first) / np.maximum(more, 1), np.nan)

    @property
    def latency(self) -> np.ndarray:
        """Seconds from arrival to last token."""
        return self.last - self.arrival

    def rows(self, index: int) -> Iterator[Mapping[str, object]]:
        """One row a request: seconds of arrival, tokens, times in ms; ``index``: of the run."""
        columns = {
            "copy": self.copy,
            "arrival_s": self.arrival,
            "isl_tokens": self.prompt,
            "osl_tokens": self.output,
            "cached_tokens": self.cached,
            "queued_ms": 1e3 * (self.admitted - self.arrival),
            "ttft_ms": 1e3 * self.ttft,
            "tpot_ms": 1e3 * self.tpot,
            "latency_ms": 1e3 * self.latency,
            "preemptions": self.preempted,
            "counted": self.counted,
        }
        for i, values in enumerate(zip(*columns.values(), strict=True)):
            cells = dict(zip(columns, map(to_json_types, values), strict=True))
            yield {"run": index, "request": i, **cells}

    def counted_times(self, name: str) -> np.ndarray:
        """A time of each request that is counted and has it, s."""
        times = getattr(self, name)[self.counted]
        return times[np.isfinite(times)]

    @property
    def start(self) -> float:
        """The first arrival that is counted, s: rates, peaks and energy are from then on."""
        return float(self.arrival[self.counted].min())

    @property
    def duration(self) -> float:
        """Seconds from the first arrival that is counted to the last token."""
        return float(self.last[self.counted].max()) - self.start

    @property
    def in_flight(self) -> float:
        """Mean requests between arrival and last token, by Little's law: rate x latency."""
        return float(self.latency[self.counted].sum()) / self.duration

    def mean(self, name: str) -> float:
        """The mean of a column over the requests that are counted."""
        return getattr(self, name)[self.counted].mean()

    def total(self, name: str) -> float:
        """The sum of a column over the requests that are counted."""
        return getattr(self, name)[self.counted].sum()

    def time_mean(self, name: str) -> float:
        """The mean over time of a share of the cache, over all servers."""
        return float(np.mean([s.time_mean(name) for s in self.series]))

    def peak(self, name: str) -> float:
        """The largest value of a series of any server from ``start`` on."""
        firsts = (np.searchsorted(s.time, self.start, side="right") for s in self.series)
        values = (
            getattr(s, name)[max(i - 1, 0) :] for s, i in zip(self.series, firsts, strict=True)
        )
        return max(float(x.max()) for x in values)

    @property
    def joules(self) -> float:
        """Energy of one chip of every server from ``start`` on, J."""
        start = max(self.start, 0.0)
        spans = (np.diff(np.maximum(s.time, start), prepend=start) for s in self.series)
        return sum(float(np.sum(s.power * x)) for s, x in zip(self.series, spans, strict=True))

    @property
    def left_waiting(self) -> int:
        """Requests without a first token when the last one came, if their number was growing.

        0 where they are few, or not many more than half way: the server then keeps up.
        """
        end = float(self.arrival.max())
        moments = (float(self.arrival.min()) + end) / 2.0, end
        half, last = (int(((self.arrival <= t) & (self.first > t)).sum()) for t in moments)
        several = max(QUEUED_SHARE * len(self.arrival), QUEUED_AT_LEAST)
        return last if last > several and last > QUEUE_GROWTH * half else 0

    def goodput(self, limits: Mapping[str, float]) -> float:
        """Requests per second that meet all limits (s); one token alone meets any TPOT."""
        good = self.counted.copy()
        for name, limit in limits.items():
            good &= np.nan_to_num(getattr(self, name)) <= limit
        return float(good.sum()) / self.duration


class TimeStatistic(NamedTuple):
    """The mean and percentiles of a time, s, and the standard error of each; NaN: not known."""

    values: dict[str, float]
    errors: dict[str, float]

    def with_error(self, level: str) -> str:
        """A value in milliseconds and, where it is known, its standard error."""
        error, value = self.errors[level], digits(1e3 * self.values[level])
        return value if not np.isfinite(error) else f"{value} ±{digits(1e3 * error, 2)}"


def statistic(
    samples: list[np.ndarray], counts: list[np.ndarray] | None = None, *, sure: bool = False
) -> TimeStatistic:
    """Mean and percentiles, each averaged over runs; ``counts``: how often each sample is there.

    Standard errors are those of a mean over runs; of one run that was drawn (``sure``: say how sure
    it is), of its mean alone, by the means of successive batches of requests (Law and Kelton,
    Simulation Modeling and Analysis, 9.5.3).
    """
    runs = [
        _mean_and_levels(x, None if counts is None else counts[i]) for i, x in enumerate(samples)
    ]
    table = np.array(runs, dtype=float)
    errors = np.full(table.shape[1], np.nan)
    if len(table) > 1:
        errors = table.std(axis=0, ddof=1) / np.sqrt(len(table))
    elif sure and counts is None and len(samples[0]) >= 2 * BATCHES:
        means = [batch.mean() for batch in np.array_split(samples[0], BATCHES)]
        errors[0] = np.std(means, ddof=1) / np.sqrt(BATCHES)
    pairs = (table.mean(axis=0), errors)
    return TimeStatistic(*(dict(zip(STATISTICS, map(float, x), strict=True)) for x in pairs))


def _mean_and_levels(sample: np.ndarray, count: np.ndarray | None) -> tuple[float, ...]:
    if not len(sample):
        return (np.nan,) * len(STATISTICS)
    if count is None:
        return (sample.mean(), *np.percentile(sample, LEVELS))
    order = np.argsort(sample)
    upto = np.cumsum(count[order])
    at = np.searchsorted(upto, np.array(LEVELS) / 100.0 * upto[-1])
    return (np.average(sample, weights=count), *sample[order][np.minimum(at, len(order) - 1)])


def gaps_of(log: Log, counted: np.ndarray) -> Gaps:
    """The gaps between tokens of those requests of one server that are counted, from its path.

    A pass gives each decoding request a token, or with drafts some at once. The gap before it is
    the time since its last one: the pass itself, with passes between that fed prompts alone. Passes
    of one entry count as equally long, and a request that was preempted as one that was not.
    """
    entries = int(log.entries)
    path = log.path
    time, decoding, over, count = (
        np.asarray(x)[:entries] for x in (path.time, path.decoding, path.over, path.count)
    )
    decoding = decoding - over
    begin = np.concatenate([[0.0], time])[:-1]
    at = np.flatnonzero((decoding > 0) & (count > 0))
    if not len(at):
        return Gaps(np.zeros(0), np.zeros(0))
    each = (time[at] - begin[at]) / count[at]
    since = np.concatenate([[begin[at[0]]], time[at[:-1]]])  # the last pass that decoded
    there = np.asarray(log.there)
    decodes = np.asarray(log.output)[there] > 1
    first, last = (np.asarray(x)[there] for x in (log.marks.first, log.marks.last))
    entry = np.searchsorted(at, first, side="right")  # where its second token is decoded
    entry = np.minimum(entry, len(at) - 1)
    left = np.searchsorted(at, last, side="right")  # the first one without it

    def requests_at(entries: np.ndarray, which: np.ndarray) -> np.ndarray:
        return np.bincount(entries[which], minlength=len(at) + 1)[: len(at)]

    others, own = decodes & ~counted, decodes & counted
    decoding = decoding[at] - np.cumsum(requests_at(entry, others) - requests_at(left, others))
    decoding = np.maximum(decoding, 0)
    new = begin[at[entry[own]]] + each[entry[own]] - time[first[own]]
    older = np.maximum(decoding - requests_at(entry, own), 0)
    seconds = np.concatenate([new, begin[at] - since + each, each])
    counts = np.concatenate([np.ones(len(new)), older, (count[at] - 1) * decoding]).astype(float)
    return Gaps(seconds[counts > 0], counts[counts > 0])
