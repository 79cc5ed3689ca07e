"""The answers behind a report, its summary, and the commands that give them."""

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple, SupportsFloat, cast

from infer_jax import planning
from infer_jax.design.sensitivity import Elasticity
from infer_jax.estimators import Estimate, Estimator, Phase, Trust
from infer_jax.estimators.disaggregated import Pools
from infer_jax.footprint import Engine, Memory
from infer_jax.launch import Launch
from infer_jax.pages import page
from infer_jax.results import numbers
from infer_jax.specs import Plan, Workload
from infer_jax.verbs import inputs
from infer_jax.verbs.kernel_rows import KernelRow

Limits = tuple[float | None, float | None]  # seconds to the first token, and per token
NONE: Limits = (None, None)
WIDE = 76  # letters of a command's line, which the page does not break


class Pool(NamedTuple):
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
    prefill: Pool | None = None

    @property
    def words(self) -> str:
        """The layout as ``plan`` prints it."""
        decode = f"{self.copies:g} x {self.layout}"
        pool = self.prefill
        return decode if pool is None else f"{pool.copies:g} x {pool.layout} > {decode}"

    @property
    def degrees(self) -> planning.Degrees:
        """The plan as ``planning.Choice`` has it."""
        mine = self.layout._asdict()
        if self.prefill is None:
            return {**mine, "replicas": self.copies}
        layout, copies, batch = self.prefill
        first = {**layout._asdict(), "instances": copies, "batch": batch}
        return {"prefill": first, "decode": {**mine, "instances": self.copies}}


class Answers(NamedTuple):
    """What the verbs answer about one plan; ``reported`` and ``pictured`` show it."""

    asked: inputs.Given
    given: Mapping[str, object]
    name: str  # the estimator's
    trusted: Trust
    estimator: Estimator
    work: Workload
    chosen: Chosen
    plan: Plan | Pools
    estimate: Estimate
    rows: Sequence[Mapping[str, object]]
    nothing: str
    held: Memory
    engine: Engine
    elasticities: list[Elasticity]
    kernels: Mapping[str, Sequence[KernelRow]]
    launches: list[Launch]
    notes: list[str]


def lead(answers: Answers, limits: Limits) -> str:
    """The answer in one paragraph."""
    estimate = answers.estimate
    pools = answers.chosen.prefill is not None
    gpus = float(estimate.chips) * (1.0 if pools else answers.chosen.copies)
    times, mark = [], answers.trusted.mark
    for value, limit, what in (
        (float(estimate.ttft), limits[0], "to the first token"),
        (float(estimate.tpot), limits[1], "per output token"),
    ):
        kept = "" if limit is None else f" (limit {ms(limit)}: {met(value, limit)})"
        times.append(f"{mark}{ms(value)} {what}{kept}")
    rate = float(estimate.throughput) * gpus
    fits = "" if estimate.feasible else " It does not fit: see the limits below."
    return (
        f"{answers.asked.model.name} on {gpus:g} {answers.asked.system.name} as "
        f"{answers.chosen.words}, {answers.chosen.batch:g} requests in flight in "
        f"each: {times[0]}, {times[1]}, {mark}{numbers.digits(rate, 4)} tokens/s in all, "
        f"{mark}${numbers.digits(estimate.cost)} per million output tokens.{fits}"
    )


def met(value: SupportsFloat, limit: SupportsFloat) -> str:
    """Whether a limit holds, in a word."""
    return "met" if float(value) <= float(limit) else "broken"


def ms(seconds: SupportsFloat) -> str:
    """Milliseconds with their unit."""
    return f"{numbers.digits(1e3 * float(seconds))} ms"


def phases(answers: Answers) -> tuple[tuple[str, Phase], ...]:
    """Both passes with their names."""
    return ("prefill", answers.estimate.prefill), ("decode", answers.estimate.decode)


def again(answers: Answers, verb: str) -> str:
    """The command that answers this section alone, where a plain plan says it."""
    layout, work, asked = answers.chosen.layout, answers.work, answers.given
    if not asked:  # a model or a system that no command can name
        return ""
    named: dict[str, object] = {
        "hardware": asked["hardware"],
        "quant": asked["quant"],
        "kv-dtype": asked["kv-dtype"],
    }
    split = {"tp": layout.tp, "pp": layout.pp, "ep": layout.attention_dp}
    if verb == "memory":
        engine = answers.engine
        named |= split | {"max-model-len": engine.context, "max-num-seqs": engine.sequences}
    else:
        named |= {"isl": work.isl, "osl": work.osl, "price": asked["price"]}
    if verb in ("estimate", "sensitivity"):
        if layout.ep != layout.attention_dp or answers.chosen.prefill is not None:
            return ""
        named |= {**split, "batch": answers.chosen.batch, "estimator": answers.name}
        named |= {"prefix": work.prefix} if float(work.prefix) else {}
    if verb == "frontier":
        named["total-gpus"] = asked["total-gpus"]
    lines = [shlex.join(("infer-jax", verb, str(asked["config"])))]
    for name, value in named.items():
        if value is not None:
            word = value if isinstance(value, str) else f"{float(cast(SupportsFloat, value)):.12g}"
            option = shlex.join((f"--{name}", word))
            if len(lines[-1]) + len(option) < WIDE:
                lines[-1] += f" {option}"
            else:
                lines.append(f"  {option}")
    return page.code(" \\\n".join(lines))
