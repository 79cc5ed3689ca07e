"""Runs of servers: their statistics, and samples of a plan's requests with their times.

Statistics are times with their percentiles, rates, energy, and what was full.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from infer_jax.catalog.traces import Trace
from infer_jax.compiling import MANY, once
from infer_jax.estimators.serving.price import PassLaw, pass_time
from infer_jax.planning import Choice, ReplayTimes
from infer_jax.replays import Requests, Rules, replay
from infer_jax.replays.requests import ArrivingRequests, drawn_arrivals
from infer_jax.replays.runs import ReplayRun, TimeStatistic, statistic
from infer_jax.servers.cluster import ReplayedCluster
from infer_jax.servers.instance import ReplayedInstance
from infer_jax.servers.stream import RequestStream
from infer_jax.specs import Workload

TIMES = ("ttft", "tpot", "itl", "latency")  # of a request; ITL is the time between tokens
MEASURED = {"ttft": "TTFT", "tpot": "TPOT", "latency": "latency"}


@dataclass(frozen=True, repr=False)
class ReplayedRuns:
    """Runs of one server: ``runs`` has every request, in seconds and tokens; ``limits``: s."""

    cluster: ReplayedCluster
    stream: RequestStream
    runs: Sequence[ReplayRun]
    limits: Mapping[str, float]

    @property
    def server(self) -> ReplayedInstance:
        """An instance; of two pools one that decodes."""
        return self.cluster.server

    @cached_property
    def times(self) -> dict[str, TimeStatistic]:
        """TTFT, TPOT, the time between tokens and latency, s: means, percentiles, their errors."""
        gaps, statistics = [run.gaps for run in self.runs], {}
        for name in TIMES:
            if name == "itl":
                statistics[name] = statistic([g.seconds for g in gaps], [g.count for g in gaps])
            else:
                samples = [run.counted_times(name) for run in self.runs]
                statistics[name] = statistic(samples, sure=self.random)
        return statistics

    @property
    def random(self) -> bool:
        """Whether other seeds give other runs."""
        return self.stream.random or self.server.drafts is not None

    @cached_property
    def measured(self) -> dict[str, TimeStatistic]:
        """The same as a server had them, where the trace says so and is replayed as it was."""
        run = self.recorded
        return {x: statistic([run.counted_times(x)]) for x in MEASURED} if run else {}

    @property
    def recorded(self) -> ReplayRun | None:
        """The requests as the server of the trace had them."""
        stream, run = self.stream, self.runs[0]
        trace, count = stream.trace, len(run.prompt)
        changed = stream.rate is not None or stream.concurrency is not None
        if trace is None or not len(trace.first) or changed:
            return None
        first, last = trace.first[:count], trace.last[:count]
        return run._replace(arrival=trace.arrivals[:count], first=first, last=last)

    @property
    def throughput(self) -> float:
        """Output tokens per second, of all copies."""
        return self.mean_of(lambda run: run.total("output") / run.duration)

    @property
    def request_throughput(self) -> float:
        """Requests per second, of all copies."""
        return self.mean_of(lambda run: run.counted.sum() / run.duration)

    @property
    def goodput(self) -> float | None:
        """Requests per second that meet all limits; None where there are none."""
        return self.mean_of(lambda run: run.goodput(self.limits)) if self.limits else None

    @property
    def energy(self) -> float | None:
        """Joules of all chips per output token; None where the chip's power is not known."""
        if not len(self.runs[0].series[0].power):
            return None
        chips = float(self.cluster.plan.tp)
        return self.mean_of(lambda run: chips * run.joules / run.total("output"))

    @property
    def tokens_per_pass(self) -> float | None:
        """Tokens after the first of a request in a pass, the mean over passes; None without any."""
        passes = sum(float(run.gaps.count.sum()) for run in self.runs)
        tokens = sum(float((run.output - 1)[run.counted].sum()) for run in self.runs)
        return tokens / passes if passes else None

    @cached_property
    def left_waiting(self) -> float:
        """Requests of a run that wait when the last one comes, where arrivals overload a server."""
        return 0.0 if self.stream.concurrency else self.mean_of(lambda run: run.left_waiting)

    @property
    def has_cache(self) -> bool:
        """Whether the scheduler itself looks prompts up in its cache."""
        return all(len(x.kept) for run in self.runs for x in run.series)

    def mean_of(self, of: Callable[[ReplayRun], float]) -> float:
        """The mean over runs."""
        return float(np.mean([of(run) for run in self.runs]))

    def peak(self, name: str) -> float:
        """The largest value of a series, of any server and run."""
        return max(run.peak(name) for run in self.runs)


ARRIVALS, WAVES = 2000, 10  # requests of a replay: that arrive; for each one in flight
MIN_REQUESTS = 200
SETTLING = 0.1  # share of the requests that comes first and is not counted


class InstanceRun(NamedTuple):
    """One instance of a plan with its requests; ``loop``: kept in flight, where none arrive."""

    server: ReplayedInstance
    requests: Requests
    loop: int | None


