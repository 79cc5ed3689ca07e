"""The answer of ``offline``: what a job takes on every plan, its tail, steps and idle hours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from infer_jax.estimators import Trust
from infer_jax.fleets.bill import DAY
from infer_jax.fleets.fluid import HOUR
from infer_jax.results import Column, Notes, Result, Row, Rows, Section, option
from infer_jax.results.numbers import count, digits, duration, percent, quantity, scaled_format
from infer_jax.verbs.offline_idle import IdleHours
from infer_jax.verbs.offline_jobs import Job, PlannedJob

TINY = 1e-6  # a share that is none
FEW = 1e-3  # a share of cut requests of which nothing is said
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
    Column("beside", "traffic", "per_hour_beside_traffic", count),
)


@dataclass(frozen=True, repr=False)
class OfflineResult(Result):
    """A job on every plan, the cheapest first; its tail, a step that stops early, idle hours.

    ``cut``: the share of the requests that the longest context cuts.
    """

    rows_key = "plans"
    jobs: Sequence[PlannedJob]
    trust: Trust
    requests: float
    group: float
    stop_at: float | None
    step: Job | None
    idle: IdleHours | None
    cut: float = 0.0

    @property
    def output(self) -> float:
        """Output tokens of all requests."""
        return self.requests * self._mean("output")

    def _mean(self, column: str) -> float:
        lengths = self.jobs[0].plan.lengths
        return float(np.average(getattr(lengths, column), weights=lengths.weight))

    def sections(self) -> Iterator[Section]:
        """The answer in sentences, plans, the tail, and what else was asked."""
        best = self.jobs[0]
        setup, seconds = best.plan.setup, best.job.makespan
        yield (
            f"{setup.model.name}: {quantity(self.requests, 'request')} of "
            f"{count(self._mean('prompt'))} tokens in and {count(self._mean('output'))} out in the "
            "mean, all there at the start."
        )
        yield self.trust.says
        yield (
            f"{best.plan.label} on {quantity(best.replicas, 'replica')}: {duration(seconds)}, "
            f"${best.usd:,.4g}, {self.output / seconds:,.0f} output tokens/s. The batch empties in "
            f"the last {duration(best.job.tail)}, and {self._wasted(best):.2g} % of the rent is "
            "wasted by that."
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
        return 100.0 * float(one.job.wasted) / one.job.makespan

    def _row(self, one: PlannedJob) -> Row:
        joules = one.gpus * float(np.sum(one.job.seconds * one.job.watts)) or None
        output = self.output / one.job.makespan, one.usd, 1e6 * one.usd / self.output
        row = (one.plan.label, one.replicas, one.gpus, one.job.makespan, *output, joules,
               float(one.job.tail), self._wasted(one))  # fmt: skip
        return _row(PLANS, *row)

    def _tail(self, one: PlannedJob) -> Iterator[Row]:
        """When shares of the requests have ended, and what runs then."""
        ended, time = np.cumsum(one.job.ended), np.cumsum(one.job.seconds)
        for share in SHARES:
            after = np.interp(share * ended[-1], ended, time)
            cell, left = np.searchsorted(ended, share * ended[-1]), one.job.makespan - after
            row = 100.0 * share, after, max(left, 0.0), one.job.running[max(cell - 1, 0)]
            yield _row(TAIL, *map(float, row))

    def _steps(self, one: PlannedJob, step: Job) -> Iterator[Row]:
        stops = f"stops at {100.0 * (self.stop_at or 1.0):g} %"
        for name, job in (("waits for all", one.job), (stops, step)):
            stale = 100.0 * float(job.stale) if job.stale > TINY else 0.0
            yield _row(STEPS, name, job.makespan, self.output / job.makespan, stale)

    def _idle_hours(self, best: PlannedJob, idle: IdleHours) -> Iterator[Section]:
        """What fits the hours in which replicas are paid and not needed, or not full."""
        days = len(idle.idle) * idle.period / DAY
        ended, beside = (float(np.sum(x)) / days for x in (idle.ended, idle.beside))
        day = ended + beside
        takes = f"The job takes {digits(self.requests / day)} such days" if day else "None fits"
        yield (
            f"Of {quantity(idle.paid, 'replica')} that are paid for the traffic, "
            f"{float(np.mean(idle.idle)):.3g} are idle in the mean and end {count(ended)} requests "
            f"a day; those that serve end {count(beside)} more within its limits. {takes}, at no "
            f"more rent; by itself it costs ${best.usd:,.4g}."
        )
        yield {
            "requests_per_day": day,
            "requests_per_day_beside_traffic": beside,
            "paid_replicas": idle.paid,
        }
        hourly = HOUR / idle.period
        columns = idle.idle, idle.ended * hourly, idle.beside * hourly
        rows = [
            _row(IDLE, f"{h:02d}:00", *(float(x[idle.hours == h].mean()) for x in columns))
            for h in np.unique(idle.hours)
        ]
        yield Rows("idle_hours", rows, IDLE)

    def _notes(self) -> Iterator[str]:
        if self.cut > FEW:
            yield (
                f"{percent(self.cut)} % of the requests are longer than the model's context, and "
                "are cut to it; a server refuses prompts that long."
            )
        yield "Requests start in the order given, of which nobody knows the lengths beforehand."
        yield f"{option('replicas')} share the job evenly and are paid until the last one is done."
        if self.group > 1:
            yield "Responses of a group share the cache of their prompt, which is computed once."
        if self.step is not None:
            yield (
                "Of a step that stops, the others go on in the next, computed anew; stale are the "
                "tokens of steps before."
            )
        if self.idle is not None:
            yield "A replica is idle where fewer keep the limits of the traffic."
            yield "Beside traffic, both kinds wait in one queue, and together keep its limits."


def _row(columns: Sequence[Column], *values: object) -> Row:
    """A row by the names of its columns."""
    return dict(zip((str(x.value) for x in columns), values, strict=True))
