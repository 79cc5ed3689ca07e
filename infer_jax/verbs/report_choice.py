"""The plan that a report is about, chosen among systems and formats."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from infer_jax import planning
from infer_jax.catalog import System
from infer_jax.catalog.systems import profiles_folder
from infer_jax.compiling import once
from infer_jax.estimators import VARIANTS, Estimate, Estimator
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.serving import Deployment
from infer_jax.planning import Choice
from infer_jax.specs import UNBOUNDED, Plan, Workload
from infer_jax.verbs import inputs, report_systems as systems
from infer_jax.verbs.inputs import Given, ModelLike
from infer_jax.verbs.option import either
from infer_jax.verbs.plan_search import Candidates, Money, Question, Target, considered, plans
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.report_answers import Chosen, Limits, PrefillPool
from infer_jax.verbs.report_commands import Words
from infer_jax.verbs.report_systems import Candidate, Frontiers
from infer_jax.verbs.requests import requested
from infer_jax.verbs.split import plan_of

GPUS = 8.0  # the GPUs of a plan where none are given: one server
Split = tuple[float | None, float | None, float | None, float, float | None]  # tp pp ep dp batch
Lengths = tuple[float, float, float]  # isl, osl, prefix


class Options(NamedTuple):
    """The options of a report; ``named``: whether a command can name model and systems."""

    config: ModelLike
    systems: Sequence[System]
    named: bool
    formats: Sequence[str | None]
    kv_dtype: str | None
    price: float | None
    total_gpus: float | None
    estimator: str | None
    set: str | Sequence[str] | None

    @property
    def name(self) -> str:
        """The estimator's name."""
        return self.estimator or inputs.BEST

    def each(self) -> Iterator[tuple[str, str | None, Given]]:
        """Every system in every format: its label, the format's option, both as they are read."""
        for system, form in product(self.systems, self.formats):
            label = system.name + (f", {form}" if len(self.formats) > 1 else "")
            yield label, form, self.given(system, form)

    def given(self, system: System, form: str | None) -> Given:
        """The model and one system as they are read."""
        return inputs.given(self.config, system, form, self.kv_dtype, self.price, self.set)

    def words(self, system: System, form: str | None) -> Words:
        """Options of the commands that a page names; empty where no command says the same."""
        if not self.named:
            return {}
        shipped = system.path.resolve().parent == profiles_folder().resolve()
        changes = self.set if self.set is None or isinstance(self.set, str) else list(self.set)
        return {
            "config": str(self.config),
            "hardware": system.name if shipped else str(system.path),
            "quant": form,
            "kv-dtype": self.kv_dtype,
            "price": self.price,
            "total-gpus": self.total_gpus,
            "set": changes,
        }


class Picked(NamedTuple):
    """The plan of a report, its system and format, and the plans that it was chosen among.

    ``frontiers``: of every system and format, None with an estimator that cannot search plans;
    ``choice``: the plan of the search; ``usual``: whether it was limited to the usual TTFT.
    """

    label: str
    form: str | None
    given: Given
    chosen: Chosen
    candidates: Sequence[Candidate]
    frontiers: Frontiers | None
    choice: Choice | None = None
    usual: bool = False

    @property
    def candidate(self) -> Candidate:
        """The plan itself."""
        return next(c for c in self.candidates if c.label == self.label)


def choose(options: Options, split: Split, lengths: Lengths, limits: Limits) -> Picked:
    """The plan as it is given, on the system where it is best, or the one ``plan`` puts first."""
    tp, pp, ep, dp, batch = split
    for _, _, given in options.each():
        inputs.check_context(given.model, inputs.workload(*lengths))
    if tp is None and pp is None and ep is None:
        _searchable(options.name, dp, batch)
        return _searched(options, lengths, limits)
    return _as_given(options, split, lengths, limits)


