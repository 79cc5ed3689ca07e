"""What ``plan`` and ``report`` are asked, and the search over every system and format."""

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
from infer_jax.estimators.speculative import Drafting
from infer_jax.launch import LaunchedService, Starter, checkpoint, service
from infer_jax.planning import (
    MODES,
    USUAL_TTFT,
    BreakEven,
    Choice,
    PlanCandidates,
    PlanSpace,
    Requirements,
    Side,
    bands,
    break_evens,
    front,
    machine,
    machine_rule,
    search,
)
from infer_jax.planning.layout import largest
from infer_jax.results import option
from infer_jax.results.problems import ask, exclude, refuse
from infer_jax.specs import UNBOUNDED
from infer_jax.verbs import inputs
from infer_jax.verbs.inputs import HardwareLike, ModelLike, Setup
from infer_jax.verbs.progress import busy
from infer_jax.verbs.requests import RequestOptions

if TYPE_CHECKING:
    from infer_jax.verbs.plan_confidence import Decision


@dataclass(frozen=True)
class Question:
    """The model, systems, requests and requirements of plans, and what is tried.

    ``formats``, ``kv_dtype``, ``set``: of the model, and numbers that are changed;
    ``engine_version``: release or month of its software, None: the newest measured;
    ``decoding``: the system of the decode pool, if it is another one; ``rents``, ``currency``,
    ``region``: rents per GPU-hour that are given, by system, what they are in, and the factor
    of a region; ``pue``: power of the building over that of its machines; ``chunks``: prompt
    tokens of a pass; ``common``: settings of all plans; ``drafts``, ``draft``: the drafting,
    and the draft model by name; ``top``: plans of each system; ``pools_excluded``: because only
    the mean of their wait is known; ``goodput``: share of requests that keep TTFT and TPOT;
    ``confidence``: probability with which limits are to hold; ``named``: whether commands can
    name the systems.
    """

    config: ModelLike
    systems: Sequence[System]
    requests: RequestOptions
    requirements: Requirements
    formats: Sequence[str | None] = (None,)
    kv_dtype: str | None = None
    set: str | Sequence[str] | None = None
    estimator: str = inputs.BEST
    engine_version: str | None = None
    decoding: System | None = None
    rents: Mapping[str, float] = field(default_factory=dict[str, float])
    currency: str = "USD"
    region: float = 1.0
    pue: float | None = None
    modes: Sequence[str] = MODES
    chunks: Sequence[float] = (UNBOUNDED,)
    common: Deployment = field(default_factory=Deployment.of)
    drafts: Drafting | None = None
    draft: str | None = None
    top: int = 3
    pools_excluded: bool = False
    goodput: float | None = None
    confidence: float | None = None
    named: bool = True

    @property
    def total(self) -> float | None:
        """GPUs in all, where they are given."""
        chips = self.requirements.chips
        return chips if math.isfinite(chips) else None

    @property
    def sign(self) -> str:
        """The sign of the currency."""
        return "$" if self.currency == "USD" else self.currency

    def at_rate(self, rate: float) -> "Question":
        """The same question at another rate of requests, which it has."""
        work, limits = self.requests.work, replace(self.requirements, rate=rate)
        assert work.arrivals is not None
        work = work.replace(arrivals=work.arrivals.replace(rate=rate))
        return replace(self, requests=self.requests._replace(work=work), requirements=limits)

    def read(self, system: System, form: str | None) -> Setup:
        """The model and one system as they are read."""
        own = self.kv_dtype, self.rents.get(system.name), self.set, self.engine_version
        return inputs.setup(self.config, system, form, *own)

    def series(self) -> Iterator[tuple[str, str | None, Sequence[System]]]:
        """Every system in every format: a label, the format, one system or one for each pool."""
        for system, form in product(self.systems, self.formats):
            systems = [system] if self.decoding is None else [system, self.decoding]
            label = " > ".join(dict.fromkeys(x.name for x in systems))
            yield label + (f", {form}" if len(self.formats) > 1 else ""), form, systems


