"""Statistics of replayed runs: times with their percentiles, rates, energy, what was full."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from infer_jax.replays.runs import ReplayRun, TimeStatistic, statistic
from infer_jax.servers.cluster import ReplayedCluster
from infer_jax.servers.instance import ReplayedInstance
from infer_jax.servers.stream import RequestStream

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
