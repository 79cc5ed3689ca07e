"""What a policy costs and keeps under given traffic; many policies in lanes of one program."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.fleets.autoscalers import Autoscaler, Schedule
from infer_jax.fleets.bill import DailyCost, daily_cost
from infer_jax.fleets.fluid import (
    Course,
    Lifecycle,
    good,
    goodput,
    period_ttft,
    service_of,
    simulate,
)
from infer_jax.fleets.replica import Replica, Service, ServiceLimits
from infer_jax.replays import loops

LANES = 16  # policies that are simulated at once: more do not fit into the cache of a core


class FixedPool(NamedTuple):
    """A pool whose replicas are decided beforehand, those of each step."""

    replica: Replica
    life: Lifecycle
    wanted: Array


class Conditions(NamedTuple):
    """What every policy of a question shares: the pool that it scales, and those beside it."""

    replica: Replica
    life: Lifecycle
    limits: ServiceLimits
    rates: Array  # requests/s of each step
    seconds: Array  # of a step
    first: Array  # replicas at the beginning
    pue: Array
    grid: Array  # kg of CO2 for a kWh
    beside: tuple[FixedPool, ...] = ()


class Outcome(NamedTuple):
    """What a policy costs, and what requests meet in each period."""

    courses: tuple[Course, ...]  # of its pool and of those beside it
    cost: DailyCost
    goodput: Array  # share of all requests that keep the limits
    shares: Array  # the same of each period; 1 without requests
    ttft: Array  # of each period, within which the wanted share of its requests has a first token
    tpot: Array  # the largest mean of a step, by period


class _Steps(NamedTuple):
    """What requests meet in every step of every cohort of every pool."""

    rate: Array
    waits: Array
    share: Array
    service: Service


def outcome(depth: int, steps: int, policy: Autoscaler, given: Conditions) -> Outcome:
    """A policy under the conditions, in periods of ``steps``; ``depth`` from ``depth_of``."""
    courses, cost, every = _run(depth, steps, policy, given)
    ttft = lax.map(
        lambda now: period_ttft(now.rate, now.waits, now.service, given.limits.goodput), every
    )
    return Outcome(
        courses=courses,
        cost=cost,
        goodput=goodput(every.rate, every.share),
        shares=jax.vmap(goodput)(every.rate, every.share),
        ttft=ttft,
        tpot=jnp.max(every.service.tpot, axis=1),
    )


def lanes(depth: int, steps: int, policies: Autoscaler, given: Conditions) -> tuple[Array, Array]:
    """USD a day, and the share of good requests in the worst period, of stacked policies.

    On an accelerator all at once, which takes it as long as one.
    """

    def one(policy: Autoscaler) -> tuple[Array, Array]:
        _, cost, every = _run(depth, steps, policy, given)
        return cost.usd, jnp.min(jax.vmap(goodput)(every.rate, every.share))

    return loops.lanes(one, policies, batch=LANES)


def _run(
    depth: int, steps: int, policy: Autoscaler, given: Conditions
) -> tuple[tuple[Course, ...], DailyCost, _Steps]:
    """Courses of all pools, what they cost together, and their steps: [periods, steps x pools]."""
    limits, rates, seconds = given.limits, given.rates, given.seconds
    pools = [(policy, given.replica, given.life, given.first)]
    pools += [(Schedule.of().replace(replicas=x.wanted), x.replica, x.life, x.wanted[0])
              for x in given.beside]  # fmt: skip

    def course(i: int, rates: Array, beside: Array | None) -> Course:
        policy, replica, life, first = pools[i]
        return simulate(policy, replica, life, limits, rates, seconds, first, depth, beside)

    def serves(i: int, course: Course) -> Array:
        return course.ready * pools[i][1].planned_rate(limits, course.ready)

    if given.beside:
        # those that are decided beforehand serve whatever comes
        others = [serves(i, course(i, 0.0 * rates, None)) for i in range(1, len(pools))]
        first = course(0, rates, sum(others, 0.0 * rates))
        total = serves(0, first) + sum(others)
        courses = first, *(course(i, rates, total - x) for i, x in enumerate(others, 1))
    else:
        courses = (course(0, rates, None),)
    rows, costs = list[_Steps](), list[DailyCost]()
    for one, (_, replica, *_) in zip(courses, pools, strict=True):
        costs.append(daily_cost(one, replica, seconds, given.pue, given.grid))
        service = service_of(one, replica)
        rows.append(_Steps(one.arriving, one.waits, good(one, replica, limits), service))

    def by_period(*columns: Array) -> Array:
        periods = len(rates) // steps
        shaped = [x.reshape(periods, -1, *x.shape[2:]) for x in columns]
        return jnp.concatenate(shaped, axis=1)

    cost = jax.tree.map(lambda *x: sum(x), *costs) if given.beside else costs[0]
    return courses, cost, jax.tree.map(by_period, *rows)
