"""The answers behind a report, and its summary."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, SupportsFloat

from infer_jax import planning
from infer_jax.design.sensitivity import Elasticity
from infer_jax.estimators import Estimate, Estimator, Phase, Trust
from infer_jax.estimators.disaggregated import Pools
from infer_jax.footprint import EngineSettings, StartupMemory
from infer_jax.launch import Launch
from infer_jax.pages.tradeoff import Tradeoff
from infer_jax.results.numbers import digits
from infer_jax.specs import Plan, Workload
from infer_jax.verbs import inputs
from infer_jax.verbs.kernel_rows import KernelRow
from infer_jax.verbs.report_commands import Words, command

if TYPE_CHECKING:
    from infer_jax.verbs.report_choice import Picked

Limits = tuple[float | None, float | None]  # seconds to the first token, and per token


class PrefillPool(NamedTuple):
    """Instances that prefill: their layout, how many, and the prompts of a pass."""

    layout: planning.Layout
    copies: float
    batch: float


class Chosen(NamedTuple):
    """The plan of a report: degrees, requests in an instance, and why it is this one.

    ``prefill``: the pool that prefills, where ``layout`` is of one that only decodes.
    """

    layout: planning.Layout
    copies: float
    batch: float
    why: str
    prefill: PrefillPool | None = None

    @property
    def words(self) -> str:
        """The layout as ``plan`` prints it."""
        decode = f"{self.copies:g} x {self.layout}"
        pool = self.prefill
        return decode if pool is None else f"{pool.copies:g} x {pool.layout} > {decode}"

    @property
    def said(self) -> str:
        """The layout and the requests in flight, in a sentence."""
        load = f"{self.batch:.4g} requests in flight in each"
        decode = f"{self.copies:g} x {self.layout}"
        if self.prefill is None:
            return f"{decode}, {load}"
        first = f"{self.prefill.copies:g} x {self.prefill.layout}"
        return f"{first} for prefill and {decode} for decode, with {load}"

    @property
    def degrees(self) -> planning.Degrees:
        """The plan as ``planning.Choice`` has it."""
        mine = self.layout._asdict()
        if self.prefill is None:
            return {**mine, "replicas": self.copies}
        layout, copies, batch = self.prefill
        first = {**layout._asdict(), "instances": copies, "batch": batch}
        return {"prefill": first, "decode": {**mine, "instances": self.copies}}


class Costs(NamedTuple):
    """USD per hour and month (730 h) of all GPUs, and per million tokens.

    ``into``, ``cached``: of a prompt token that is computed, and of one that is in the cache, with
    ``held`` tokens of the prompt cached and the plan as it is. ``tokens``: in and out, a second.
    """

    hour: float
    month: float
    blended: float
    into: float
    out: float
    cached: float
    held: float
    tokens: tuple[float, float]


class ReportData(NamedTuple):
    """The verbs' answers about one plan, and the plans that it was chosen among."""

    picked: "Picked"
    words: Words
    name: str  # the estimator's
    estimator: Estimator
    work: Workload
    plan: Plan | Pools
    estimate: Estimate
    costs: Costs
    intervals: Mapping[str, Sequence[float]]
    rows: Sequence[Mapping[str, object]]
    held: StartupMemory
    engine: EngineSettings
    elasticities: list[Elasticity]
    kernels: Mapping[str, Sequence[KernelRow]]
    launches: list[Launch]
    tradeoff: Tradeoff
    notes: list[str]

    @property
    def asked(self) -> inputs.Given:
        """The model and the system of the plan."""
        return self.picked.given

    @property
    def chosen(self) -> Chosen:
        """The plan."""
        return self.picked.chosen

    @property
    def trusted(self) -> Trust:
        """How far its estimator is trusted on its system."""
        return self.picked.candidate.trusted


