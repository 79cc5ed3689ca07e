"""The plan of a report, what it was chosen among, and every verb's answer about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from infer_jax.compiling import once
from infer_jax.design.sensitivity import Elasticity, analyser, outputs_without_power
from infer_jax.estimators import VARIANTS, Estimate, Estimator, Trust
from infer_jax.estimators.kernels.model import kernel_passes, rows
from infer_jax.estimators.known_errors import pools as trust_of_pools
from infer_jax.estimators.registry import variant
from infer_jax.footprint import EngineSettings, StartupMemory, memory as startup_memory
from infer_jax.launch import Launch, LaunchedService, budget, launches
from infer_jax.planning import USUAL_TTFT, Choice, bands
from infer_jax.planning.given import costs_fields, given_choice, plain_plan, point_of
from infer_jax.plots.plan_chart import PlanChart, RunPoint, chart_numbers
from infer_jax.results import Row, option
from infer_jax.results.problems import refuse
from infer_jax.specs import Workload
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import inputs, pictures
from infer_jax.verbs.frontier_result import (
    FrontierResult,
    FrontierSearch,
    ideal_frontier,
    ideal_points,
)
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.memory_result import server_settings
from infer_jax.verbs.option import either
from infer_jax.verbs.plan_page import Words, command, lengths_of, plan_point, words_of
from infer_jax.verbs.plan_search import Question, frontiers, plan_system, plans, servers
from infer_jax.verbs.split import LayoutOptions, plan_of

ALIKE = 0.1  # share by which lengths of a measured run may differ from those of the report


@dataclass(frozen=True, repr=False)
class Report:
    """The plan of a report, ``chosen``, and why it is this one.

    ``candidates``: the plan to take in each series, by whose label ``systems`` are; ``frontiers``:
    of every series, None with an estimator that cannot search plans; ``total``: GPUs, where they
    are given; ``usual``: whether plans were limited to the usual TTFT.
    """

    question: Question
    chosen: Choice
    why: str
    candidates: Sequence[Choice]
    systems: Mapping[str, Setup]
    frontiers: Mapping[str, Sequence[Choice]] | None
    total: float | None
    usual: bool = False

    @property
    def setup(self) -> Setup:
        """The model and the system of the plan."""
        return self.systems[self.chosen.label]

    @property
    def trust(self) -> Trust:
        """The known errors of the estimator on that system."""
        return self.chosen.trusts[0]

    @property
    def pooled(self) -> bool:
        """Whether the plan has separate pools."""
        return len(self.chosen.pools) > 1

    @cached_property
    def compared(self) -> Sequence[Setup]:
        """The systems that are compared, each in its last format."""
        setups = (self.systems[c.label] for c in self.candidates)
        return list({setup.system.name: setup for setup in setups}.values())

    @cached_property
    def words(self) -> Mapping[str, Words]:
        """Options of every command that the page names, by label."""
        return words_of(self.question, self.systems, self.total)

    @cached_property
    def point(self) -> Point:
        """The estimator of the plan, and the inputs of its estimate."""
        setup, work = self.setup, self.question.requests.work
        fitted = inputs.estimator(self.question.estimator, setup)
        return point_of(fitted, setup.model.architecture, setup.hardware, work, self.chosen.pools)

    @cached_property
    def estimate(self) -> Estimate:
        """The estimate of the plan."""
        return once(Estimator.estimate_once, *self.point)

    @cached_property
    def intervals(self) -> Mapping[str, Sequence[float]]:
        """What 80 % of measured servers are in, ms, by name; none where errors are not known."""
        known = self.trust.known
        return bands.intervals_of(self.estimate, self.chosen.within) if known else {}

    @cached_property
    def costs(self) -> Mapping[str, float]:
        """USD per hour and month and per million tokens, for JSON."""
        return costs_fields(self.chosen, self.point, self.estimate)

    @cached_property
    def service(self) -> LaunchedService:
        """The servers of the plan."""
        return servers(self.chosen, self.question, [self.setup])

    @cached_property
    def launches(self) -> list[Launch]:
        """What starts the plan on each engine, or why nothing does."""
        return launches(self.service)

    @cached_property
    def engine(self) -> EngineSettings:
        """Settings of the server that the launch commands start, of the decode pool's of two."""
        last = self.service.instances[-1]
        name = self.point.estimator.innermost.engine_name or "vllm"
        return server_settings(self.setup.system)[0].with_(
            context=float(self.service.context),
            sequences=float(last.group_requests),
            batched_tokens=float(budget(last, self.service, name)),
        )

    @cached_property
    def memory(self) -> StartupMemory:
        """What fills a GPU of that server."""
        arch, hardware = self.point.arch, self.point.hardware
        _, overheads = server_settings(self.setup.system)
        plan = plain_plan(self.chosen.pools[-1])
        return once(startup_memory, arch, hardware, plan, self.engine, overheads)

    @cached_property
    def elasticities(self) -> list[Elasticity]:
        """What every number of model, hardware and plan does to the outputs."""
        return analyser(outputs_without_power, self.point, "estimator", exact=False)(self.point)

    @cached_property
    def kernels(self) -> Mapping[str, Sequence[Row]]:
        """Kernels of one GPU by pass, by the curves of the profile or at the roofline."""
        coefficients, kernels = self.setup.system.coefficients, variant("kernels").make()
        if coefficients.get("kernels"):
            kernels = kernels.fitted_to(coefficients)
        arch, hardware, work = self.point.arch, self.point.hardware, self.point.workload
        plans = plain_plan(self.chosen.pools[0]), plain_plan(self.chosen.pools[-1])
        profiles = once(kernel_passes, kernels, arch, hardware, work, plans)
        return {stage: rows(arch, profile) for stage, profile in profiles.items()}

    @cached_property
    def ideals(self) -> Mapping[str, FrontierResult]:
        """Frontiers of ideal servers: on the system of the plan, on all without other frontiers."""
        labels = self.systems if self.frontiers is None else [self.chosen.label]
        # an ideal server has no version
        setups = {x: replace(self.systems[x], engine_version=None) for x in labels}
        work, search = self.question.requests.work, FrontierSearch(total=self.total)
        return {label: ideal_frontier(setup, work, search) for label, setup in setups.items()}

    @property
    def ideal(self) -> FrontierResult:
        """The frontier of ideal servers on the system of the plan."""
        return self.ideals[self.chosen.label]

    @cached_property
    def notes(self) -> list[str]:
        """Why it is this plan, and what was assumed."""
        pools = [trust_of_pools()] if self.pooled else []
        ideal = [self.ideal.why] if self.ideal.why else []
        return list(dict.fromkeys([self.why, *pools, *self.setup.notes, *ideal]))

    @cached_property
    def chart(self) -> PlanChart:
        """The chart of every system and format, with the plan."""
        question, chosen, words = self.question, self.chosen, self.words
        series = {c.label: self.systems[c.label] for c in self.candidates}
        names = {label: x.system.name for label, x in series.items()}
        choices = [c for front in (self.frontiers or {}).values() for c in front]
        points = [plan_point(c, question, words[c.label]) for c in choices]
        ideal = {label: label for label in self.ideals}
        hidden = [f"{chosen.label}, ideal server"] if self.frontiers is not None else []
        if hidden:
            ideal = {chosen.label: hidden[0]}
            names |= {hidden[0]: self.setup.system.name}
        for label, name in ideal.items():
            shell = command("frontier", words[label], **lengths_of(question))
            points += ideal_points(name, self.ideals[label].points, shell)
        asked, plan = question.requirements, plan_point(chosen, question, words[chosen.label])
        limits = USUAL_TTFT if self.usual else asked.ttft, asked.tpot
        runs = measured_runs(series, question.requests.work)
        title = pictures.plans_title(self.setup.model.name, list(names.values()))
        return PlanChart.of(points, names, plan, limits, hidden, runs=runs, label=title)


