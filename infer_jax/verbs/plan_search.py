"""Searches plans over every system and format."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from infer_jax.catalog import Model, System
from infer_jax.estimators import Trust
from infer_jax.estimators.serving import Deployment
from infer_jax.launch import Starter, checkpoint
from infer_jax.planning import Choice, Requirements, Side, front, machine, pools_of, search
from infer_jax.planning.cheapest import PlanCandidates, largest
from infer_jax.planning.machines import rule
from infer_jax.verbs import inputs
from infer_jax.verbs.drafts import Drafting
from infer_jax.verbs.inputs import ModelLike
from infer_jax.verbs.plan_trust import trusted
from infer_jax.verbs.progress import busy
from infer_jax.verbs.requests import Requested

if TYPE_CHECKING:
    from infer_jax.verbs.plan_belief import Decision
    from infer_jax.verbs.plan_replay import Replayed


class Money(NamedTuple):
    """Rent in USD/h or another currency, its factor for a region, and overhead of power (PUE)."""

    price: float | None = None
    currency: str = "USD"
    region: float = 1.0
    pue: float | None = None


class Target(NamedTuple):
    """The model that is served, the formats that are tried, and the numbers that are changed."""

    config: ModelLike
    formats: Sequence[str | None]
    kv_dtype: str | None
    set: str | Sequence[str] | None = None


class Candidates(NamedTuple):
    """The plans to try: modes, prompt tokens of a pass, and settings common to all.

    ``estimator``: its name; ``count``: plans shown of each system; ``alone``: pools are left out,
    because only the mean of their wait is known.
    """

    modes: Sequence[str]
    chunks: Sequence[float]
    common: Deployment
    estimator: str
    count: int
    alone: bool = False


class Question(NamedTuple):
    """The model, systems, requests and limits of a plan.

    ``decoding``: the system of the decode pool, if it is another one; ``draft``: the draft model,
    by name.
    """

    target: Target
    systems: Sequence[System]
    decoding: System | None
    money: Money
    requests: Requested
    asked: Requirements
    tried: Candidates
    drafts: Drafting | None
    draft: str | None = None

    @property
    def total(self) -> float | None:
        """GPUs in all, where they are given."""
        return self.asked.chips if math.isfinite(self.asked.chips) else None


class ConsideredSystem(NamedTuple):
    """A system among those compared, with its model, estimator and assumptions.

    ``starter``: which layouts the engine starts.
    """

    given: inputs.Given
    side: Side
    notes: list[str]
    trusted: Trust
    starter: Starter


Search = Callable[[Question, Sequence[ConsideredSystem], Requirements], PlanCandidates]


@dataclass
class Plans:
    """Plans within the limits, else the nearest misses, and the searches they came from.

    ``usual``: whether plans were limited to the usual TTFT because no limit was given; ``systems``,
    ``trusted``: by name; ``formats``: the format options by the resolved format; ``pools``,
    ``searched``: the one or two systems of each search and its result, by its label; ``replayed``:
    replays of the first plans, if asked for; ``decision``: how plans were chosen by a confidence.
    """

    model: Model
    met: list[Choice] = field(default_factory=list)
    missed: list[Choice] = field(default_factory=list)
    usual: bool = False
    configurations: int = 0
    systems: dict[str, System] = field(default_factory=dict)
    trusted: dict[str, Trust] = field(default_factory=dict)
    formats: dict[str, str | None] = field(default_factory=dict)
    pools: dict[str, Sequence[ConsideredSystem]] = field(default_factory=dict)
    searched: dict[str, PlanCandidates] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    replayed: Sequence["Replayed"] = ()
    decision: "Decision | None" = None

    def pools_of(self, choice: Choice) -> Sequence[ConsideredSystem]:
        """The one or two systems of a plan, in its formats."""
        return next(x for x in self.pools.values() if _are_of(x, choice))

    @property
    def best(self) -> Choice | None:
        """The cheapest plan within the limits."""
        return min(self.met, key=lambda c: c.rank, default=None)


def plans(question: Question, search: Search | None = None) -> Plans:
    """The plans of every system and format; ``search``: in place of the search by predicted times.

    Raises:
        InputError: a name or file that cannot be read; no layout that an engine runs.
    """
    within: dict[bool, list[Choice]] = {True: [], False: []}
    missed: list[Choice] = []
    answer: Plans | None = None
    for label, form, pools in considered(question):
        first = pools[0]
        answer = answer or Plans(first.given.model)
        _note(answer, question, pools)
        with busy(f"evaluating every layout on {first.side.name}"):
            searched = search_pools(question, pools, question.asked, search)
        stored = first.given.model.quantisation
        answer.configurations += searched.configurations
        if not searched.pooled:
            answer.notes.append(f"No two pools of {first.side.name} fit what is asked.")
        answer.formats[stored], answer.pools[label] = form, pools
        answer.searched[label] = searched
        within[searched.usual] += searched.met
        missed += searched.missed
    assert answer is not None, "a question names at least one system"
    answer.usual = bool(within[True])
    met = within[answer.usual]
    answer.met = front(met) if question.asked.frontier else sorted(met, key=lambda c: c.rank)
    answer.missed = [] if met else sorted(missed, key=lambda c: c.rank)
    return answer


def search_pools(
    question: Question,
    pools: Sequence[ConsideredSystem],
    asked: Requirements,
    search: Search | None = None,
) -> PlanCandidates:
    """The plans on one system, or on one for each pool, with what is known against each."""
    searched = (search or _search)(question, pools, asked)
    stored = pools[0].given.model.quantisation
    met, near = (
        [replace(c, formats=stored, obstacle=_obstacle(c, pools)) for c in each]
        for each in (searched.met, searched.missed)
    )
    if search is None:
        of_system = pools, question.asked, searched.usual
        met, near = ([trusted(c, *of_system) for c in each] for each in (met, near))
    return searched._replace(met=met, missed=near)


def _are_of(pools: Sequence[ConsideredSystem], choice: Choice) -> bool:
    names = dict.fromkeys(pool.side.name for pool in pools)
    formats = pools[0].given.model.quantisation
    return (" > ".join(names), formats) == (choice.system, choice.formats)


def _obstacle(choice: Choice, pools: Sequence[ConsideredSystem]) -> str:
    """Why no command of the engine starts a plan; "" where one does."""
    degrees = pools_of(choice.degrees)
    if len(degrees) == 1:
        return pools[0].starter.obstacle(degrees[0])
    ends = zip((pools[0], pools[-1]), degrees, ("prefill", "decode"), strict=True)
    return next((why for pool, d, role in ends if (why := pool.starter.obstacle(d, role))), "")


def fronts(
    question: Question, pools: Mapping[str, Sequence[ConsideredSystem]]
) -> dict[str, list[Choice]]:
    """The frontier of every search, also of plans that break the limit of TPOT, by its label."""
    wanted = replace(question.asked, frontier=True, tpot=np.inf)
    with jax.enable_x64(True):
        return {label: _search(question, each, wanted).met for label, each in pools.items()}


def considered(question: Question) -> Iterator[tuple[str, str | None, Sequence[ConsideredSystem]]]:
    """Each search: its label, its format, and one system or one for each pool."""
    for system, form in product(question.systems, question.target.formats):
        pools = [_pool(question, system, form)]
        if question.decoding is not None:
            pools.append(_pool(question, question.decoding, form))
        label = " > ".join(dict.fromkeys(pool.side.name for pool in pools))
        yield label + (f", {form}" if len(question.target.formats) > 1 else ""), form, pools


def _note(answer: Plans, question: Question, pools: Sequence[ConsideredSystem]) -> None:
    """Add the notes of each system to ``answer``, its profile, and how far its fit is trusted."""
    for pool in pools:
        answer.notes += pool.notes
        answer.systems[pool.side.name] = pool.given.system
        answer.trusted[pool.side.name] = pool.trusted


def _search(
    question: Question, pools: Sequence[ConsideredSystem], asked: Requirements
) -> PlanCandidates:
    drafts, tried = question.drafts, question.tried
    return search(
        [pool.side for pool in pools],
        pools[0].given.model.architecture,
        question.requests.work,
        asked,
        tried.common,
        modes=tried.modes,
        chunks=tried.chunks,
        drafts=drafts.counts if drafts else (0.0,),
        draft=drafts.draft if drafts else None,
        count=tried.count,
    )


def _pool(question: Question, system: System, form: str | None) -> ConsideredSystem:
    price, _, region, pue = question.money
    name, total, target = question.tried.estimator, question.total, question.target
    given = inputs.given(target.config, system, form, target.kv_dtype, price, target.set)
    inputs.check_context(given.model, question.requests.work)
    serving, hardware = inputs.serving(name, given), given.hardware
    trusted = inputs.trust(name, serving, given)
    if pue is not None:
        serving = serving.replace(draw=serving.draw.with_(pue=pue))
    if question.drafts is not None:
        serving = serving.with_(acceptance=question.drafts.acceptance)
    hardware = hardware.with_(price=float(hardware.price) * region)
    where = machine(given.hardware, given.system.title)
    load = checkpoint(target.config, form, target.kv_dtype)
    starter = Starter(serving.engine_name, given.model, where, load, question.draft or "")
    side = Side(given.system.name, hardware, serving, where[0], starter)
    most = math.inf if total is None else largest(given.hardware, total)
    notes = given.notes
    if region != 1.0:
        notes.append(f"{side.name}: rents are {region:g} times those, by --region-factor.")
    if most > 2:
        notes.append(f"{side.name}: {rule(where[0])}.")
    if total is not None and most < total:
        notes.append(f"{side.name}: an instance has at most {most:g} GPUs.")
    return ConsideredSystem(given, side, notes, trusted, starter)