def check_options(
    mode: str | None,
    requirements: Requirements,
    decoding: HardwareLike | None,
    chunks: Sequence[float],
    *,
    other_rates: bool,
) -> None:
    """Raise InputError where an option is of another mode, or needs another option."""
    rate, pools = requirements.rate, mode == "disaggregated"
    exclude(concurrency=requirements.concurrency, request_rate=rate)
    if not math.isfinite(requirements.chips) and requirements.concurrency is rate is None:
        question = "How many GPUs are there, or how much traffic is to be served?"
        ways = f"{option('total-gpus')}, {option('concurrency')} or {option('request-rate')}"
        raise ask("total_gpus", question, ways)
    together = option("mode", "aggregated")
    for name, limit in requirements.tails.items():
        if math.isfinite(limit) and rate is None:
            allowed = f"with {option('request-rate')}: arrivals make waits random"
            raise refuse(f"{name}_ttft", limit, allowed)
        if math.isfinite(limit) and pools:
            raise refuse(f"{name}_ttft", limit, f"{together}: pools know the mean wait only")
    if decoding is not None and mode == "aggregated":
        raise refuse("decode_hardware", decoding, f"{option('mode', 'disaggregated')}, or no mode")
    if chunks and pools:
        raise refuse("chunk", chunks[0], f"{together}, or no mode: pools take it whole")
    if other_rates and rate is None:
        raise refuse("other_rates", "given", f"with {option('request-rate')}")


class PlanSystem(NamedTuple):
    """A system among those compared, with its model, estimator, known errors and assumptions.

    ``starter``: which layouts the engine starts.
    """

    setup: Setup
    side: Side
    trust: Trust
    notes: list[str]
    starter: Starter

    @property
    def profile(self) -> System:
        """The system as its profile has it."""
        return self.setup.system


class PlanSearch(NamedTuple):
    """A search: its one or two systems, and what it found."""

    systems: Sequence[PlanSystem]
    found: PlanCandidates


Search = Callable[[PlanSpace, Sequence[PlanSystem]], PlanCandidates]


@dataclass
class Plans:
    """The plans that answer a question, else the nearest misses, and the searches by their labels.

    ``usual``: whether plans were limited to the usual TTFT because no limit was given;
    ``decision``: how plans were chosen by a confidence.
    """

    question: Question
    searches: Mapping[str, PlanSearch]
    met: list[Choice]
    missed: list[Choice]
    usual: bool = False
    decision: "Decision | None" = None

    @property
    def best(self) -> Choice | None:
        """The cheapest plan within the limits."""
        return min(self.met, key=lambda c: c.rank, default=None)

    @property
    def model(self) -> Model:
        """The model, in the first format."""
        return next(iter(self.searches.values())).systems[0].setup.model

    @property
    def systems(self) -> dict[str, PlanSystem]:
        """Every system by its name."""
        return {x.side.name: x for search in self.searches.values() for x in search.systems}

    @property
    def formats(self) -> list[str]:
        """The formats that are compared."""
        every = (x.systems[0].setup.model.quantisation for x in self.searches.values())
        return list(dict.fromkeys(every))

    @property
    def configurations(self) -> int:
        """Rows that were evaluated."""
        return sum(search.found.configurations for search in self.searches.values())

    @property
    def break_evens(self) -> list[BreakEven]:
        """The rents at which the plan of another system would come first."""
        rents = {name: float(x.side.hardware.price) for name, x in self.systems.items()}
        return [] if self.best is None else break_evens(self.best, self.met, rents)

    @property
    def replayed(self) -> list[Choice]:
        """The plans that were replayed, and those that have a reason why not."""
        every = self.met or self.missed
        return [c for c in every if c.replay is not None and (c.replay.times or c.replay.why)]

    def systems_of(self, choice: Choice) -> Sequence[PlanSystem]:
        """The one or two systems of a plan, in its formats."""
        return self.searches[choice.label].systems

    @property
    def limits(self) -> dict[str, float]:
        """``Requirements.limits``, with the usual one of TTFT where plans were held to that."""
        limits, usual = self.question.requirements.limits, USUAL_TTFT if self.usual else math.inf
        return limits | {"ttft": min(limits["ttft"], usual)}

    def service_of(self, choice: Choice) -> LaunchedService:
        """The servers of a plan, with the sizes that they are started with."""
        setups = {x.side.name: x.setup for x in self.systems_of(choice)}
        return servers(choice, self.question, list(setups.values()))


def plans(question: Question, search_with: Search | None = None) -> Plans:
    """The plans of every system and format, chosen by a confidence where one is asked for.

    ``search_with``: in place of the search by predicted times.

    Raises:
        InputError: a name or file that cannot be read; no layout that an engine runs.
    """
    if question.confidence is not None and search_with is None:
        from infer_jax.verbs.plan_confidence import confident_answer  # other plans need not load it

        return confident_answer(question, question.confidence)
    searches = dict[str, PlanSearch]()
    for label, form, profiles in question.series():
        systems = [plan_system(question, profile, form) for profile in profiles]
        with busy(f"evaluating every layout on {systems[0].side.name}"):
            candidates = search_on(question, label, systems, question.requirements, search_with)
        searches[label] = PlanSearch(systems, candidates)
    found = [x.found for x in searches.values()]
    usual = any(x.usual and x.met for x in found)
    met = [c for x in found if x.usual == usual for c in x.met]
    met = front(met) if question.requirements.frontier else sorted(met, key=lambda c: c.rank)
    missed = [] if met else sorted((c for x in found for c in x.missed), key=lambda c: c.rank)
    return Plans(question, searches, met, missed, usual)