def measured_runs(systems: Mapping[str, Setup], work: Workload) -> list[RunPoint]:
    """Measured runs of this model whose lengths are these within a tenth, each system's once."""
    labels = {systems[x].system.name: x for x in reversed(list(systems))}
    points = list[RunPoint]()
    for label in reversed(labels.values()):
        setup = systems[label]
        for run in setup.system.measured:
            pairs = (run.isl, float(work.isl)), (run.osl, float(work.osl))
            if run.model != setup.model.name or any(abs(a / b - 1.0) > ALIKE for a, b in pairs):
                continue
            what = (
                f"{run.model} on {label}: {run.concurrency:.4g} requests in flight on {run.gpus:g} "
                f"GPUs, TTFT {1e3 * run.ttft:.4g} ms, TPOT {1e3 * run.tpot:.4g} ms"
            )
            usd = run.usd_per_mtok(float(setup.hardware.price))  # by the rent of today
            numbers = chart_numbers(run.ttft, run.tpot, run.osl, usd, run.throughput)
            points.append(RunPoint(label, what, numbers))
    return points


GPUS = 8.0  # the GPUs of a plan where none are given: one server


def choose(question: Question, split: LayoutOptions, batch: float | None) -> Report:
    """The plan as it is given, on the system where it is best, or the one ``plan`` puts first."""
    name, systems = question.estimator, dict[str, Setup]()
    for label, form, (system, *_) in question.series():
        systems[label] = question.read(system, form)
        if inputs.estimator(name, systems[label]).searches:
            raise refuse("estimator", name, "one that takes a split: serving, economics.planned")
        inputs.check_context(systems[label].model, question.requests.work)
    if split.pools:
        return _as_given(question, systems, split, batch)
    degrees = option("tp")
    if not VARIANTS[name].make().batches:
        others = f"(with {option('pp')}, {option('ep')}), or {option('estimator', 'serving')}"
        raise refuse("tp", "missing", f"{degrees} {others}")
    if split.copies > 1:
        raise refuse("dp", split.copies, f"with {degrees}: copies of a plan that is looked for")
    if batch is not None:
        raise refuse("batch", batch, f"with {degrees}: a plan that is looked for has its own")
    return _searched(question, systems)