def _searchable(name: str, dp: float, batch: float | None) -> None:
    """Raise InputError where a plan is to be searched and an option fixes a part of it."""
    if not VARIANTS[name].make().batches:
        raise refuse("--tp", "missing", "--tp (with --pp, --ep), or --estimator serving")
    if dp > 1:
        raise refuse("--dp", dp, "with --tp: copies of a plan that is looked for")
    if batch is not None:
        raise refuse("--batch", batch, "with --tp: a plan that is looked for has its own")


def _question(options: Options, lengths: Lengths, limits: Limits, chips: float) -> Question:
    """The question that ``plan`` answers for the report."""
    ttft, tpot = limits
    wanted = planning.Requirements(
        ttft=either(ttft, math.inf),
        tpot=either(tpot, math.inf),
        chips=chips,
        usual_ttft=ttft is None,
    )
    target = Target(options.config, options.formats, options.kv_dtype, options.set)
    tried = Candidates(planning.MODES, [UNBOUNDED], Deployment.of(), options.name, 3)
    requests, money = requested(*lengths, None, None), Money(options.price)
    return Question(target, options.systems, None, money, requests, wanted, tried, None)


def _words(options: Options) -> dict[str, Words]:
    return {label: options.words(given.system, form) for label, form, given in options.each()}


def _searched(options: Options, lengths: Lengths, limits: Limits) -> Picked:
    """The plan that ``plan`` puts first, or the nearest miss."""
    question = _question(options, lengths, limits, either(options.total_gpus, GPUS))
    wanted, answer = question.asked, plans(question)
    first = min(answer.met or answer.missed, key=lambda c: c.rank, default=None)
    gpus = f"{wanted.chips:g} GPUs"
    if first is None:
        raise refuse("--total-gpus", f"{wanted.chips:g}", "more: no layout fits so few GPUs")
    if answer.met:
        limited = np.isfinite((wanted.ttft, wanted.tpot)).any() or answer.usual
        why = f"The cheapest of {answer.configurations} layouts and batches on {gpus}"
        why += " that meet the limits." if limited else "."
        why += f" TTFT is kept within {planning.USUAL_TTFT:g} s." if answer.usual else ""
    else:
        broken = ", ".join(f"{name} by {share:.1%}" for name, share in first.excess.items())
        why = f"No plan on {gpus} meets every limit; the nearest breaks {broken}."
    found = systems.candidates(answer, usual=answer.usual)
    label = next(name for name, (_, choice) in found.items() if choice == first)
    return Picked(
        label,
        answer.formats[first.formats],
        answer.pools[label][0].given,
        _chosen(first, why),
        [candidate for candidate, _ in found.values()],
        Frontiers.of(question, answer.pools, _words(options)),
        first,
        answer.usual,
    )


def _chosen(choice: Choice, why: str) -> Chosen:
    """A plan of the search as the plan of a report."""
    pools = planning.pools_of(choice.degrees)
    if len(pools) == 1:
        layout, copies = _layout(pools[0], "replicas")
        return Chosen(layout, copies, choice.batch, why)
    prompt, decode = pools
    layout, copies = _layout(decode, "instances")
    first = PrefillPool(*_layout(prompt, "instances"), prompt["batch"])
    return Chosen(layout, copies, choice.batch, why, first)


def _layout(degrees: Mapping[str, float], count: str) -> tuple[planning.Layout, float]:
    """Degrees of an instance, and how many there are of it."""
    names = planning.Layout._fields
    layout = planning.Layout(**{name: x for name, x in degrees.items() if name in names})
    return layout, degrees[count]


