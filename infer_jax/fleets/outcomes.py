"""What a policy costs and keeps under given traffic; many policies in lanes of one program."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.fleets.autoscalers import Autoscaler, Schedule
from infer_jax.fleets.bill import DailyCost, daily_cost
from infer_jax.fleets.fluid import (
    Course,
    Lifecycle,
    goodput,
    period_ttft,
    service_of,
    simulate,
)
from infer_jax.fleets.replica import Replica
from infer_jax.fleets.service import Service, ServiceLimits, share_good
from infer_jax.physics.numerics import square_root
from infer_jax.replays import loops

LANES = 16  # policies that are simulated at once: more do not fit into the cache of a core
ERROR = 0.15  # share by which the law of p99 may be off where chance has no part
SURE = 3.0  # standard errors of what chance does
WINDOW = 300.0  # s for which that many more or fewer requests come
SETTLED = 1e9  # s of load after which waits by chance are those of the long run


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
    dispersion: Array  # squared CoV of gaps between requests, and that of the work of one
    beside: tuple[FixedPool, ...] = ()


class Outcome(NamedTuple):
    """What a policy costs, and what requests meet in each period."""

    courses: tuple[Course, ...]  # of its pool and of those beside it
    cost: DailyCost
    goodput: Array  # share of all requests that keep the limits
    shares: Array  # the same of each period; 1 without requests
    ttft: Array  # of each period, within which the wanted share of its requests has a first token
    ttft_band: Array  # between which that is, as far as chance and the law's error leave it open
    tpot: Array  # the largest mean of a step, by period


def outcome(depth: int, steps: int, policy: Autoscaler, given: Conditions) -> Outcome:
    """A policy under the conditions, in periods of ``steps``; ``depth`` from ``depth_of``.

    The band of TTFT: from the law of traffic that is by ``SURE`` standard errors of the requests of
    ``WINDOW`` s less, sqrt(rate x dispersion / window) of a rate, up to that of so much more whose
    waits have settled; each at the end of the interval of the share of so many requests (Wilson
    1927, Journal of the American Statistical Association 22), and ``ERROR`` beyond.
    """
    chance = SURE * square_root(given.rates * given.dispersion / WINDOW)
    rates = jnp.maximum(given.rates + jnp.array([0.0, -1.0, 1.0])[:, None] * chance, 0.0)
    count, wanted = given.rates.reshape(-1, steps).sum(1) * given.seconds, given.limits.goodput
    shares = jnp.stack([wanted + 0.0 * count, *_interval(wanted, count)])

    def law(rates: Array, settled: Array, shares: Array) -> Outcome:
        return judge(depth, steps, policy, given._replace(rates=rates), shares, settled)

    every = jax.vmap(law)(rates, jnp.array([False, False, True]), shares)
    low, high = every.ttft[1] / (1.0 + ERROR), every.ttft[2] * (1.0 + ERROR)
    return jax.tree.map(lambda x: x[0], every)._replace(ttft_band=jnp.stack([low, high]))


def judge(
    depth: int, steps: int, policy: Autoscaler, given: Conditions, shares: Array | None = None,
    settled: Array | bool = False,
) -> Outcome:  # fmt: skip
    """An ``outcome`` whose band is TTFT itself, a third of the work.

    ``shares``: of each period those whose TTFT it is, the wanted one where None; ``settled``:
    whether waits by chance are as after a long time, whatever the load was before.
    """
    courses = _courses(depth, policy, given)
    replicas = [given.replica, *(x.replica for x in given.beside)]
    if shares is None:
        shares = given.limits.goodput + 0.0 * given.rates[::steps]

    def of_period(x: tuple[tuple[Course, ...], Array]) -> tuple[DailyCost, *tuple[Array, ...]]:
        costs, every = list[DailyCost](), list[tuple[Array, Array, Service, Array]]()
        for one, replica in zip(x[0], replicas, strict=True):
            one = one._replace(busy=jnp.where(settled, SETTLED, one.busy))
            service = service_of(one, replica)
            good = share_good(service, given.limits, one.waits)
            costs.append(daily_cost(one, replica, given.seconds, given.pue, given.grid))
            every.append((one.arriving, one.waits, service, good))
        # the steps of every cohort of every pool
        rate, waits, service, good = jax.tree.map(lambda *x: jnp.concatenate(x), *every)
        ttft = period_ttft(rate, waits, service, x[1])
        cost = jax.tree.map(lambda *x: sum(x), *costs)
        return cost, jnp.sum(rate), goodput(rate, good), ttft, service.tpot.max()

    # periods one after another, which need little memory
    periods = jax.tree.map(lambda x: x.reshape(-1, steps, *x.shape[1:]), courses)
    cost, rate, share, ttft, tpot = lax.map(of_period, (periods, shares))
    cost, band = jax.tree.map(jnp.mean, cost), jnp.stack([ttft, ttft])
    return Outcome(courses, cost, goodput(rate, share), share, ttft, band, tpot)


def _interval(share: Array, count: Array) -> tuple[Array, Array]:
    """Wilson's score interval of a share of so many requests, one at least."""
    count = jnp.maximum(count, 1.0)
    middle, every = share * count + SURE**2 / 2.0, count + SURE**2
    spread = SURE * jnp.sqrt(share * (1.0 - share) * count + SURE**2 / 4.0)
    return (middle - spread) / every, (middle + spread) / every


def lanes(
    depth: int, steps: int, policies: Autoscaler, given: Conditions,
    devices: Sequence[jax.Device] = (),
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Of stacked policies USD a day, the share of good requests in the worst period, and replicas.

    Replicas are those that are wanted in each step: a schedule of them has the same course. On an
    accelerator all at once, which takes it as long as one; several ``devices`` have equal parts.
    """

    def one(policy: Autoscaler) -> tuple[Array, Array, Array]:
        found = judge(depth, steps, policy, given)
        return found.cost.usd, jnp.min(found.shares), found.courses[0].wanted

    return loops.lanes(one, policies, batch=LANES, devices=devices)


def _courses(depth: int, policy: Autoscaler, given: Conditions) -> tuple[Course, ...]:
    """Courses of all pools, the scaled one first."""
    limits, rates, seconds = given.limits, given.rates, given.seconds

    def course(pool: FixedPool, rates: Array, beside: Array | float = 0.0) -> Course:
        plan, (replica, life, wanted) = Schedule.of().replace(replicas=pool.wanted), pool
        return simulate(plan, replica, life, limits, rates, seconds, wanted[0], depth, beside)

    def serves(course: Course, replica: Replica) -> Array:
        return course.ready * replica.planned_rate(limits, course.ready)

    # those that are decided beforehand serve whatever comes
    others = [serves(course(x, 0.0 * rates), x.replica) for x in given.beside]
    first = simulate(policy, given.replica, given.life, limits, rates, seconds, given.first, depth,
                     sum(others))  # fmt: skip
    total = serves(first, given.replica) + sum(others)
    beside = zip(given.beside, others, strict=True)
    return first, *(course(x, rates, total - serve) for x, serve in beside)
