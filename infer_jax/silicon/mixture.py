"""A mixture of models and workloads on one chip, which may do prompts alone or outputs alone."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators import Estimate, Estimator, Phase
from infer_jax.estimators.estimate import Limit, estimate_of_passes, fresh_tokens, passes_of
from infer_jax.estimators.estimator import AnyPlan, Wrapper
from infer_jax.physics.decoder import total
from infer_jax.specs import (
    Architecture,
    ForwardPass,
    Hardware,
    Output,
    Plan,
    Spec,
    Workload,
    number,
    part,
    spec,
    static,
)

POOLS = ("prefill", "decode")


@spec
class Case(Spec):
    """One model with its requests and its layout, and how much of the mixture it is."""

    arch: Architecture | None = part(
        "the model; None: that of the first case", default_factory=lambda: None
    )
    workload: Workload = part("its requests")
    plan: Plan = part("its layout", default_factory=Plan.of)
    prompts: Array = number("requests whose prompts are computed here", kind="size", default=1.0)
    outputs: Array = number("requests whose outputs are", kind="size", default=1.0)
    ttft: Array = number("limit of TTFT; 0: none", unit="s", kind="time", default=0.0)
    tpot: Array = number("limit of TPOT; 0: none", unit="s", kind="time", default=0.0)


@spec
class MixtureEstimate(Estimate):
    """Times of the slowest case, costs of all, and their sum by output."""

    total: Array = number(
        "USD per million output tokens, their prompts included",
        unit="USD",
        kind="price",
        output=Output(views=()),
    )


@spec
class Mixture(Wrapper):
    """An estimator of several cases on one chip; the arguments of ``estimate`` are the first.

    ``cost`` and ``input_cost`` are means by tokens, sum_i w_i n_i c_i / sum_i w_i n_i over cases
    with weights w and n tokens of output, or of prompt, a request; ``total`` is the cost of all
    prompts and outputs per million tokens of output, of max(prompts, outputs) requests a case.
    ``ttft`` and ``tpot`` are those of the slowest case. Limits of memory and of times hold for
    every case.

    In a ``pool`` the chip computes prompts alone, ``batch`` of them in a pass, or outputs alone,
    and the other side costs nothing and limits nothing: a chip for both pools and a chip for each
    are the same cases in other pools. Both are priced by passes without waits.
    """

    target: Estimator = part("the estimator")
    cases: tuple[Case, ...] = part("other cases", default_factory=tuple)
    prompts: Array = number("of the first case, as of a ``Case``", kind="size", default=1.0)
    outputs: Array = number("of the first case, as of a ``Case``", kind="size", default=1.0)
    ttft: Array = number("of the first case, as of a ``Case``", unit="s", kind="time", default=0.0)
    tpot: Array = number("of the first case, as of a ``Case``", unit="s", kind="time", default=0.0)
    pool: str = static("prefill or decode, where the chip does that alone", default="")
    only: int | None = static("the case whose costs and limits count; None: all", default=None)

    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: AnyPlan
    ) -> Phase:
        """One pass of the first case."""
        return self.target.step(arch, hardware, forward, plan)

    def estimate(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: AnyPlan
    ) -> MixtureEstimate:
        """Times of the slowest case, costs and limits of all.

        With ``only`` the costs are what this case adds to those of all.
        """
        first = Case(
            arch=arch, workload=workload, plan=plan, prompts=self.prompts, outputs=self.outputs,
            ttft=self.ttft, tpot=self.tpot,
        )  # fmt: skip
        cases = (first, *self.cases)
        counted = range(len(cases)) if self.only is None else [self.only]
        found = {i: self._estimate_case(cases[i], arch, hardware) for i in counted}
        written = [jnp.maximum(c.prompts, c.outputs) * c.workload.osl for c in cases]
        zero = jnp.zeros_like(written[0])
        ins = [zero if self.pool == "decode" else c.prompts * fresh_tokens(c.workload)
               for c in cases]  # fmt: skip
        outs = [zero if self.pool == "prefill" else c.outputs * c.workload.osl for c in cases]
        paid_in = total(ins[i] * e.input_cost for i, e in found.items())
        paid_out = total(outs[i] * e.cost for i, e in found.items())
        own = total(written[i] for i in found)
        lead = found[counted[0]]
        return MixtureEstimate(
            ttft=jnp.max(jnp.stack([e.ttft for e in found.values()])),
            tpot=jnp.max(jnp.stack([e.tpot for e in found.values()])),
            throughput=_ratio(own, total(written[i] / e.throughput for i, e in found.items())),
            chips=lead.chips,
            input_cost=_ratio(paid_in, total(ins)),
            cost=_ratio(paid_out, total(outs)),
            total=_ratio(paid_in + paid_out, total(written)),
            prefill=self._limited("prefill", cases, found),
            decode=self._limited("decode", cases, found),
        )

    def _estimate_case(self, case: Case, arch: Architecture, hardware: Hardware) -> Estimate:
        """The estimate of one case: of a server, or in a pool of passes alone."""
        arch = arch if case.arch is None else case.arch
        if not self.pool:
            return self.target.estimate(arch, hardware, case.workload, case.plan)
        first, then = passes_of(case.workload)
        if self.pool == "prefill":
            first = first.replace(sequences=case.workload.batch)
        one, two = (self.target.step(arch, hardware, x, case.plan) for x in (first, then))
        prompted = first.sequences * first.new_tokens
        return estimate_of_passes(hardware, case.workload, case.plan, one, two, prompted)

    def _limited(self, name: str, cases: tuple[Case, ...], found: Mapping[int, Estimate]) -> Phase:
        """A phase of the first of the cases that are estimated, with the limits of all of them."""
        phases = {i: getattr(e, name) for i, e in found.items()}
        limits: dict[str, Limit] = {}
        of_time = {"prefill": "ttft", "decode": "tpot"}[name]
        for i, phase in phases.items() if self.pool in ("", name) else ():
            suffix = f" of case {i + 1}" if i else ""
            limits |= {f"{key}{suffix}": limit for key, limit in phase.limits.items()}
            time, most = getattr(found[i], of_time), getattr(cases[i], of_time)
            capacity = jnp.where(most > 0, most, time)
            limits[f"{of_time}{suffix}"] = Limit(need=time, capacity=capacity)
        return next(iter(phases.values())).replace(limits=limits)


def mixture_of(estimator: Estimator) -> Mixture | None:
    """The mixture inside the wrappers of an estimator; None where there is none."""
    while isinstance(estimator, Wrapper) and not isinstance(estimator, Mixture):
        estimator = estimator.target
    return estimator if isinstance(estimator, Mixture) else None


def _ratio(paid: Array, tokens: Array) -> Array:
    return jnp.where(tokens > 0, paid / jnp.where(tokens > 0, tokens, 1.0), 0.0)