def plan_system(question: Question, system: System, form: str | None) -> PlanSystem:
    """A system with the model in a format, its estimator, and which layouts its engine starts."""
    name, total, setup = question.estimator, question.total, question.read(system, form)
    inputs.check_context(setup.model, question.requests.work)
    serving, hardware, notes = inputs.serving(name, setup), setup.hardware, setup.notes
    trust = inputs.trust(name, serving, setup)
    if question.pue is not None:
        serving = serving.replace(draw=serving.draw.with_(pue=question.pue))
    if question.drafts is not None:
        serving = serving.with_(acceptance=question.drafts.acceptance)
    hardware = hardware.with_(price=float(hardware.price) * question.region)
    where = machine(setup.hardware, setup.system.title)
    load = checkpoint(question.config, form, question.kv_dtype)
    starter = Starter(serving.engine_name, setup.model, where, load, question.draft or "")
    side = Side(setup.system.name, hardware, serving, where[0], starter)
    size = math.inf if total is None else largest(setup.hardware, total)
    if question.region != 1.0:
        notes.append(f"{side.name}: rents times {question.region:g}, {option('region-factor')}.")
    if size > 2:
        notes.append(f"{side.name}: {machine_rule(where[0])}.")
    if total is not None and size < total:
        notes.append(f"{side.name}: an instance has at most {size:g} GPUs.")
    return PlanSystem(setup, side, trust, notes, starter)


def plan_space(
    question: Question, systems: Sequence[PlanSystem], limits: Requirements
) -> PlanSpace:
    """The plans of a question on one system, or on one for each pool."""
    drafts = question.drafts
    return PlanSpace(
        [system.side for system in systems],
        systems[0].setup.model.architecture,
        question.requests.work,
        limits,
        question.common,
        drafts.draft if drafts else None,
        question.modes,
        question.chunks,
        drafts.counts if drafts else (0.0,),
        question.top,
    )


def search_on(
    question: Question,
    label: str,
    systems: Sequence[PlanSystem],
    limits: Requirements,
    search_with: Search | None = None,
) -> PlanCandidates:
    """The plans on one system, or on one for each pool, with what speaks against each."""
    space = plan_space(question, systems, limits)
    found = search(space) if search_with is None else search_with(space, systems)
    met, missed = ([labelled(c, label, systems) for c in x] for x in (found.met, found.missed))
    if search_with is None:
        asked, usual = question.requirements, found.usual
        met, missed = ([bands.with_odds(c, asked, usual=usual) for c in x] for x in (met, missed))
    return found._replace(met=met, missed=missed)


def labelled(c: Choice, label: str, systems: Sequence[PlanSystem]) -> Choice:
    """A plan with its label, formats, known errors, and why no command of the engine starts it.

    Its energy is not known where a power is not.
    """
    power = min(float(x.setup.hardware.power) for x in systems)
    roles = ("",) if len(c.pools) == 1 else ("prefill", "decode")
    ends = zip((systems[0], systems[-1]), c.pools, roles, strict=False)
    reasons = (x.starter.obstacle(pool.layout, role) for x, pool, role in ends)
    return replace(
        c,
        label=label,
        formats=systems[0].setup.model.quantisation,
        outputs={x: math.nan if x.drawn and power <= 0.0 else v for x, v in c.outputs.items()},
        trusts=[x.trust for x in systems],
        obstacle=next(filter(None, reasons), ""),
    )


def frontiers(
    question: Question, systems: Mapping[str, Sequence[PlanSystem]]
) -> dict[str, list[Choice]]:
    """The frontier of every search, also of plans that break the limit of TPOT, by its label."""
    limits = replace(question.requirements, frontier=True, tpot=np.inf)
    with jax.enable_x64(True):
        return {
            label: [
                labelled(c, label, each) for c in search(plan_space(question, each, limits)).met
            ]
            for label, each in systems.items()
        }


def servers(choice: Choice, question: Question, setup: Sequence[Setup]) -> LaunchedService:
    """The servers of a plan; ``setup``: its one or two systems."""
    max_requests = float(question.common.max_sequences)
    return service(
        question.config,
        setup[0].model,
        [x.system for x in setup],
        choice.pools,
        (choice.isl, choice.osl),
        (setup[0].quant, question.kv_dtype),
        question.draft,
        max_requests if max_requests < UNBOUNDED else 0.0,
        longest=(question.requests.longest, question.requests.within),
        # with random arrivals more requests may be in flight than the mean number
        arriving=question.requirements.rate is not None,
    )
