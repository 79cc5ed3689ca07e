"""The systems and formats of a report: the plan to take on each, and the frontier of each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from infer_jax.catalog.measured_points import MeasuredPoint, latency
from infer_jax.estimators import Trust
from infer_jax.pages.tradeoff import PlanSeries, Plotted, RunPoint, Tradeoff
from infer_jax.planning import USUAL_TTFT, Choice
from infer_jax.specs import Workload
from infer_jax.verbs import bands, plan_rows
from infer_jax.verbs.inputs import Given
from infer_jax.verbs.plan_search import ConsideredSystem, Plans, Question, fronts
from infer_jax.verbs.report_commands import Words, of_plan

ALIKE = 0.1  # share by which lengths of a measured run may differ from those asked for
HOURS = 730.0  # of a month: 365 x 24 / 12


class Candidate(NamedTuple):
    """The plan to take on one system in one format.

    Times in seconds; ``usd``: per million tokens in and out, ``out``: per million of output,
    ``hourly``: the rent of all its GPUs; ``excess``: by limit, the share by which it is exceeded;
    ``obstacle``, ``slow``: as of a ``Choice``.
    """

    label: str
    given: Given
    trusted: Trust
    layout: str
    gpus: float
    batch: float
    ttft: float
    tpot: float
    throughput: float
    usd: float
    out: float
    hourly: float
    excess: Mapping[str, float]
    obstacle: str = ""
    slow: float = 1.0

    @property
    def rank(self) -> tuple[float, ...]:
        """Sort key, the one to take first, as ``Choice.rank``."""
        times = np.asarray((self.usd * self.slow, self.tpot, self.ttft), np.float32)
        return max(self.excess.values(), default=0.0), bool(self.obstacle), *times.tolist()

    @property
    def broken(self) -> str:
        """The limits that it breaks and by how much, in words; "" where it meets all."""
        worst = sorted(self.excess.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} by {share:.1%}" for name, share in worst)

    def fields(self) -> dict[str, object]:
        """The plan for JSON."""
        return {
            "hardware": self.given.system.name,
            "formats": self.given.model.quantisation,
            "feasible": not self.excess,
            "broken": dict(self.excess),
            "layout": self.layout,
            "gpus": self.gpus,
            "batch": self.batch,
            "ttft_ms": 1e3 * self.ttft,
            "tpot_ms": 1e3 * self.tpot,
            "throughput_per_gpu_tokens_per_s": self.throughput,
            "blended_cost_per_mtok_usd": self.usd,
            "cost_per_hour_usd": self.hourly,
            "cost_per_month_usd": HOURS * self.hourly,
            "trust": self.trusted.fields(),
        }


def candidates(plans: Plans, *, usual: bool) -> dict[str, tuple[Candidate, Choice]]:
    """The plan to take on each system in each format, by label; none where no layout exists.

    ``usual``: TTFT is kept within the usual one, which a system may not reach.
    """
    found: dict[str, tuple[Candidate, Choice]] = {}
    for label, searched in plans.searched.items():
        pool, choice = plans.pools[label][0], searched.first
        if choice is not None:
            late = choice.ttft / USUAL_TTFT - 1.0
            excess = {"TTFT": late, **choice.excess} if usual and late > 0.0 else choice.excess
            choice = replace(choice, excess=excess)
            found[label] = _candidate(label, pool, choice), choice
    return found


def _candidate(label: str, pool: ConsideredSystem, choice: Choice) -> Candidate:
    return Candidate(
        label=label,
        given=pool.given,
        trusted=pool.trusted,
        layout=choice.layout,
        gpus=choice.chips,
        batch=choice.batch,
        ttft=choice.ttft,
        tpot=choice.tpot,
        throughput=choice.throughput,
        usd=choice.usd_per_mtok,
        out=choice.value("cost"),
        hourly=choice.usd_per_hour,
        excess=choice.excess,
        obstacle=choice.obstacle,
        slow=choice.slow,
    )


class Frontiers(NamedTuple):
    """The plans that no other beats in both speed and dollars, by label, with their bands."""

    question: Question
    pools: Mapping[str, Sequence[ConsideredSystem]]
    plans: Mapping[str, Sequence[Choice]]
    words: Mapping[str, Words]

    @classmethod
    def of(
        cls,
        question: Question,
        pools: Mapping[str, Sequence[ConsideredSystem]],
        words: Mapping[str, Words],
    ) -> "Frontiers":
        """Search them, also beyond the limit of TPOT."""
        return cls(question, pools, fronts(question, pools), words)

    def points(self) -> list[Plotted]:
        """Every plan as the chart shows it."""
        return [
            self.plotted(label, choice) for label, each in self.plans.items() for choice in each
        ]

    def plotted(self, label: str, choice: Choice, *, line: bool = True) -> Plotted:
        """One plan as the chart shows it."""
        return Plotted(
            series=label,
            layout=choice.layout,
            gpus=choice.chips,
            batch=choice.batch,
            numbers={
                "speed": 1.0 / choice.tpot,
                "latency": latency(choice.ttft, choice.tpot, choice.osl),
                "ttft": 1e3 * choice.ttft,
                "tpot": 1e3 * choice.tpot,
                "usd": choice.usd_per_mtok,
                "usd_out": choice.value("cost"),
                "rate": choice.throughput,
            },
            bands=bands.ends(
                self._intervals(label, choice),
                (choice.ttft, choice.tpot, choice.osl),
                (choice.usd_per_mtok, choice.throughput),
                arriving=self.question.asked.rate is not None,
            ),
            pools=choice.mode == "disaggregated",
            line=line,
            command=self._command(label, choice),
        )

    def _command(self, label: str, choice: Choice) -> str:
        tried, work = self.question.tried, self.question.requests.work
        words, total = self.words.get(label, {}), self.question.total
        return of_plan(choice, words, work, tried.estimator, total)

    def _intervals(self, label: str, choice: Choice) -> Mapping[str, Sequence[float]]:
        pool, name = self.pools[label][0], self.question.tried.estimator
        times, pools = (choice.ttft, choice.tpot), choice.mode == "disaggregated"
        return bands.intervals(
            name, pool.side.serving, pool.given, times, pools=pools, load=choice.batch
        )

    def fields(self) -> list[dict[str, object]]:
        """Every plan for JSON, with its series and the command that computes it."""
        rows = []
        for label, each in self.plans.items():
            pool = self.pools[label][0]
            for choice in each:
                row = plan_rows.PlanRow(
                    replace(choice, formats=pool.given.model.quantisation),
                    pool.trusted.borrowed_from,
                    self._intervals(label, choice),
                    plan_rows.values(choice, float(pool.given.hardware.power)),
                )
                fields = row.fields("USD", self.question.total)
                fields["speed_tokens_per_s"] = 1.0 / choice.tpot
                fields["command"] = self._command(label, choice)
                rows.append({"series": label, **fields})
        return rows


def runs_of(candidates: Sequence[Candidate], work: Workload) -> list[RunPoint]:
    """Measured runs of this model whose lengths are these within a tenth, each system's once."""
    systems = {c.given.system.name: c for c in reversed(candidates)}
    found = []
    for candidate in reversed(systems.values()):
        given = candidate.given
        for run in given.system.measured:
            pairs = (run.isl, float(work.isl)), (run.osl, float(work.osl))
            if run.model == given.model.name and all(abs(a / b - 1.0) <= ALIKE for a, b in pairs):
                found.append(_run(candidate.label, run, float(given.hardware.price)))
    return found


