"""The answer of ``offline``: what a job takes on every plan, its tail, steps and idle hours."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from infer_jax.arrivals import read_traffic
from infer_jax.estimators import Trust
from infer_jax.fleets import ServiceLimits
from infer_jax.fleets.bill import DAY
from infer_jax.fleets.fluid import HOUR
from infer_jax.planning import Layout
from infer_jax.results import Column, Notes, Result, Row, Rows, Section, option
from infer_jax.results.numbers import count, digits, quantity, scaled_format
from infer_jax.results.problems import refuse
from infer_jax.servers.instance import Sizes
from infer_jax.verbs import inputs
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.offline_jobs import (
    IdleHours,
    Job,
    OfflinePlan,
    idle_hours,
    job_lengths,
    offline_plans,
)
from infer_jax.verbs.texts import Tokens

DEADLINES = 5  # plans for which replicas are counted, the cheapest by themselves
SHARES = (0.5, 0.9, 0.99, 0.999)  # of the requests, in the table of the tail
PLANS = (
    Column("plan", "", "plan"),
    Column("replicas", "", "replicas"),
    Column("GPUs", "", "gpus"),
    Column("makespan", "hours", "makespan_s", scaled_format(1.0 / HOUR)),
    Column("output", "tokens/s", "tokens_per_s", count),
    Column("cost", "USD", "usd"),
    Column("of output", "$/Mtok", "usd_per_million"),
    Column("energy", "MJ", "joules", scaled_format(1e-6)),
    Column("tail", "s", "tail_s"),
    Column("wasted", "%", "wasted_percent"),
)
TAIL = (
    Column("finished", "%", "finished_percent", lambda x: f"{x:g}"),
    Column("after", "s", "after_s", count),
    Column("left", "s", "left_s"),
    Column("in flight", "a replica", "in_flight", count),
)
STEPS = (
    Column("a step", "", "step"),
    Column("takes", "s", "seconds"),
    Column("output", "tokens/s", "tokens_per_s", count),
    Column("stale", "% of tokens", "stale_percent"),
)
IDLE = (
    Column("from", "", "hour"),
    Column("idle", "replicas", "idle"),
    Column("prompts", "an hour", "per_hour", count),
)


class JobOptions(NamedTuple):
    """What is asked of a job; see the options of ``offline``.

    ``sizes``: sequences, tokens of a pass, share of the memory; ``limits`` of an online fleet.
    """

    prompts: float
    isl: Tokens
    osl: Tokens
    trace: str | os.PathLike[str] | None
    sizes: tuple[float | None, float | None, float | None]
    replicas: float | None
    within: float | None
    group: float
    stop_at: float | None
    traffic: str | os.PathLike[str] | None
    limits: ServiceLimits


class PlannedJob(NamedTuple):
    """A job on one plan."""

    plan: OfflinePlan
    replicas: float
    job: Job

    @property
    def makespan(self) -> float:
        """Seconds until the last request has ended."""
        return float(np.sum(self.job.seconds))

    @property
    def gpus(self) -> float:
        """GPUs of all replicas."""
        return self.replicas * self.plan.layout.chips

    @property
    def usd(self) -> float:
        """Rent of all replicas until the end."""
        return self.gpus * float(self.plan.setup.hardware.price) * self.makespan / HOUR


def offline_result(
    setups: Sequence[Setup], name: str, layout: Layout | None, asked: JobOptions
) -> "OfflineResult":
    """The answer to a question about offline work.

    Raises:
        InputError: no plan holds the longest request, or none is done within the hours.
    """
    requests = asked.prompts * asked.group
    replicas = 1.0 if asked.traffic is not None or asked.replicas is None else asked.replicas
    longest = float(setups[0].model.architecture.max_positions)
    lengths = job_lengths(asked.isl, asked.osl, asked.trace, longest)
    lengths = lengths._replace(own=jnp.asarray(1.0 / asked.group))
    slots, budget, memory = asked.sizes
    sizes = Sizes(slots=slots, budget=budget, utilization=memory)
    jobs = list[PlannedJob]()
    for setup in setups:
        model = inputs.serving(name, setup)
        for plan in offline_plans(setup, model, layout, sizes, lengths):
            jobs.append(PlannedJob(plan, replicas, plan.job(requests, replicas)))
    if not jobs:
        raise refuse("hardware", setups[0].system.name, "a system that holds the longest request")
    jobs.sort(key=lambda x: x.usd)
    if asked.within is not None:
        jobs = [*_in_time(jobs[:DEADLINES], requests, HOUR * asked.within)]
        if not jobs:
            raise refuse("within", asked.within, "more hours: the longest outputs alone take more")
        jobs.sort(key=lambda x: x.usd)
    best = jobs[0].plan
    model, idle, step = inputs.serving(name, best.setup), None, None
    if asked.stop_at is not None:
        step = best.job(requests, replicas, asked.stop_at)
    if asked.traffic is not None:
        found = read_traffic(asked.traffic)
        idle = idle_hours(best, name, found, asked.limits, asked.replicas)
    trust = inputs.trust(name, model, best.setup)
    return OfflineResult(asked, jobs, trust, step, idle)


def _in_time(jobs: Sequence[PlannedJob], requests: float, seconds: float) -> Iterator[PlannedJob]:
    """The jobs on as few replicas as are done in some time."""
    for one in jobs:
        replicas = one.plan.replicas_within(requests, seconds)
        if replicas is not None:
            yield PlannedJob(one.plan, replicas, one.plan.job(requests, replicas))


@dataclass(frozen=True, repr=False)
class OfflineResult(Result):
    """A job on every plan, the cheapest first; its tail, a step that stops early, idle hours."""

    rows_key = "plans"
    asked: JobOptions
    jobs: Sequence[PlannedJob]
    trust: Trust
    step: Job | None
    idle: IdleHours | None

    @property
    def requests(self) -> float:
        """Requests of the job."""
        return self.asked.prompts * self.asked.group

    @property
    def output(self) -> float:
        """Output tokens of all requests."""
        return self.requests * self._mean("output")

    def _mean(self, column: str) -> float:
        """Mean tokens of a request."""
        lengths = self.jobs[0].plan.lengths
        return float(np.average(getattr(lengths, column), weights=lengths.weight))

    def sections(self) -> Iterator[Section]:
        """The answer in sentences, plans, the tail, and what else was asked."""
        best = self.jobs[0]
        setup, seconds = best.plan.setup, best.makespan
        yield (
            f"{setup.model.name}: {quantity(self.requests, 'request')} of "
            f"{self._mean('prompt'):,.4g} tokens in and {self._mean('output'):,.4g} out in the "
            "mean, all there at the start."
        )
        yield self.trust.says
        yield (
            f"{best.plan.label} on {quantity(best.replicas, 'replica')}: {_words(seconds)}, "
            f"${best.usd:,.4g}, {self.output / seconds:,.0f} output tokens/s. The batch empties in "
            f"the last {_words(float(best.job.tail))}, and {self._wasted(best):.2g} % of the rent "
            "is wasted by that."
        )
        yield {"requests": self.requests, "output_tokens": self.output}
        yield Rows("plans", [self._row(x) for x in self.jobs], PLANS, mark=0)
        yield Rows("tail", list(self._tail(best)), TAIL)
        if self.step is not None:
            yield Rows("steps", list(self._steps(best, self.step)), STEPS)
        if self.idle is not None:
            yield ""
            yield from self._idle_hours(best, self.idle)
        yield Notes([*self._notes()])

    def _wasted(self, one: PlannedJob) -> float:
        return 100.0 * float(one.job.wasted) / one.makespan

    def _row(self, one: PlannedJob) -> Row:
        return {
            "plan": one.plan.label,
            "replicas": one.replicas,
            "gpus": one.gpus,
            "makespan_s": one.makespan,
            "tokens_per_s": self.output / one.makespan,
            "usd": one.usd,
            "usd_per_million": 1e6 * one.usd / self.output,
            "joules": one.gpus * float(np.sum(one.job.seconds * one.job.watts)) or None,
            "tail_s": float(one.job.tail),
            "wasted_percent": self._wasted(one),
        }

    def _tail(self, one: PlannedJob) -> Iterator[Row]:
        """When shares of the requests have ended, and what runs then."""
        ended, time = np.cumsum(one.job.ended), np.cumsum(one.job.seconds)
        for share in SHARES:
            after = float(np.interp(share * ended[-1], ended, time))
            cell = int(np.searchsorted(ended, share * ended[-1]))
            yield {
                "finished_percent": 100.0 * share,
                "after_s": after,
                "left_s": max(one.makespan - after, 0.0),
                "in_flight": float(one.job.running[max(cell - 1, 0)]),
            }

    def _steps(self, one: PlannedJob, step: Job) -> Iterator[Row]:
        """A step that waits for all responses, and one that stops early."""
        stops = f"stops at {100.0 * (self.asked.stop_at or 1.0):g} %"
        for name, job in (("waits for all", one.job), (stops, step)):
            seconds = float(np.sum(job.seconds))
            yield {
                "step": name,
                "seconds": seconds,
                "tokens_per_s": self.output / seconds,
                "stale_percent": 100.0 * float(job.stale),
            }

    def _idle_hours(self, best: PlannedJob, idle: IdleHours) -> Iterator[Section]:
        """What fits the hours in which replicas are paid and not needed."""
        day = float(np.sum(idle.requests)) * DAY / (len(idle.idle) * idle.period)
        takes = f"The job takes {digits(self.requests / day)} such days" if day else "None fits"
        yield (
            f"Of {quantity(idle.paid, 'replica')} that are paid for the traffic, "
            f"{float(np.mean(idle.idle)):.3g} are idle in the mean and end {count(day)} requests a "
            f"day. {takes}, at no more rent; by itself it costs ${best.usd:,.4g}."
        )
        yield {"requests_per_day": day, "paid_replicas": idle.paid}
        hours = np.arange(len(idle.idle)) * idle.period // HOUR % 24
        rows = [
            {
                "hour": f"{hour:02.0f}:00",
                "idle": float(np.mean(idle.idle[hours == hour])),
                "per_hour": float(np.mean(idle.requests[hours == hour])) * HOUR / idle.period,
            }
            for hour in np.unique(hours)
        ]
        yield Rows("idle_hours", rows, IDLE)

    def _notes(self) -> Iterator[str]:
        yield "Requests start in the order given, of which nobody knows the lengths beforehand."
        yield f"{option('replicas')} share the job evenly and are paid until the last one is done."
        if self.asked.group > 1:
            yield "Responses of a group share the cache of their prompt, which is computed once."
        if self.step is not None:
            yield (
                "Of a step that stops, the others go on in the next, computed anew; stale are the "
                "tokens of steps before."
            )
        if self.idle is not None:
            yield (
                "A replica is idle where fewer keep the limits of the traffic; batches are filled "
                "and drained in every spell of that."
            )


def _words(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, size in (("days", DAY), ("hours", HOUR), ("minutes", 60.0)):
        if seconds >= 2.0 * size:
            return f"{digits(seconds / size)} {unit}"
    return f"{digits(seconds)} s"
