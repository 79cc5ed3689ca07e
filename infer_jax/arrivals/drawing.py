"""A trace drawn from traffic: arrivals by period, surge and burst, lengths, turns of sessions."""

from collections.abc import Sequence

import numpy as np

from infer_jax.arrivals.traffic import Sessions, Traffic, correlated, mean_between, quantile
from infer_jax.catalog.traces import BLOCK, Trace

LASTING = 6.0  # turns before one and gaps between, in the mean, from which sessions begin
MOST_BEFORE = 1e6  # requests of these
SHARED = 1 << 40  # hashes of what all prompts begin with lie above those of sessions


def draw(traffic: Traffic, seed: int | Sequence[int] = 0, periods: slice = slice(None)) -> Trace:
    """A trace of all periods of traffic, or of some.

    Arrivals are a gamma renewal process in the time of the integrated rate, which goes up and down
    in surges; with sessions their first turns are, and the others follow. Prompts that begin alike
    do so as turns of a session, or, without sessions, with a share of one common beginning.

    >>> import numpy as np
    >>> from infer_jax.arrivals import LEVELS
    >>> tokens = np.full(len(LEVELS), 100.0)
    >>> calm = Traffic.of(rates=[2.0, 4.0], period=100.0, prompts=tokens, outputs=tokens)
    >>> trace = draw(calm)
    >>> bool(500 < len(trace) < 700), bool(trace.arrivals[-1] < 200)
    (True, True)
    """
    random = np.random.default_rng(seed)
    rates = np.atleast_1d(np.asarray(traffic.rates, float))[periods]
    sessions, period, before, turns = traffic.sessions, float(traffic.period), 0, 1.0
    if sessions is not None:  # some begin in periods before, and last into the first one
        last = LASTING * sessions.before * mean_between(sessions.gaps)
        last = min(last, MOST_BEFORE / max(float(rates[0]), 1e-9))
        before, turns = int(np.ceil(last / period)), float(sessions.turns)
    times = arrivals(traffic, np.r_[np.full(before, rates[0]), rates] / turns, random)
    isl, osl = lengths(traffic, random, len(times))
    ids, hashes = np.zeros(0, int), ()
    if sessions is not None:
        every = _turns(traffic, sessions, random, times, osl)
        every[0] -= before * period
        times, isl, osl, ids = every[:, (every[0] >= 0.0) & (every[0] < len(rates) * period)]
        ids = np.unique(ids, return_inverse=True)[1]
        first = ids * max(int(isl.max(initial=0.0)) // BLOCK, 1)
        hashes = tuple(map(tuple, map(range, first, first + isl.astype(int) // BLOCK)))
    elif float(traffic.reuse) > 0.0:
        hashes = _shared(isl, float(traffic.reuse))
    return Trace(
        file="drawn", source="drawn", arrivals=times, isl=isl, osl=osl, hashes=hashes, sessions=ids,
        start=float(traffic.start) or None,
    )  # fmt: skip


def arrivals(traffic: Traffic, rates: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Seconds at which requests come, at these rates of successive periods."""
    period, surge, sojourn = (float(getattr(traffic, x)) for x in ("period", "surge", "sojourn"))
    edges, factor = np.arange(len(rates) + 1) * period, 1.0
    if surge > 0.0:
        turns = np.cumsum(random.exponential(sojourn, int(2.0 * edges[-1] / sojourn) + 16))
        turns = turns[turns < edges[-1]]
        edges = np.union1d(edges, turns)
        up = (np.searchsorted(turns, edges[:-1], side="right") + random.integers(2)) % 2
        factor = np.where(up > 0, 1.0 + surge, 1.0 - surge)
    own = rates[np.minimum((edges[:-1] / period + 1e-12).astype(int), len(rates) - 1)] * factor
    expected = np.concatenate([[0.0], np.cumsum(own * np.diff(edges))])
    shape = 1.0 / max(float(traffic.variability), 1e-3)
    marks = np.zeros(0)
    while not len(marks) or marks[-1] < expected[-1]:
        gaps = random.gamma(shape, 1.0 / shape, int(1.1 * (expected[-1] - marks[-1:].sum()) + 64))
        if not len(marks):  # the first gap of a process that has run for long
            gaps[0] *= random.random()
        marks = np.concatenate([marks, marks[-1:].sum() + np.cumsum(gaps)])
    return np.interp(marks[marks < expected[-1]], expected, edges)


def lengths(traffic: Traffic, random: np.random.Generator, count: int) -> np.ndarray:
    """Prompt and output tokens of ``count`` requests, whole numbers."""
    first, second = random.random((2, count))
    return np.round(traffic.lengths_at(correlated(first, second, float(traffic.dependence))))


def _turns(
    traffic: Traffic, sessions: Sessions, random: np.random.Generator,
    times: np.ndarray, osl: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Requests of sessions whose first turns these are, in order of arrival.

    Rows are times, prompt and output tokens, and numbers of sessions. The first prompt of a session
    is as short as leaves the mean of all prompts what it is, one token at least.
    """
    more, ids = _turns_after(sessions, random, len(times)), np.arange(len(times))
    owner, begins = np.repeat(ids, more), np.cumsum(more) - more
    gaps = quantile(np.asarray(sessions.gaps), random.random(len(owner)))
    news = np.round(quantile(np.asarray(sessions.news), random.random(len(owner))))
    outputs = lengths(traffic, random, len(owner))[1]
    # what turns before each have said and waited for, of all sessions in a row
    said, waits = (np.concatenate([[0.0], np.cumsum(x)]) for x in (news + outputs, gaps))
    first = quantile(np.asarray(traffic.prompts), random.random(len(times)) * 0.5)
    added = mean_between(sessions.news) + mean_between(traffic.outputs)
    mean = max(mean_between(traffic.prompts) - sessions.before * added, 1.0)
    first = np.maximum(np.round(first * mean / max(first.mean(), 1.0)), 1.0)
    later = times[owner] + waits[1:] - waits[begins[owner]]
    prompts = first[owner] + osl[owner] + (said[:-1] - said[begins[owner]]) + news
    rows = np.hstack([(times, first, osl, ids), (later, prompts, outputs, owner)])
    return rows[:, np.argsort(rows[0], kind="stable")]


def _turns_after(sessions: Sessions, random: np.random.Generator, count: int) -> np.ndarray:
    """Turns after the first of each session: geometric, or gamma with the depth that is known.

    Of N turns E N (N - 1) is 2 E N times the depth. Gamma's are rounded up or down by chance, which
    keeps their mean.
    """
    more = float(sessions.turns) - 1.0
    if not float(sessions.depth) > 0.0 or not more > 0.0:
        return random.geometric(1.0 / (more + 1.0), count) - 1
    square = 2.0 * (more + 1.0) * sessions.before - more  # of those after the first, in the mean
    variance = max(square - more**2, 1e-6 * more**2)
    drawn = random.gamma(more**2 / variance, variance / more, count)
    return np.floor(drawn + random.random(count)).astype(int)


def _shared(isl: np.ndarray, reuse: float) -> tuple[tuple[int, ...], ...]:
    """Blocks of prompts that begin alike for a share of their tokens, and are their own after."""
    blocks = isl.astype(int) // BLOCK
    alike = np.minimum(np.round(reuse * isl / BLOCK).astype(int), blocks)
    ends = np.cumsum(blocks - alike)
    rows = np.stack([SHARED + alike, ends - (blocks - alike), ends], axis=1).tolist()
    return tuple((*range(SHARED, shared), *range(begin, end)) for shared, begin, end in rows)