def _on_gpus(question: Question, chips: float) -> Question:
    return replace(question, requirements=replace(question.requirements, chips=chips))


def _searched(question: Question, systems: Mapping[str, Setup]) -> Report:
    """The plan that ``plan`` puts first, or the nearest miss."""
    total = question.total
    question = _on_gpus(question, either(total, GPUS))
    limits, answer = question.requirements, plans(question)
    gpus = f"{limits.chips:g} GPUs"
    first = min(answer.met or answer.missed, key=lambda c: c.rank, default=None)
    if first is None:
        raise refuse("total_gpus", f"{limits.chips:g}", "more: no layout fits so few GPUs")
    if answer.met:
        limited = np.isfinite((limits.ttft, limits.tpot)).any() or answer.usual
        why = f"The cheapest of {answer.configurations} layouts and batches on {gpus}"
        why += " that meet the limits." if limited else "."
        why += f" TTFT is kept within {USUAL_TTFT:g} s." if answer.usual else ""
    else:
        broken = ", ".join(f"{name} by {share:.1%}" for name, share in first.excess.items())
        why = f"No plan on {gpus} meets every limit; the nearest breaks {broken}."
    found = (search.found for search in answer.searches.values())
    best = [min(x.met or x.missed, key=lambda c: c.rank) for x in found if x.met or x.missed]
    candidates = [_late(c) for c in best] if answer.usual else best
    chosen = next(c for c in candidates if c.label == first.label)
    fronts = frontiers(question, {label: x.systems for label, x in answer.searches.items()})
    return Report(question, chosen, why, candidates, systems, fronts, total, answer.usual)


def _late(c: Choice) -> Choice:
    """A plan with the usual TTFT among its limits, which its system may not reach."""
    late = c.ttft / USUAL_TTFT - 1.0
    return replace(c, excess={"TTFT": late, **c.excess}) if late > 0.0 else c


def _as_given(
    question: Question, systems: Mapping[str, Setup], split: LayoutOptions, batch: float | None
) -> Report:
    """The plan of the options, on the system and in the format where it is best."""
    total, candidates = question.total, list[Choice]()
    for label, setup in systems.items():
        *_, ideal = plan_of(setup, split, total, question.estimator)
        assert split.pool is not None
        pool, work = split.pool._replace(batch=either(batch, 1.0)), question.requests.work
        point = point_of(ideal, setup.model.architecture, setup.hardware, work, (pool,))
        c = given_choice(setup.system.name, pool, point, question.requirements)
        formats, trusts = setup.model.quantisation, [inputs.trust(question.estimator, ideal, setup)]
        candidates.append(replace(c, label=label, formats=formats, trusts=trusts))
    chosen, why = min(candidates, key=lambda c: c.rank), "The plan is as given."
    if len(candidates) > 1:
        why = f"The plan is as given, on the cheapest of {len(candidates)} systems and formats."
    question = _on_gpus(question, either(total, max(GPUS, chosen.chips)))
    fronts = None
    if VARIANTS[question.estimator].make().batches:
        searched = {
            label: [plan_system(question, profile, form) for profile in profiles]
            for label, form, profiles in question.series()
        }
        fronts = frontiers(question, searched)
    return Report(question, chosen, why, candidates, systems, fronts, total)