def sample_requests(
    work: Workload, rate: float | None, trace: Trace | None, choice: Choice, largest: float
) -> tuple[ArrivingRequests, int | None]:
    """Requests as recorded, or drawn from the shares of lengths; and how many stay in flight.

    They are of one instance, or of two pools with all their instances: in a closed loop the
    requests that decode, and by Little's law those before. ``largest``: batch of the plans that are
    replayed, which sets the number of requests of all.
    """
    pooled, pool = len(choice.pools) > 1, choice.pools[-1]
    copies, loop, count = 1.0 if pooled else pool.copies, None, ARRIVALS
    if rate is None and pooled:
        decoding = pool.batch * pool.copies
        loop = max(math.ceil(decoding + choice.requests_per_s * choice.ttft), 1)
        count = max(WAVES * loop, MIN_REQUESTS)
    elif rate is None:
        loop = max(round(pool.batch), 1)
        count = max(int(WAVES * np.ceil(largest)), MIN_REQUESTS)
    if trace is not None and rate is not None:
        stream = RequestStream(
            trace.isl.mean(), trace.osl.mean(), trace=trace, caching=bool(trace.hashes),
            rate=rate / copies,
        )  # fmt: skip
        return stream.draw(min(count, len(trace)), (0, 0)), loop
    random = np.random.default_rng(0)
    sizes = np.ones((1, 3))
    if work.lengths:
        sizes = np.array([[float(x) for x in (s.isl, s.osl, s.weight)] for s in work.lengths])
    shares = random.choice(len(sizes), count, p=sizes[:, 2] / sizes[:, 2].sum())
    isl, osl = (
        np.maximum(np.round(float(mean) * sizes[shares, i]), 1.0)
        for i, mean in enumerate((work.isl, work.osl))
    )
    times = np.zeros(count)
    if rate is not None:
        assert work.arrivals is not None
        burstiness = 1.0 / max(float(work.arrivals.variability), 1e-3)
        times = drawn_arrivals(random, count, rate / copies, burstiness)
    return ArrivingRequests(times, isl, osl), loop


def with_cached(work: Workload, arriving: ArrivingRequests, tokens: float) -> Requests:
    """Requests with the tokens of each prompt that are in a cache of ``tokens`` tokens.

    By the hashes of a trace, else the mean share of each prompt.
    """
    cached = arriving.cached(tokens)
    if not arriving.hashes:
        share = float(work.prefix) / max(float(work.isl), 1.0)
        cached = cached + np.minimum(np.round(share * arriving.prompt), arriving.prompt - 1.0)
    return Requests.of(*arriving[:3], cached, arriving.drafts)


def instance_ends(run: InstanceRun, width: int, entries: int) -> list[np.ndarray]:
    """Arrival, first and last token (s) and output tokens of every request of an instance.

    ``width``, ``entries``: of the program's arrays.
    """
    server, requests = run.server, run.requests
    inputs = server.pass_, server.rules, requests, run.loop and jnp.asarray(run.loop, jnp.int32)
    while True:
        *ends, complete = once(request_ends, *inputs, points=MANY, fixed=(width, entries))
        if complete:
            break
        entries *= 2  # requests that are preempted take more of them
    count = int(requests.count)
    arrival, first, last, output = (np.asarray(x)[:count] for x in (*ends, requests.output))
    return [arrival - server.front, first, last, output]


def request_ends(
    width: int, entries: int, pass_: PassLaw, rules: Rules, requests: Requests, loop: Array | None
) -> tuple[Array, Array, Array, Array]:
    """Seconds of every request: arrival, first and last token; whether all were served."""
    log = replay(Partial(pass_time, pass_), rules, requests, loop, width=width, entries=entries)
    return log.arrival, log.first, log.last, log.complete


def times_of(limits: Mapping[str, float], goodput: float | None, *ends: np.ndarray) -> ReplayTimes:
    """Means and percentiles of the requests that are counted, and the share within the limits.

    ``goodput``: the share whose tails are wanted; ``ends``: as ``instance_ends`` has them.
    """
    arrival, first, last, output = ends
    steady = slice(int(SETTLING * len(arrival)), None)
    arrival, first, last, more = (x[steady] for x in (arrival, first, last, output - 1))
    ttft, token = first - arrival, np.where(more > 0, last - first, 0.0) / np.maximum(more, 1)
    tpot = token[more > 0] if np.any(more > 0) else np.zeros(1)
    samples = {"ttft": ttft, "tpot": tpot}
    times = (f(x) for x in samples.values() for f in (np.mean, lambda x: np.percentile(x, 99)))
    tails = dict[str, float]()
    if goodput is not None:
        tails = {x: float(np.percentile(each, 100 * goodput)) for x, each in samples.items()}
    within = np.mean((ttft <= limits["ttft"]) & (token <= limits["tpot"]))
    p95 = float(np.percentile(ttft, 95))
    return ReplayTimes(*map(float, times), within=float(within), tails=tails, p95_ttft=p95)
