"""A policy as an estimator, so that a sweep tries many: what it costs and keeps."""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators import Estimate, Estimator, Limit, Phase
from infer_jax.estimators.estimator import AnyPlan
from infer_jax.fleets.autoscalers import Autoscaler
from infer_jax.fleets.bill import DAY
from infer_jax.fleets.outcomes import LANES, Conditions, judge
from infer_jax.specs import Architecture, Hardware, Output, Workload, number, part, spec, static

HIDDEN = Output(views=())


@spec
class PolicyEstimate(Estimate):
    """What a policy costs and keeps; TTFT and TPOT are those of its worst period."""

    usd_per_day: Array = number("rent of all replicas", unit="USD", kind="price",
                                output=Output(per="day", views=()))  # fmt: skip
    goodput: Array = number("share of good requests in the worst period", kind="fraction",
                            output=HIDDEN)  # fmt: skip
    replicas: Array = number("mean replicas", kind="count", output=HIDDEN)


@spec
class FleetEstimator(Estimator):
    """Policies of the pool that ``given`` scales, as ``judge`` has them; replicas are given.

    Of the four pytrees it reads the mean output alone, ``workload.osl``: all rent is billed to
    output tokens, and MFU is not known. It is feasible where every period keeps the wanted share of
    good requests.
    """

    lanes: ClassVar[int] = LANES
    checked_against = "replays of single hours, request by request"

    policy: Autoscaler = part("the autoscaler")
    given: Conditions = part("what all policies share")
    chips: Array = number("GPUs of a replica of each pool, the scaled one first", kind="count")
    depth: int = static("steps that a policy can look back, of ``depth_of``")
    steps: int = static("steps of a period")

    def estimate(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: AnyPlan
    ) -> PolicyEstimate:
        """The policy under its conditions; ``arch``, ``hardware`` and ``plan`` are not read."""
        found, rates = judge(self.depth, self.steps, self.policy, self.given), self.given.rates
        replicas = jnp.stack([jnp.mean(x.wanted) for x in found.courses])
        chips, rate = self.chips @ replicas, jnp.mean(rates) * workload.osl
        worst, ttft, tpot = jnp.min(found.shares), jnp.max(found.ttft), jnp.max(found.tpot)
        limits = {"goodput": Limit(need=self.given.limits.goodput, capacity=worst)}

        def phase(time: Array) -> Phase:
            return Phase(time=time, terms={}, limits=limits, mfu=jnp.nan * time, layout={})

        return PolicyEstimate(
            ttft=ttft, tpot=tpot, chips=chips, throughput=rate / chips,
            cost=1e6 * found.cost.usd / (DAY * rate), input_cost=0.0 * ttft,
            prefill=phase(ttft), decode=phase(tpot), usd_per_day=found.cost.usd, goodput=worst,
            replicas=jnp.sum(replicas),
        )  # fmt: skip
