"""The answer of ``plan``: plans within the limits, or the nearest misses, and how they start."""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.estimators.known_errors import NAMES, pools as trust_of_pools
from infer_jax.launch import Launch, launches
from infer_jax.planning import USUAL_TTFT, Choice, Layout
from infer_jax.planning.fields import break_even_fields, plan_fields
from infer_jax.planning.pricing import RateChange, machines_of
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Lines, Notes, Part, Rows, Section, option, table
from infer_jax.rollouts import Rollout, write
from infer_jax.specs import UNBOUNDED
from infer_jax.verbs import inputs, limits
from infer_jax.verbs.plan_search import Plans, PlanSystem, Question
from infer_jax.verbs.plan_tables import (
    bill_columns,
    doubts,
    engine_columns,
    evenly_spaced,
    idle_gpus,
    missing_products,
    other_rents,
    preferences,
    rates_in_words,
    replay_columns,
    time_columns,
)
from infer_jax.verbs.rollout import rollout_of, with_loads

ONE_GPU = Layout(1.0, 1.0, 1.0, 1.0)
BANDS = "In brackets: what 80 % of measured runs are in, by the calibration or as said above."


@dataclass(frozen=True, repr=False)
class PlanResult(FigureResult):
    """Plans within the limits, cheapest first, or else the nearest misses.

    ``best``: the cheapest plan; ``plans``, ``near_misses``: all of them; ``launch``: the commands
    of the best one, by engine; ``engines``: plans of every engine, where they are compared;
    ``folder``: where the best one was written to start; ``rates``: at which another plan would
    come first, where they were asked for.
    """

    searched: Plans
    engines: Mapping[str, Plans] = field(default_factory=dict[str, Plans])
    folder: str = ""
    rates: Sequence[RateChange] | None = None

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.searched.question

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
    def rollout(self) -> Rollout | None:
        """The best plan as what starts it; None where no plan meets the limits."""
        return None if self.best is None else rollout_of(self.searched, self.best)

    @cached_property
    def launch(self) -> Mapping[str, Launch]:
        """What starts the best plan on each engine, or why nothing does."""
        rollout = self.rollout
        return {} if rollout is None else dict(zip(ENGINES, launches(rollout.service), strict=True))

    def deploy(self, folder: str | os.PathLike[str]) -> Mapping[str, str]:
        """Write a new folder that starts the best plan; what each file is is returned.

        Raises:
            InputError: no plan meets the limits, no engine starts it, or the folder holds
                something.
        """
        if self.rollout is None:
            raise InputError("deploy", "plan", None, "a plan within the limits, and none is")
        return write(with_loads(self.rollout), folder)

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a plan: those within the limits, else the nearest misses."""
        return [self._row(c) for c in self.searched.met or self.searched.missed]

    def _row(self, c: Choice, plans: Plans | None = None) -> dict[str, object]:
        """A plan for JSON; ``plans``: those that it was found with, if of another engine."""
        plans = plans or self.searched
        replayed = bool(plans.replayed)
        question = plans.question
        gpus, cost = machines_of(c, [x.side for x in plans.systems_of(c)])
        return {
            **plan_fields(c, question.currency, question.total, replayed=replayed),
            "gpus_of_machines": gpus,
            "idle_gpus_of_machines": gpus - c.chips,
            f"whole_machines_cost_per_mtok_{question.currency.lower()}": cost,
        }

    def sections(self) -> Iterator[Section]:
        """The plans with their times, costs and bills, how the best one starts, and notes."""
        question, plans, best = self.question, self.searched, self.best
        frontier, notes = question.requirements.frontier and bool(plans.met), self.notes()
        shown = plans.met or plans.missed[: question.top]
        shown = evenly_spaced(shown) if frontier else shown
        systems, work = list(dict.fromkeys(c.system for c in shown)), question.requests.work
        where = f" on {systems[0]}" if len(systems) == 1 else ""
        yield f"{plans.model.name}{where}, {float(work.isl):g} tokens in, {float(work.osl):g} out"
        yield from (system.trust.says for system in plans.systems.values())
        if any(c.mode == "disaggregated" for c in shown):
            yield trust_of_pools()
        yield from (x for s in plans.searches.values() for x in missing_products(s.systems))
        yield self._facts()
        yield ""
        if not plans.met and not plans.decision:
            yield "No plan meets every limit. The nearest, and what they break:"
        mark = 0 if plans.met and not frontier else -1
        yield Rows("", shown, time_columns(shown, plans, frontier=frontier), mark)
        if not frontier:
            yield Rows("", shown, bill_columns(shown, plans))
        sentences = [] if frontier else [*preferences(plans)]
        if plans.decision:
            sentences = [*plans.decision.sentences(best, question.sign)]
        elif not frontier and not plans.replayed:
            sentences += doubts(plans)
        sentences += [] if frontier else other_rents(plans)
        if self.rates is not None:
            sentences.append(rates_in_words(question.requirements.rate or 0.0, self.rates))
            rates = [(x.rate, x.same, x.choice and self._row(x.choice)) for x in self.rates]
            names = ("request_rate_per_s", "same_plan_at_per_s", "plan")
            yield {"other_rates": [dict(zip(names, row, strict=True)) for row in rates]}
        if sentences:
            yield from ("", *sentences)
        if self.engines:
            yield from ("", "The cheapest plan of each engine")
            yield table(rows := self._engine_rows(), engine_columns(question))
            yield {"engines": rows}
        timed = [c for c in plans.replayed if c.replay and c.replay.times]
        if timed:
            columns = replay_columns(plans.replayed)
            yield from ("", "By law and by replay, ms:", table(timed, columns))
        by_replay = self._replay_notes()
        yield from by_replay
        printed = [*notes]
        if self.folder:
            printed.append(f"{self.folder} starts the first plan: its README.md says how.")
        if frontier:
            count = f"{len(shown)} of {len(plans.met)} points of the frontier"
            printed.insert(1, f"{count}; {option('json')} has all.")
        if best is not None:
            printed += yield from self._commands(best)
        yield Notes(printed)
        yield {"notes": [*notes, *by_replay]}  # of JSON, which has the commands' own beside them

    def _engine_rows(self) -> list[dict[str, object]]:
        """The cheapest plan of every engine that is compared, or why it has none."""
        rows = list[dict[str, object]]()
        for name, plans in self.engines.items():
            best, why = plans.best, "none meets every limit"
            row: dict[str, object] = {"engine": name}
            if best is None or best.obstacle:
                row["why_none"] = why if best is None else best.obstacle
            else:
                row |= self._row(best, plans)
            rows.append(row)
        return rows

    def _facts(self) -> dict[str, object]:
        """What was asked, and all plans, for JSON; rents in the currency of ``price``."""
        question, plans, work = self.question, self.searched, self.question.requests.work
        frontier = question.requirements.frontier
        return {
            "model": plans.model.name,
            "formats": plans.formats,
            "estimator": question.estimator,
            "trust": {name: system.trust.fields() for name, system in plans.systems.items()},
            "isl_tokens": work.isl,
            "osl_tokens": work.osl,
            "prefix_tokens": work.prefix,
            "lengths": question.requests.lengths,
            "request_rate_per_s": question.requirements.rate,
            "limits": {f"{k}_ms": 1e3 * x for k, x in question.requirements.limits.items()},
            "usual_ttft_ms": 1e3 * USUAL_TTFT if plans.usual else None,
            "configurations": plans.configurations,
            "feasible": self.feasible,
            **(plans.decision.fields() if plans.decision else {}),
            **({"folder": self.folder} if self.folder else {}),
            "frontier" if frontier else "plans": [self._row(c) for c in plans.met],
            "break_even": []
            if frontier
            else break_even_fields(plans.break_evens, question.currency),
            "near_misses": [self._row(c) for c in plans.missed],
            "deployment": self.rollout and self.rollout.to_dict(),
            "launch": {launch.engine: launch.to_dict() for launch in self.launch.values()},
        }

    def _commands(self, best: Choice) -> Generator[Part, None, Sequence[str]]:
        """Commands for the best plan's engine, or why it has none and those of another engine.

        Notes on the printed commands are returned.
        """
        own = self.launch[best.engine]
        able = next((x for x in (own, *self.launch.values()) if x.steps), None)
        reasons = [f"No {own.engine} command for {best.layout}: {why}." for why in own.missing]
        if reasons:
            yield from ("", *reasons)
        if able is None:
            return [f"No engine's command is printed: see {option('json')}."]
        if able is not own:
            which = f"what follows starts the same layout on {able.engine}"
            yield f"Times and costs are of {own.engine}; {which} ({option('engine')})."
        for step in able.steps:
            where = f", {step.where}" if step.where else ""
            yield from ("", f"On {able.engine} {able.version}, {best.layout}{where}:")
            yield Lines("\n".join([*(f"# {comment}" for comment in able.comments), step.command]))
        for name, text in able.files.items():
            yield from ("", f"{name}:")
            yield Lines(text)
        return able.notes

    def notes(self) -> list[str]:
        """The space that was searched, and assumptions."""
        question, plans = self.question, self.searched
        requirements, requests, currency = (
            question.requirements, question.requests, question.currency
        )  # fmt: skip
        banded = any(c.calibrated_intervals for c in plans.met or plans.missed)
        chunked = list(question.chunks) != [UNBOUNDED]
        pooled = requests.work.lengths and not question.pools_excluded
        names = ("tpot",) if requirements.usual_ttft else limits.LONG
        power = "GPUs" if question.pue is None else f"site, at a PUE of {question.pue:g}"
        assumed = list[str]()
        for systems, found in plans.searches.values():
            assumed += [note for system in systems for note in system.notes]
            if not found.pooled:
                assumed.append(_without_pools(systems[0]))
        statements = {
            BANDS: banded,
            self._usual_ttft(): requirements.usual_ttft,
            **dict.fromkeys(
                limits.unlikely_times({name: getattr(requirements, name) for name in names}), True
            ),
            **dict.fromkeys(requests.notes, True),
            "Pools take all requests at the mean lengths.": pooled,
            "Pools prefill a prompt in one pass.": chunked and len(question.modes) > 1,
            **dict.fromkeys(question.drafts.notes if question.drafts else [], True),
            "Pools are left out: only the mean of their wait is known.": question.pools_excluded,
        }
        return [
            *(idle_gpus(plans.best, plans) if plans.best else []),
            f"{self._space()}, {plans.configurations} configurations, "
            f"{' and '.join(question.modes)}.",
            *(text for text, applies in statements.items() if text and applies),
            "Times are means of servers that run on.",
            f"{currency} and joules are per million tokens. Energy is of the {power}.",
            *inputs.mixed_rents([x.setup for x in plans.systems.values()]),
            *dict.fromkeys(note.replace(" USD/h", f" {currency}/h") for note in assumed),
        ]

    def _space(self) -> str:
        """Which layouts were tried: those that the engine starts, every legal one where none."""
        load = "batch" if self.question.requirements.rate is None else "number of replicas"
        systems = [x for search in self.searched.searches.values() for x in search.systems]
        runs = [x for x in systems if x.starter(ONE_GPU)]
        if not runs:
            return f"Every legal layout and {load}"
        engines = " and ".join(dict.fromkeys(NAMES[x.side.serving.engine_name] for x in runs))
        # a layout is one that the engine starts whatever the weights and drafts
        unknown = any(x.starter.obstacle(ONE_GPU) for x in runs)
        can = "could start if it loaded the weights" if unknown else "can start"
        can += " without drafts" if self.question.drafts else ""
        others = list(dict.fromkeys(x.side.name for x in systems if x not in runs))
        legal = f", on {' and '.join(others)} every legal one" if others else ""
        return f"Every layout that {engines} {can}{legal}, and every {load}"

    def _usual_ttft(self) -> str:
        """Whether the usual limit of TTFT is set; "" where other limits are in the way."""
        seconds = f"{USUAL_TTFT:g} s"
        if self.searched.usual:
            how = f"{option('ttft')} sets another, {option('ttft', 'none')} takes it away."
            return f"TTFT is kept within {seconds}, a usual limit; {how}"
        if self.searched.met:
            return f"No plan that meets the other limits keeps TTFT within {seconds}: none is set."
        return ""

    def _replay_notes(self) -> list[str]:
        """Differences between closed form and replay, plans not replayed, and what a replay is."""
        replayed = self.searched.replayed
        if not replayed:
            return []
        from infer_jax.verbs.plan_replay import ABOUT, differences

        missing = dict[str, list[str]]()
        for c in replayed:
            if c.replay and not c.replay.times:
                missing.setdefault(c.replay.why, []).append(c.layout)
        return [
            *differences(self.searched),
            *(f"Not replayed: {', '.join(x)} ({why})." for why, x in missing.items()),
            *([ABOUT] if any(c.replay and c.replay.times for c in replayed) else []),
        ]

    def _figure(self) -> Figure:
        """The frontier of each system in speed and cost, the best plan and the limit of TPOT.

        Drawn are also plans that break the limit of TPOT, which is a line.
        """
        from infer_jax.verbs.plan_page import figure  # which other plans need not load

        return figure(self.searched)

    def _page(self, figure: Callable[[], Figure]) -> str:
        """The page of the plans, whose chart is to point into."""
        from infer_jax.verbs.plan_page import page

        return page(self.searched, self.notes())


def _without_pools(system: PlanSystem) -> str:
    """Why no plan has two pools: the engine starts none, or none fit."""
    starter, name = system.starter, system.side.name
    if starter(ONE_GPU) and not starter(ONE_GPU, "prefill"):
        return f"No two pools of {name} are tried: {starter.obstacle(ONE_GPU, 'prefill')}."
    return f"No two pools of {name} fit what is asked."
