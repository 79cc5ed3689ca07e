"""The answer of ``offline``: what a job takes on every plan, its tail, steps and idle hours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from infer_jax.estimators import Trust
from infer_jax.fleets.fluid import HOUR
from infer_jax.results import Column, Notes, Result, Row, Rows, Section, option
from infer_jax.results.numbers import count, digits, duration, percent, quantity, scaled_format
from infer_jax.verbs.offline_idle import IdleHours
from infer_jax.verbs.offline_jobs import Job

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
    jobs: Sequence[Job]
    trust: Trust
    stop_at: float | None
    step: Job | None
    idle: IdleHours | None
    cut: float = 0.0

    def sections(self) -> Iterator[Section]:
        """The answer in sentences, plans, the tail, and what else was asked."""
        best, rows = self.jobs[0], [_plan_row(x) for x in self.jobs]
        prompt, output, first = best.plan.mean("prompt"), best.plan.mean("output"), rows[0]
        yield (
            f"{best.plan.setup.model.name}: {quantity(best.requests, 'request')} of "
            f"{count(prompt)} tokens in and {count(output)} out in the mean, all there at the "
            "start."
        )
        yield self.trust.says
        yield (
            f"{first['plan']} on {quantity(best.replicas, 'replica')}: {duration(best.makespan)}, "
            f"${best.usd:,.4g}, {first['tokens_per_s']:,.0f} output tokens/s. The batch empties in "
            f"the last {duration(best.tail)}, and {first['wasted_percent']:.2g} % of the rent is "
            "wasted by that."
        )
        yield {"requests": best.requests, "output_tokens": best.output_tokens}
        yield Rows("plans", rows, PLANS, mark=0)
        yield Rows("tail", list(_tail(best)), TAIL)
        if self.step is not None:
            stops = f"stops at {100.0 * (self.stop_at or 1.0):g} %"
            steps = [_step_row("waits for all", best), _step_row(stops, self.step)]
            yield Rows("steps", steps, STEPS)
        if self.idle is not None:
            yield ""
            yield from self._idle_hours(best, self.idle)
        yield Notes([*self._notes()])

    def _idle_hours(self, best: Job, idle: IdleHours) -> Iterator[Section]:
        """What fits the hours in which replicas are paid and not needed, or not full."""
        ended, beside = (24.0 * float(np.mean(x)) for x in (idle.ended, idle.beside))
        day = ended + beside
        takes = f"The job takes {digits(best.requests / day)} such days" if day else "None fits"
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
        columns = idle.idle, idle.ended, idle.beside
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
        if float(self.jobs[0].plan.lengths.own) < 1.0:
            yield "Responses of a group share the cache of their prompt, which is computed once."
        if self.step is not None:
            yield (
                "Of a step that stops, the others go on in the next, computed anew; stale are the "
                "tokens of steps before."
            )
        if self.idle is not None:
            yield "A replica is idle where fewer keep the limits of the traffic."
            yield "Beside traffic, both kinds wait in one queue, and together keep its limits."


def _plan_row(job: Job) -> Row:
    plan, joules = f"{job.plan.layout} {job.plan.setup.system.name}", job.gpus * job.joules or None
    output, wasted = job.output_tokens, 100.0 * job.wasted / job.makespan
    costs = output / job.makespan, job.usd, 1e6 * job.usd / output, joules
    return _row(PLANS, plan, job.replicas, job.gpus, job.makespan, *costs, job.tail, wasted)


def _tail(job: Job) -> Iterator[Row]:
    """When shares of the requests have ended, and what runs then."""
    ended, time = np.cumsum(job.ended), np.cumsum(job.seconds)
    for share in SHARES:
        after = np.interp(share * ended[-1], ended, time)
        cell, left = np.searchsorted(ended, share * ended[-1]), job.makespan - after
        row = 100.0 * share, after, max(left, 0.0), job.running[max(cell - 1, 0)]
        yield _row(TAIL, *map(float, row))


def _step_row(name: str, job: Job) -> Row:
    stale = 100.0 * job.stale if job.stale > TINY else 0.0
    return _row(STEPS, name, job.makespan, job.output_tokens / job.makespan, stale)


def _row(columns: Sequence[Column], *values: object) -> Row:
    """A row by the names of its columns."""
    return dict(zip((str(x.value) for x in columns), values, strict=True))