def _as_given(options: Options, split: Split, lengths: Lengths, limits: Limits) -> Picked:
    """The plan of the options, on the system and in the format where it is best."""
    tp, pp, ep, dp, batch = split
    total, found = options.total_gpus, []
    for label, form, given in options.each():
        plan, _ = plan_of(given.model.architecture, tp, pp, ep, dp, total, options.name)
        t, e, p = (float(x) for x in (plan.tp, plan.ep, plan.pp))
        layout = planning.Layout(tp=t, attention_dp=e, ep=e, pp=p)
        chosen = Chosen(layout, dp, either(batch, 1.0), "The plan is as given.")
        work = inputs.workload(*lengths, chosen.batch)
        found.append((_evaluated(label, given, options.name, chosen, work, limits), form, chosen))
    best, form, chosen = min(found, key=lambda one: one[0].rank)
    if len(found) > 1:
        why = f"The plan is as given, on the one of {len(found)} systems and formats that serves "
        chosen = chosen._replace(why=why + "it for the fewest dollars within the limits.")
    fronts = None
    if VARIANTS[options.name].make().batches:
        chips = either(total, max(GPUS, best.gpus))
        question = _question(options, lengths, limits, chips)
        pools = {label: each for label, _, each in considered(question)}
        fronts = Frontiers.of(question, pools, _words(options))
    every = [candidate for candidate, _, _ in found]
    return Picked(best.label, form, best.given, chosen, every, fronts)


def _evaluated(
    label: str, given: Given, name: str, chosen: Chosen, work: Workload, limits: Limits
) -> Candidate:
    """A given plan on one system."""
    ideal = inputs.estimator(name, given)
    estimator, plan, _, _ = plans_of(name, ideal, chosen)
    arch, hardware = given.model.architecture, given.hardware
    answer = once(Estimator.estimate_once, estimator, arch, hardware, work, plan)
    gpus = float(answer.chips) * chosen.copies
    return Candidate(
        label=label,
        given=given,
        trusted=inputs.trust(name, ideal, given),
        layout=chosen.words,
        gpus=gpus,
        batch=chosen.batch,
        ttft=float(answer.ttft),
        tpot=float(answer.tpot),
        throughput=float(answer.throughput),
        usd=blended(answer, work),
        out=float(answer.cost),
        hourly=gpus * float(hardware.price),
        excess=_excess(answer, limits),
    )


def blended(estimate: Estimate, work: Workload) -> float:
    """USD per million tokens, in and out."""
    fresh = max(float(work.isl - work.prefix), 1.0)
    paid = float(estimate.input_cost) * fresh + float(estimate.cost) * float(work.osl)
    return paid / float(work.isl + work.osl)


def _excess(estimate: Estimate, limits: Limits) -> dict[str, float]:
    """By limit, the share by which an estimate exceeds it."""
    times = zip(("TTFT", "TPOT"), (estimate.ttft, estimate.tpot), limits, strict=True)
    over = {name: float(x) / most - 1.0 for name, x, most in times if most is not None}
    for phase in (estimate.prefill, estimate.decode):
        for name, limit in phase.limits.items():
            need, capacity = float(limit.need), float(limit.capacity)
            if need > capacity:
                over[name] = need / max(capacity, 1e-300) - 1.0
    return {name: share for name, share in over.items() if share > 0.0}


def plans_of(
    name: str, estimator: Estimator, chosen: Chosen
) -> tuple[Estimator, Plan | Pools, Plan, Plan]:
    """The estimator with its plan, and plain plans of the prefill and of the decode instances.

    Memory and kernels use plain plans, groups of tp GPUs over which experts are divided, with the
    same bytes on each GPU.
    """
    layout, pool = chosen.layout, chosen.prefill
    common = Plan.of(tp=layout.tp, pp=layout.pp, ep=layout.attention_dp, dp=chosen.copies)
    if pool is None:
        plan = Deployment.of(**layout._asdict(), dp=chosen.copies) if estimator.batches else common
        return estimator, plan, common, common
    first = pool.layout
    prompts = Plan.of(tp=first.tp, pp=first.pp, ep=first.attention_dp, dp=pool.copies)
    plan = Pools.of(
        prefill=Deployment.of(**first._asdict()),
        decode=Deployment.of(**layout._asdict()),
        prefill_copies=pool.copies,
        decode_copies=chosen.copies,
        prefill_batch=pool.batch,
    )
    return Disaggregated.of(target=estimator), plan, prompts, common
