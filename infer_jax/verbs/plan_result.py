"""The answer of ``plan``: plans within the limits, or the nearest misses, and how they start."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from infer_jax.estimators.known_errors import NAMES, pools as trust_of_pools
from infer_jax.launch import Launch
from infer_jax.planning import USUAL_TTFT, Choice
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Notes, Part
from infer_jax.specs import UNBOUNDED
from infer_jax.verbs import limits, plan_launch, plan_picture, plan_rows, plan_tables
from infer_jax.verbs.plan_rows import PlanRow
from infer_jax.verbs.plan_search import Plans, Question
from infer_jax.verbs.plan_trust import doubts, preferences, warnings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ONE_GPU = {"tp": 1.0, "attention_dp": 1.0, "ep": 1.0, "pp": 1.0}
BANDS = "In brackets: what 80 % of measured runs are in, by the calibration of the profile."


@dataclass(frozen=True, repr=False)
class PlanResult(Pictured):
    """Plans within the limits, cheapest first, or else the nearest misses.

    ``best``: the cheapest plan; ``plans``, ``near_misses``: all of them; ``launch``: the commands
    of the best one, by engine.
    """

    question: Question
    searched: Plans

    @property
    def best(self) -> Choice | None:
        """The cheapest plan within the limits; None where no plan meets them all."""
        return self.searched.best

    @property
    def feasible(self) -> bool:
        """Whether any plan meets every limit."""
        return bool(self.searched.met)

    @property
    def plans(self) -> Sequence[Choice]:
        """The plans within the limits."""
        return self.searched.met

    @property
    def near_misses(self) -> Sequence[Choice]:
        """The plans that break the limits least, where none meets them all."""
        return self.searched.missed

    @cached_property
    def launch(self) -> Mapping[str, Launch]:
        """What starts the best plan on each engine, or why nothing does."""
        if self.best is None:
            return {}
        return plan_launch.started(self.best, self.question, self.searched)

    def fields(self) -> Mapping[str, object]:
        """All plans with what was asked; rents in the currency of ``price``."""
        question, plans, work = self.question, self.searched, self.question.requests.work
        return {
            "model": plans.model.name,
            "formats": list(plans.formats),
            "estimator": question.tried.estimator,
            "trust": {system: one.fields() for system, one in plans.trusted.items()},
            "isl_tokens": work.isl,
            "osl_tokens": work.osl,
            "prefix_tokens": work.prefix,
            "lengths": question.requests.lengths,
            "usual_ttft_ms": 1e3 * USUAL_TTFT if plans.usual else None,
            "configurations": plans.configurations,
            "feasible": self.feasible,
            **(plans.decision.fields() if plans.decision else {}),
            "frontier" if question.asked.frontier else "plans": self._fields_of(plans.met),
            "near_misses": self._fields_of(plans.missed),
            "launch": {launch.engine: launch.to_dict() for launch in self.launch.values()},
            "notes": [*self.notes(), *self._replay_notes()],
        }

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a plan: those within the limits, else the nearest misses."""
        return self._fields_of(self.searched.met or self.searched.missed)

    def _fields_of(self, plans: Sequence[Choice]) -> list[dict[str, object]]:
        currency, total = self.question.money.currency, self.question.total
        return [plan_rows.row(c, self.searched).fields(currency, total) for c in plans]

    def parts(self) -> Iterator[Part]:
        """The plans with their times, costs and bills, how the best one starts, and notes."""
        question, plans, best = self.question, self.searched, self.best
        frontier, notes = question.asked.frontier and bool(plans.met), self.notes()
        rows = self._shown()
        yield self._head(rows)
        yield from (one.says for one in plans.trusted.values())
        if any(row.choice.mode == "disaggregated" for row in rows):
            yield trust_of_pools()
        yield from (x for pools in plans.pools.values() for x in warnings(pools))
        yield ""
        if not plans.met and not plans.decision:
            yield from ("No plan meets every limit. The nearest, and what they break:", "")
        currency, formats = question.money.currency, len(plans.formats) > 1
        sign = "$" if currency == "USD" else currency
        met = bool(plans.met)
        yield from plan_tables.tables(rows, met=met, frontier=frontier, formats=formats, sign=sign)
        if plans.decision:
            yield from ("", *plans.decision.says(best, sign))
        elif not frontier and (
            said := [*preferences(plans), *([] if plans.replayed else doubts(plans))]
        ):
            yield from ("", *said)
        if plans.replayed:
            if any(x.times for x in plans.replayed):
                yield from ("", "By law and by replay, ms:", plan_tables.replayed(plans.replayed))
            yield from self._replay_notes()
        if frontier:
            count = f"{len(rows)} of {len(plans.met)} points of the frontier; --json has all."
            notes.insert(1, count)
        if best is not None:
            engine = plan_launch.engine_of(plans, best)
            launched = dict(self.launch)
            yield from plan_launch.parts(launched, best.layout, engine)
            notes += plan_launch.notes(launched, engine)
        yield Notes(notes)

    def _shown(self) -> list[PlanRow]:
        """The rows that are printed: of a frontier some, of near misses the nearest."""
        plans, asked = self.searched, self.question.asked
        shown = plans.met or plans.missed[: self.question.tried.count]
        if plans.met and asked.frontier:
            shown = [plans.met[i] for i in plan_tables.spread(plans.met)]
        return [plan_rows.row(c, plans) for c in shown]

    def _head(self, rows: Sequence[PlanRow]) -> str:
        systems = list(dict.fromkeys(row.choice.system for row in rows))
        where = f" on {systems[0]}" if len(systems) == 1 else ""
        work = self.question.requests.work
        lengths = f"{float(work.isl):g} tokens in, {float(work.osl):g} out"
        return f"{self.searched.model.name}{where}, {lengths}"

    def notes(self) -> list[str]:
        """The space that was searched, and assumptions."""
        question, plans = self.question, self.searched
        tried, requests, currency = question.tried, question.requests, question.money.currency
        shown = plans.met or plans.missed
        banded = any(plan_rows.row(c, plans).intervals for c in shown)
        chunked = list(tried.chunks) != [UNBOUNDED]
        pooled = requests.work.lengths and not tried.alone
        names = ("tpot", "p99_ttft") if question.asked.usual_ttft else limits.LONG
        set_by_user = {name: getattr(question.asked, name) for name in names}
        return [
            *(plan_rows.free(plans.best, question.asked) if plans.best else []),
            f"{self._tried()}, {plans.configurations} configurations, {' and '.join(tried.modes)}.",
            *([BANDS] if banded else []),
            *(self._usual() if question.asked.usual_ttft else []),
            *limits.long_times(set_by_user),
            *requests.notes,
            *(["Pools take all requests at the mean lengths."] if pooled else []),
            *(["Pools prefill a prompt in one pass."] if chunked and len(tried.modes) > 1 else []),
            *(question.drafts.notes if question.drafts else []),
            *(["Pools are left out: only the mean of their wait is known."] if tried.alone else []),
            f"{currency} and joules are per million tokens: of both sides, blended, where not of "
            f"input or output; a GPU is paid while it is rented. Energy is {self._energy()}.",
            *dict.fromkeys(note.replace(" USD/h", f" {currency}/h") for note in plans.notes),
        ]

    def _energy(self) -> str:
        pue = self.question.money.pue
        return "of the GPUs" if pue is None else f"of the site, at a PUE of {pue:g}"

    def _tried(self) -> str:
        """Which layouts were tried: those that the engine starts, or all where it starts none."""
        load = "batch" if self.question.asked.rate is None else "number of replicas"
        starters = [pool for pools in self.searched.pools.values() for pool in pools]
        if all(pool.starter.obstacle(ONE_GPU) for pool in starters):
            return f"Every legal layout and {load}"
        engines = dict.fromkeys(NAMES[pool.side.serving.engine_name] for pool in starters)
        return f"Every layout that {' and '.join(engines)} can start, and every {load}"

    def _replay_notes(self) -> list[str]:
        """Differences between closed form and replay, plans not replayed, and what a replay is."""
        if not self.searched.replayed:
            return []
        from infer_jax.verbs.plan_replay import ABOUT, differences

        missing = {}
        for choice, times, why in self.searched.replayed:
            if times is None:
                missing.setdefault(why, []).append(choice.layout)
        return [
            *differences(self.question, self.searched),
            *(f"Not replayed: {', '.join(x)} ({why})." for why, x in missing.items()),
            *([ABOUT] if len(self.searched.replayed) > sum(map(len, missing.values())) else []),
        ]

    def _usual(self) -> list[str]:
        seconds = f"{USUAL_TTFT:g} s"
        if self.searched.usual:
            how = "--ttft sets another, --ttft none takes it away."
            return [f"TTFT is kept within {seconds}, a usual limit; {how}"]
        if self.searched.met:
            why = f"No plan that meets the other limits keeps TTFT within {seconds}, the usual "
            return [why + "limit: none is set."]
        return []  # other limits are in the way, which the near misses name

    def _figure(self) -> "Figure":
        """The frontier of each system in speed and cost, the best plan and the limit of TPOT.

        Drawn are also plans that break the limit of TPOT, which is a line.
        """
        return plan_picture.figure(self.question, self.searched)

    def _page(self, figure: "Callable[[], Figure]") -> str:
        """The page of the plans, whose chart is to point into."""
        from infer_jax.verbs.plan_page import page  # which other plans need not load

        question, plans = self.question, self.searched
        return page(question, plans, plan_picture.titled(plans), self.notes())
