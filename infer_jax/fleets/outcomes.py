"""What a policy costs and keeps under given traffic; many policies in lanes of one program."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.fleets.autoscalers import Autoscaler
from infer_jax.fleets.bill import DailyCost, daily_cost
from infer_jax.fleets.fluid import Course, Lifecycle, good, goodput, period_ttft, simulate
from infer_jax.fleets.replica import Replica, ServiceLimits

LANES = 16  # policies that are simulated at once: more do not fit into the cache of a core


class Conditions(NamedTuple):
    """What every policy of a question shares."""

    replica: Replica
    life: Lifecycle
    limits: ServiceLimits
    rates: Array  # requests/s of each step
    seconds: Array  # of a step
    first: Array  # replicas at the beginning
    pue: Array
    grid: Array  # kg of CO2 for a kWh


class Outcome(NamedTuple):
    """A policy's course, cost, and what requests meet in each period."""

    course: Course
    cost: DailyCost
    goodput: Array  # share of all requests that keep the limits
    shares: Array  # the same of each period; 1 without requests
    ttft: Array  # of each period, within which the wanted share of its requests has a first token
    tpot: Array  # the largest mean of a step, by period
    wanted: Array  # mean replicas, by period


def outcome(depth: int, steps: int, policy: Autoscaler, given: Conditions) -> Outcome:
    """A policy under the conditions, in periods of ``steps``; ``depth`` from ``depth_of``."""
    course = _course(depth, policy, given)
    share = good(course, given.replica, given.limits)
    tpot = given.replica.at(course.in_flight).tpot.reshape(-1, steps)
    return Outcome(
        course=course,
        cost=daily_cost(course, given.replica, given.seconds, given.pue, given.grid),
        goodput=goodput(course, share),
        shares=_by_period(course, share, steps),
        ttft=period_ttft(course, given.replica, given.limits.goodput, steps),
        tpot=jnp.max(tpot, axis=1),
        wanted=jnp.mean(course.wanted.reshape(-1, steps), axis=1),
    )


def lanes(depth: int, steps: int, policies: Autoscaler, given: Conditions) -> tuple[Array, Array]:
    """USD a day, and the share of good requests in the worst period, of stacked policies.

    On an accelerator all at once, which takes it as long as one.
    """

    def one(policy: Autoscaler) -> tuple[Array, Array]:
        course = _course(depth, policy, given)
        cost = daily_cost(course, given.replica, given.seconds, given.pue, given.grid)
        share = good(course, given.replica, given.limits)
        return cost.usd, jnp.min(_by_period(course, share, steps))

    if jax.default_backend() != "cpu":
        return jax.vmap(one)(policies)
    return lax.map(one, policies, batch_size=LANES)


def _by_period(course: Course, share: Array, steps: int) -> Array:
    """The share of each period's requests, of that of each step's; 1 where there are none."""
    rows = jax.tree.map(lambda x: x.reshape(-1, steps), (course, share))
    return jax.vmap(goodput)(*rows)


def _course(depth: int, policy: Autoscaler, given: Conditions) -> Course:
    replica, life, limits, rates, seconds, first, *_ = given
    return simulate(policy, replica, life, limits, rates, seconds, first, depth)
