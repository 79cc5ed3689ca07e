"""A plan that is given and not searched: its estimate, what it exceeds, what its tokens cost."""

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

import jax
import numpy as np

from infer_jax.compiling import once
from infer_jax.estimators import Estimate, Estimator
from infer_jax.estimators.disaggregated import OUTSIDE, Disaggregated, Pools
from infer_jax.estimators.serving import Deployment
from infer_jax.planning.choice import Choice, PlanPool, Requirements
from infer_jax.planning.pricing import excess_of, plan_outputs
from infer_jax.specs import Architecture, Hardware, Plan, Workload
from infer_jax.sweeps.paths import Point

HOURS = 730.0  # of a month: 365 x 24 / 12


def deployed(estimator: Estimator, pools: Sequence[PlanPool]) -> tuple[Estimator, Plan | Pools]:
    """The estimator of a plan of one kind of instances, or of two pools, and its plan."""
    first, last = pools[0], pools[-1]
    if len(pools) == 1:
        if not estimator.batches:
            return estimator, plain_plan(last)
        return estimator, Deployment.of(**last.layout._asdict(), dp=last.copies)
    plan = Pools.of(
        prefill=Deployment.of(**first.layout._asdict()),
        decode=Deployment.of(**last.layout._asdict()),
        prefill_copies=first.copies,
        decode_copies=last.copies,
        prefill_batch=first.batch,
    )
    return Disaggregated.of(target=estimator), plan


def plain_plan(pool: PlanPool) -> Plan:
    """Groups of tp GPUs over which experts are divided, with the same bytes on each GPU."""
    layout = pool.layout
    return Plan.of(tp=layout.tp, pp=layout.pp, ep=layout.attention_dp, dp=pool.copies)


def point_of(
    estimator: Estimator,
    arch: Architecture,
    hardware: Hardware,
    work: Workload,
    pools: Sequence[PlanPool],
) -> Point:
    """The point of a plan: its estimator, and the inputs of its estimate."""
    theory, plan = deployed(estimator, pools)
    return Point(theory, arch, hardware, work.with_(batch=pools[-1].batch), plan)


def given_choice(system: str, pool: PlanPool, point: Point, limits: Requirements) -> Choice:
    """A plan of one kind of instances at its point, with what it exceeds of the limits."""
    work = point.workload
    estimate = once(Estimator.estimate_once, *point)
    rows: Estimate = jax.tree.map(itemgetter(np.newaxis), estimate)
    both = [*rows.prefill.limits.items(), *rows.decode.limits.items()]
    broken = {name: limit for name, limit in both if limit.need > limit.capacity}
    limits = replace(limits, chips=np.inf)  # the GPUs are as given
    excess = excess_of(rows, (np.asarray(rows.chips), np.array([pool.batch])), limits, broken)
    chips, throughput = float(estimate.chips) * pool.copies, float(estimate.throughput)
    fresh = max(float(work.isl - work.prefix), 1.0)
    total = float(estimate.input_cost) * fresh + float(estimate.cost) * float(work.osl)
    return Choice(
        system=system,
        pools=(pool,),
        requests_per_s=throughput * chips / float(work.osl),
        throughput=throughput,
        usd_per_hour=chips * float(point.hardware.price),
        isl=float(work.isl),
        osl=float(work.osl),
        blended=total / float(work.isl + work.osl),
        **plan_outputs(rows, excess, 0),
    )


def costs_fields(c: Choice, point: Point, estimate: Estimate) -> dict[str, float]:
    """USD per hour and month and per million tokens of a plan, for JSON."""
    computed, cached, tokens = prompt_prices(point, estimate)
    return {
        "per_hour_usd": c.usd_per_hour,
        "per_month_usd": HOURS * c.usd_per_hour,
        "blended_per_mtok_usd": c.usd_per_mtok,
        "input_per_mtok_usd": computed,
        "cached_input_per_mtok_usd": cached,
        "cached_input_tokens": tokens,
        "output_per_mtok_usd": float(estimate.cost),
    }


def prompt_prices(point: Point, estimate: Estimate) -> tuple[float, float, float]:
    """USD per million prompt tokens computed and cached, and the cached tokens that this is of.

    The price of a cached token is such that computed and cached tokens add up to the cost of a
    prompt of which half, or the share that the workload has, is in the cache.
    """
    isl, prefix = float(point.workload.isl), float(point.workload.prefix)
    cached = prefix or float(int(isl / 2))
    pooled = isinstance(point.estimator, Disaggregated)

    def prompt_cost(tokens: float) -> float:
        """USD per million prompts of which that many tokens are cached; of pools, seconds."""
        answer = estimate
        if tokens != prefix:
            work = point.workload.with_(prefix=tokens)
            answer = once(Estimator.estimate_once, *point._replace(workload=work))
        if pooled:
            return _prefill_seconds(answer)
        return float(answer.input_cost) * max(isl - tokens, 1.0)

    none, some = prompt_cost(0.0), prompt_cost(cached)
    if pooled:  # a pool is rented, however busy: what it is rented for, by time
        pool = float(estimate.input_cost) * max(isl - prefix, 1.0) / _prefill_seconds(estimate)
        none, some = none * pool, some * pool
    computed = none / max(isl, 1.0)
    return computed, (some - (isl - cached) * computed) / cached if cached else computed, cached


def _prefill_seconds(estimate: Estimate) -> float:
    """Seconds of the pass of a pool that prefills."""
    first = estimate.prefill
    return float(first.time) - sum(float(first.terms[name]) for name in OUTSIDE)
