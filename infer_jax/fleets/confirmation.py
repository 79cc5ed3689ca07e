"""A part of a fleet's course, replayed request by request: what the fluid's figures are held to."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from infer_jax.arrivals import Traffic, draw
from infer_jax.fleets.fluid import Course
from infer_jax.fleets.service import ServiceLimits
from infer_jax.replays import Requests, serve_copies
from infer_jax.replays.cluster import Windows
from infer_jax.replays.requests import FAR_FUTURE, power_of_two
from infer_jax.servers.instance import ReplayedInstance

ROUTER = "shortest_queue"


class ReplayedRequests(NamedTuple):
    """Requests of a part of a course: seconds of arrival, from the part's begin, TTFT and TPOT."""

    arrival: np.ndarray
    ttft: np.ndarray
    tpot: np.ndarray  # 0 where an output has one token

    def between(self, begin: float, end: float) -> "ReplayedRequests":
        """Those that arrive from ``begin`` up to ``end``, s."""
        inside = (begin <= self.arrival) & (self.arrival < end)
        return ReplayedRequests(*(x[inside] for x in self))

    def ttft_within(self, share: float) -> float:
        """Seconds within which that share of the requests has its first token."""
        return float(np.quantile(self.ttft, share))

    def share_good(self, limits: ServiceLimits, seconds: float) -> float:
        """Share of the requests that keep both limits, as the law has it.

        Each its own TTFT; TPOT in the mean of those that arrive in the same ``seconds``.
        """
        step = (self.arrival // seconds).astype(int)
        count, total = np.bincount(step), np.bincount(step, self.tpot)
        mean = total / np.maximum(count, 1)
        return float(np.mean((self.ttft <= limits.ttft) & (mean[step] <= limits.tpot)))

    def share_each_good(self, limits: ServiceLimits) -> float:
        """Share of the requests that keep both limits, each by its own times."""
        return float(np.mean((self.ttft <= limits.ttft) & (self.tpot <= limits.tpot)))


def copies_of(ready: np.ndarray, seconds: float) -> Windows:
    """When copies take requests, of the replicas that serve in each step of ``seconds`` s.

    Whole replicas, one at least; the last that came leaves first. Those of the last step stay.
    Filled up to a power of two with copies that are never there, so that few programs are compiled.

    >>> w = copies_of(np.array([1.0, 2.0, 1.0, 2.0]), 15.0)
    >>> w.begin[:3].tolist(), [min(x, 60.0) for x in w.end[:3].tolist()]
    ([0.0, 15.0, 45.0], [60.0, 30.0, 60.0])
    """
    count = np.maximum(np.round(ready), 1.0).astype(int)
    there = (count > np.arange(count.max())[:, None]).astype(int)  # [copies, steps]
    changes = np.diff(there, prepend=0, append=0, axis=1)
    begins, ends = (np.nonzero(changes == x)[1] for x in (1, -1))
    ends = np.where(ends == len(count), FAR_FUTURE, ends * seconds)
    never = np.full(power_of_two(len(ends)) - len(ends), FAR_FUTURE)
    return Windows(np.r_[begins * seconds, never], np.r_[ends, never])


def replay_course(
    server: ReplayedInstance, traffic: Traffic, course: Course, seconds: float, part: slice,
    seed: int | Sequence[int] = 0,
) -> ReplayedRequests:  # fmt: skip
    """Requests drawn at the rates of a ``part`` of a course's steps, of ``seconds`` s, replayed.

    Copies come and go as replicas do in the course, and start empty; a router sends each request to
    the one with the fewest. Of every prompt the share that the traffic reuses is in the cache.

    Raises:
        InputError: a request that a server never holds.
    """
    calm = traffic.with_(sessions=None, reuse=0.0, surge=0.0, period=seconds)
    trace = draw(calm.with_(rates=np.asarray(course.rate)[part]), seed)
    cached = np.minimum(np.floor(trace.isl * float(traffic.reuse)), trace.isl - 1.0)
    if not (count := len(trace.arrivals)):
        return ReplayedRequests(trace.arrivals, trace.arrivals, trace.arrivals)
    windows = copies_of(np.asarray(course.ready)[part], seconds)
    requests = Requests.of(trace.arrivals, trace.isl, trace.osl, cached)
    copies, rules = len(windows.begin), server.rules
    log = serve_copies(server.step, rules, requests, copies, ROUTER, windows=windows).log
    ttft, tpot = (np.asarray(x)[:count] for x in (log.ttft, log.tpot))
    return ReplayedRequests(trace.arrivals, ttft + server.front, tpot)