def _run(label: str, run: MeasuredPoint, price: float) -> RunPoint:
    """A measured run as the chart shows it; dollars by the rent of today."""
    requests = run.concurrency / run.latency
    paid = run.gpus * price / 3600.0
    what = (
        f"{run.model} on {label}: {run.concurrency:.4g} requests in flight on {run.gpus:g} GPUs, "
        f"TTFT {1e3 * run.ttft:.4g} ms, TPOT {1e3 * run.tpot:.4g} ms"
    )
    numbers = {
        "speed": 1.0 / run.tpot,
        "latency": run.latency,
        "ttft": 1e3 * run.ttft,
        "tpot": 1e3 * run.tpot,
        "usd": 1e6 * paid / (requests * (run.isl + run.osl)),
        "rate": requests * run.osl / run.gpus,
    }
    return RunPoint(label, what, numbers)


def tradeoff(
    plans: Sequence[Plotted],
    systems: Mapping[str, str],
    chosen: Plotted | None,
    limits: tuple[float | None, float | None],
    runs: Sequence[RunPoint] = (),
    hidden: Sequence[str] = (),
    label: str = "",
) -> Tradeoff:
    """What the chart shows; ``systems`` by label, in tones of their own; limits in seconds."""
    tones = {name: i for i, name in enumerate(dict.fromkeys(systems.values()))}
    series = [PlanSeries(each, tones[name], each not in hidden) for each, name in systems.items()]
    alike = ("series", "layout", "batch", "pools")
    at = (
        next(
            (
                i
                for i, p in enumerate(plans)
                if all(getattr(p, k) == getattr(chosen, k) for k in alike)
            ),
            None,
        )
        if chosen is not None
        else None
    )
    every = [*plans] if at is not None or chosen is None else [*plans, chosen._replace(line=False)]
    ttft, tpot = (None if x is None else 1e3 * x for x in limits)
    place = len(every) - 1 if at is None and chosen is not None else at
    return Tradeoff(series, every, place, runs, ttft, tpot, label)