def lead(answers: ReportData, limits: Limits) -> str:
    """The answer in one sentence, with the runner-up in another."""
    estimate, costs, mark = answers.estimate, answers.costs, answers.trusted.mark
    candidate = answers.picked.candidate
    rate = candidate.throughput * candidate.gpus
    between = answers.intervals.get("tpot_interval80_ms")
    known = ""
    if between:
        slow, fast = (digits(1e3 / x) for x in reversed(between))
        known = f" (80 % of measured servers: {slow} to {fast})"
    title, name = answers.asked.system.title.partition(" (")[0], answers.asked.system.name
    title = title if title == name else f"{title} ({name})"
    paid = f"{mark}${digits(costs.blended)} per million tokens, in and out, and "
    paid += f"${costs.month:,.0f} a month"
    return (
        f"{candidate.gpus:g} x {title} as "
        f"{answers.chosen.said}, serve "
        f"{answers.asked.model.name} for {paid}: {mark}{digits(estimate.speed)} tokens/s to each "
        f"request{known}, the first after {mark}{ms(estimate.ttft)}, "
        f"{mark}{digits(rate, 4)} output tokens/s in all. {_verdict(answers, limits)}"
    )


def _verdict(answers: ReportData, limits: Limits) -> str:
    """Whether the plan meets the limits, and what the next system would cost."""
    picked, mine = answers.picked, answers.picked.candidate
    said = [f"{name} {ms(x)}" for name, x in zip(("TTFT", "TPOT"), limits, strict=True) if x]
    if picked.usual:
        said.insert(0, f"TTFT {planning.USUAL_TTFT:g} s, the usual")
    limits_said = f" within the limits ({', '.join(said)})" if said else ""
    if mine.excess:
        return f"No plan meets every limit: the nearest breaks {mine.broken}."
    others = sorted((c for c in picked.candidates if c is not mine), key=lambda c: c.rank)
    if not others:
        return f"It is{limits_said}." if said else "It fits."
    able = [c for c in others if not c.excess]
    count = len(picked.candidates)
    text = f"Of {count} systems and formats it is the cheapest{limits_said}"
    if able and mine.usd > 0.0:
        more = able[0].usd / mine.usd - 1.0
        text += f"; next is {able[0].label} at ${digits(able[0].usd)} ({more:+.0%})"
    unable = [f"{c.label} breaks {c.broken}" for c in others if c.excess]
    return "; ".join([text, *unable]) + "."


def met(value: SupportsFloat, limit: SupportsFloat) -> str:
    """Whether a limit holds, in a word."""
    return "met" if float(value) <= float(limit) else "broken"


def ms(seconds: SupportsFloat) -> str:
    """Milliseconds with their unit."""
    return f"{digits(1e3 * float(seconds))} ms"


def phases(answers: ReportData) -> tuple[tuple[str, Phase], ...]:
    """Both passes with their names."""
    return ("prefill", answers.estimate.prefill), ("decode", answers.estimate.decode)


def again(answers: ReportData, verb: str) -> str:
    """The command that answers this section alone, where a plain plan says it."""
    layout, work = answers.chosen.layout, answers.work
    if not answers.words:  # a model or a system that no command can name
        return ""
    given = dict(answers.words)
    config, total, price = given.pop("config"), given.pop("total-gpus"), given.pop("price")
    split = {"tp": layout.tp, "pp": layout.pp, "ep": layout.attention_dp}
    if verb == "memory":
        engine = answers.engine
        given |= split | {"max-model-len": engine.context, "max-num-seqs": engine.sequences}
        given |= {"max-num-batched-tokens": engine.batched_tokens}
        return command(verb, config, given)
    given |= {"isl": work.isl, "osl": work.osl, "price": price}
    if verb in ("estimate", "sensitivity"):
        if layout.ep != layout.attention_dp or answers.chosen.prefill is not None:
            return ""
        given |= {**split, "batch": answers.chosen.batch, "estimator": answers.name}
        given |= {"prefix": work.prefix} if float(work.prefix) else {}
    if verb == "frontier":
        given["total-gpus"] = total
    return command(verb, config, given)
