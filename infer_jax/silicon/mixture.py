"""A mixture of models and workloads on one chip, prompts and outputs weighed apart."""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators import Estimate, Estimator, Phase
from infer_jax.estimators.estimate import Limit, fresh_tokens
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
)


@spec
class Case(Spec):
    """One model with its requests and its layout, and how much of the mixture it is."""

    arch: Architecture = part("the model")
    workload: Workload = part("its requests")
    plan: Plan = part("its layout", default_factory=Plan.of)
    prompts: Array = number("requests whose prompts are computed here", kind="size", default=1.0)
    outputs: Array = number("requests whose outputs are", kind="size", default=1.0)
    ttft: Array = number("limit of TTFT; 0: none", unit="s", kind="time", default=0.0)
    tpot: Array = number("limit of TPOT; 0: none", unit="s", kind="time", default=0.0)


@spec
class MixtureEstimate(Estimate):
    """The estimate of the first case, costs of all, and their sum by output."""

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
    prompts and outputs per million tokens of output. Limits of memory and of times hold for every
    case. With ``prompts`` or ``outputs`` of 0 a case is of one pool alone: a chip for prefill and
    one for decode are two mixtures.
    """

    target: Estimator = part("the estimator")
    cases: tuple[Case, ...] = part("other cases", default_factory=tuple)
    prompts: Array = number("of the first case, as of a ``Case``", kind="size", default=1.0)
    outputs: Array = number("of the first case, as of a ``Case``", kind="size", default=1.0)

    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: AnyPlan
    ) -> Phase:
        """One pass of the first case."""
        return self.target.step(arch, hardware, forward, plan)

    def estimate(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: AnyPlan
    ) -> MixtureEstimate:
        """Times of the first case, costs and limits of all."""
        first = Case(
            arch=arch, workload=workload, plan=plan, prompts=self.prompts, outputs=self.outputs,
            ttft=jnp.zeros(()), tpot=jnp.zeros(()),
        )  # fmt: skip
        cases = (first, *self.cases)
        found = [self.target.estimate(c.arch, hardware, c.workload, c.plan) for c in cases]
        ins = [c.prompts * fresh_tokens(c.workload) for c in cases]
        outs = [c.outputs * c.workload.osl for c in cases]
        paid_in = total(n * e.input_cost for n, e in zip(ins, found, strict=True))
        paid_out = total(n * e.cost for n, e in zip(outs, found, strict=True))
        written = jnp.maximum(total(c.workload.osl for c in cases), 1.0)
        terms = {name: getattr(found[0], name) for name in Estimate.__dataclass_fields__}
        terms |= {
            "input_cost": _ratio(paid_in, total(ins)),
            "cost": _ratio(paid_out, total(outs)),
            "prefill": _joint_phase(found[0].prefill, [e.prefill for e in found[1:]]),
            "decode": _joint_phase(
                found[0].decode,
                [e.decode for e in found[1:]],
                [(c, e) for c, e in zip(self.cases, found[1:], strict=True)],
            ),
        }
        return MixtureEstimate(**terms, total=(paid_in + paid_out) / written)


def _ratio(paid: Array, tokens: Array) -> Array:
    return jnp.where(tokens > 0, paid / jnp.where(tokens > 0, tokens, 1.0), 0.0)


def _joint_phase(
    first: Phase, others: list[Phase], timed: list[tuple[Case, Estimate]] | None = None
) -> Phase:
    """A phase of the first case with the limits of all, and those of their times."""
    limits = dict(first.limits)
    for i, phase in enumerate(others, 2):
        limits |= {f"{name} of case {i}": limit for name, limit in phase.limits.items()}
    for i, (case, found) in enumerate(timed or [], 2):
        for name in ("ttft", "tpot"):
            time, most = getattr(found, name), getattr(case, name)
            capacity = jnp.where(most > 0, most, time)
            limits[f"{name} of case {i}"] = Limit(need=time, capacity=capacity)
    return first.replace(limits=limits)
