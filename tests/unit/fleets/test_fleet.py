"""A fleet over time: against the referee in plain Python, closed forms, and an hour by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.fleets import (
    EventDriven,
    FixedPool,
    Horizontal,
    Lifecycle,
    Predictive,
    Schedule,
    ServiceLimits,
    daily_cost,
    goodput,
    lanes,
    outcome,
    period_ttft,
    ramp,
    service_of,
    share_good,
    simulate,
    usd_by_step,
)
from infer_jax.fleets.fluid import backlog_wait
from infer_jax.sweeps import Everything, Space
from tests.unit.fleets import referee
from tests.unit.fleets.toys import LIMITS, autoscalers, conditions, exponential_replica
from tests.unit.physics.derivatives import agree_at, finite_at, numbers
from tests.unit.sweeps import toy

SECONDS, DEPTH = 15.0, 32
POINT = Space(toy.arch(), toy.hardware(), toy.workload(), toy.plan())


def run(policy, rates, first, life=None, seconds=SECONDS):
    """The course of a fleet of the toy's replicas."""
    life = Lifecycle.of() if life is None else life
    given = (jnp.asarray(x, float) for x in (rates, seconds, first))
    rates, seconds, first = given
    return simulate(policy, exponential_replica(), life, LIMITS, rates, seconds, first, DEPTH)


course_of = jax.jit(run)
outcome_of = jax.jit(partial(outcome, DEPTH, 20))
lanes_of = jax.jit(partial(lanes, DEPTH, 20))


def random_rates(draw, steps=40):
    """Requests/s of some periods of ten steps, some of them none at all."""
    levels = draw.uniform(0.0, 16.0, steps // 10) * (draw.random(steps // 10) > 0.15)
    return np.maximum(np.repeat(levels, 10), 0.0)


KINDS = {
    "horizontal": (
        lambda d: Horizontal.of(
            target=d.uniform(2.0, 8.0),
            tolerance=d.choice([0.0, 0.1, 0.3]),
            maximum=9,
            stabilization=float(d.choice([15.0, 60.0, 100.0, 300.0])),
            pods=float(d.choice([1, 4])),
            percent=float(d.choice([0.0, 0.5, 1.0])),
            sync=float(d.choice([15.0, 30.0, 45.0])),
        ),
        lambda p, server, first: referee.Pods(p, False, first),
    ),
    "event driven": (
        lambda d: EventDriven.of(
            target=d.uniform(0.2, 8.0), stabilization=float(d.choice([30.0, 300.0])), minimum=2
        ),
        lambda p, server, first: referee.Pods(p, True, first),
    ),
    "predictive": (
        lambda d: Predictive.of(
            interval=float(d.choice([15.0, 60.0, 180.0])),
            trend=float(d.choice([0.0, 1.0])),
            maximum=12,
        ),
        lambda p, server, first: referee.Planner(
            p, float(exponential_replica().mean_rate_within(LIMITS.ttft, LIMITS.tpot))
        ),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_course_is_that_of_the_published_rules_in_plain_python(kind):
    """Replicas wanted, ready and requests in flight of 70 random fleets of each kind, at 1e-9."""
    make, judge = KINDS[kind]
    server = referee.Server(exponential_replica())
    moved = 0
    for seed in range(70):
        draw = np.random.default_rng(seed)
        policy, rates, first = make(draw), random_rates(draw), float(draw.integers(2, 6))
        delay, away = float(draw.choice([0.0, 20.0, 37.5, 120.0])), float(draw.choice([0.0, 2.0]))
        life = Lifecycle.of(start_delay=delay, departures=away)
        course = course_of(policy, rates, first, life)
        expected = referee.fleet(
            judge(policy, server, first), server, delay, away, rates, SECONDS, first
        )
        wanted, ready, held = np.array(expected).T
        np.testing.assert_allclose(course.wanted, wanted, rtol=1e-9, err_msg=str(seed))
        np.testing.assert_allclose(course.ready, ready, rtol=1e-9, err_msg=str(seed))
        whole = np.sum((course.running + course.queue) * course.replicas, axis=1)
        np.testing.assert_allclose(whole, held, rtol=1e-9, atol=1e-9, err_msg=str(seed))
        moved += len(set(wanted))
    assert moved > 140  # they scale


def test_a_constant_rate_settles_where_erlang_says():
    """Three M/M/4 of 1.8 requests/s each: their mean number in service, for hours."""
    replica = exponential_replica()
    policy = Schedule.of(replicas=1.0).replace(replicas=jnp.full(2000, 3.0))
    course = course_of(policy, np.full(2000, 5.4), 3.0)
    assert course.running[:, 0] == pytest.approx(np.full(2000, 1.8 / 0.5), rel=1e-9)
    assert service_of(course, replica).rate[:, 0] == pytest.approx(np.full(2000, 1.8), rel=1e-9)
    assert np.all(np.asarray(course.waits) == 0.0)


def test_an_overloaded_hour_by_hand():
    """2 replicas answer 4 requests/s of 5 that come: after an hour 3600 wait, for 900 s.

    As many run as at 0.99 of the capacity; all others that come wait. In the second hour 3 come,
    and the queue is gone after an hour.
    """
    hour = 240
    rates = np.r_[np.full(hour, 5.0), np.full(hour, 3.0)]
    policy = Schedule.of(replicas=1.0).replace(replicas=jnp.full(2 * hour, 2.0))
    replica = exponential_replica()
    course = course_of(policy, rates, 2.0)
    backlog = np.sum(course.queue * course.replicas, axis=1)  # they begin full, without a queue
    assert backlog[hour - 1] == pytest.approx(3600.0, rel=1e-9)
    assert course.waits[hour - 1, 0].tolist() == pytest.approx([3585.0 / 4.0, 900.0], rel=1e-9)
    assert backlog[2 * hour - 1] == pytest.approx(0.0, abs=1e-6)
    shares = share_good(service_of(course, replica), LIMITS, course.waits)[:, 0]
    # only the first steps' requests are still within 3 s, and none of the queue's
    assert np.all(np.asarray(shares)[1 : 2 * hour - 1] <= 0.99) and np.all(shares[100] == 0.0)
    # 2 replicas at 3.6 USD/h over two hours
    one = jnp.asarray(1.0)
    usd = float(jnp.sum(usd_by_step(course, replica, jnp.asarray(SECONDS))))
    assert usd == pytest.approx(14.4, rel=1e-12)
    day = daily_cost(course, replica, jnp.asarray(SECONDS), one, 0.5 * one)
    assert float(day.usd) == pytest.approx(14.4 * 12.0)
    watts = 2.0 * (100.0 + 600.0 * 0.99)  # full replicas all the time
    assert float(day.joules) == pytest.approx(watts * 86_400.0, rel=1e-3)
    assert float(day.grams) == pytest.approx(float(day.joules) / 3.6e6 * 500.0)


def test_replicas_that_leave_are_paid_until_their_requests_are_done():
    rates = np.full(8, 1.0)
    policy = Schedule.of(replicas=1.0).replace(replicas=jnp.asarray([3.0] * 4 + [1.0] * 4))
    course, replica = course_of(policy, rates, 3.0), exponential_replica()
    usd = np.asarray(usd_by_step(course, replica, jnp.asarray(SECONDS))) / 3.6 * 3600.0
    latency = float(replica.at(course.running[4, 0]).latency)
    extra = np.where(np.arange(8) == 4, 2.0 * latency, 0.0)
    assert usd == pytest.approx(np.array([45.0] * 4 + [15.0] * 4) + extra)


def test_a_wait_ends_when_later_capacity_has_served_the_queue():
    """10 and 6 requests wait; 1 a second is served in the first 15 s, then 2, then 0.5."""
    capacity = jnp.asarray([1.0, 2.0, 0.5])
    wait = backlog_wait(jnp.asarray([10.0, 6.0, 3.0]), capacity, jnp.asarray(15.0))
    assert wait.tolist() == [5.0, 12.0, 6.0]


def test_ramps_keep_the_mean_of_every_period_and_never_fall_below_zero():
    draw = np.random.default_rng(0)
    rates = draw.exponential(3.0, 50) * (draw.random(50) > 0.2)
    steps = np.asarray(ramp(jnp.asarray(rates), 12)).reshape(50, 12)
    assert steps.mean(axis=1) == pytest.approx(rates, abs=1e-12) and steps.min() >= 0.0
    assert np.all(np.asarray(ramp(jnp.full(3, 2.0), 4)) == 2.0)


def test_pools_of_one_kind_are_one_pool():
    """Three replicas in a pool and two beside it, under a rate that goes up beyond them."""
    rates = np.r_[np.linspace(1.0, 12.0, 60), np.linspace(12.0, 1.0, 60)]
    given = conditions(rates, 3.0)
    alone = outcome_of(Schedule.of().replace(replicas=jnp.full(120, 5.0)),
                       given._replace(first=jnp.asarray(5.0)))  # fmt: skip
    beside = (FixedPool(given.replica, given.life, jnp.full(120, 2.0)),)
    policy = Schedule.of().replace(replicas=jnp.full(120, 3.0))
    both = outcome_of(policy, given._replace(beside=beside))
    for name in ("cost", "goodput", "shares", "ttft", "ttft_band", "tpot"):
        for x, y in zip(*(jax.tree.leaves(getattr(z, name)) for z in (alone, both)), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9)
    assert min(float(x) for x in alone.shares) < 0.5


def test_each_pool_gets_requests_by_what_it_serves_and_none_where_it_has_no_replica():
    """By hand: the share of what serves, step by step; the pool beside comes and goes."""
    rates = 3.0 + 2.0 * np.sin(np.arange(120) / 15.0)
    wanted = np.r_[np.zeros(40), np.full(40, 2.0), np.zeros(40)]
    small = exponential_replica(servers=2, mu=0.5)
    beside = FixedPool(small, Lifecycle.of(start_delay=30.0), jnp.asarray(wanted))
    given = conditions(rates, 2.0)._replace(beside=(beside,))
    found = outcome_of(Horizontal.of(target=2.0), given)
    first, other = found.courses
    np.testing.assert_allclose(first.rate + other.rate, rates, rtol=1e-12)
    each = [float(x.planned_rate(given.limits)) for x in (given.replica, small)]
    serve = np.asarray(first.ready) * each[0], np.asarray(other.ready) * each[1]
    np.testing.assert_allclose(other.rate, rates * serve[1] / (serve[0] + serve[1]), rtol=1e-9)
    assert np.all(np.asarray(other.rate)[other.ready == 0.0] == 0.0)
    assert np.count_nonzero(other.ready) == 38  # 30 s later than they are wanted
    assert np.all(np.isfinite(np.concatenate([np.ravel(x) for x in jax.tree.leaves(found)])))
    stacked = jax.tree.map(lambda x: jnp.asarray(x)[None], Horizontal.of(target=2.0))
    usd, worst, wanted = lanes_of(stacked, given)
    np.testing.assert_array_equal(wanted[0], first.wanted)
    assert float(usd[0]) == pytest.approx(float(found.cost.usd), rel=1e-12)
    assert float(worst[0]) == pytest.approx(float(jnp.min(found.shares)), rel=1e-12)


def test_a_sweep_of_autoscalers_is_every_one_of_them_alone():
    """Points, frontier and chips of thirty policies, against ``outcome`` of each."""
    every = autoscalers()
    found = ij.sweep(POINT, estimator=every, precision="float64", legal=False,
                     keep=Everything("usd_per_day", "goodput", "ttft", "chips"))  # fmt: skip
    policies = [(x, y) for x in np.linspace(1.0, 4.0, 10) for y in (30.0, 60.0, 300.0)]
    rows = {point: row for row, point in enumerate(found.index)}
    assert 5 < len(rows) < 25
    for point, (target, window) in enumerate(policies):
        policy = Horizontal.of(target=target, stabilization=window)
        alone = outcome_of(policy, every.given)
        wanted = {
            "usd_per_day": alone.cost.usd,
            "goodput": jnp.min(alone.shares),
            "ttft": jnp.max(alone.ttft),
            "chips": 2.0 * jnp.mean(alone.courses[0].wanted),
        }
        assert (point in rows) == (float(wanted["goodput"]) >= 0.99), point
        for name, value in wanted.items() if point in rows else ():
            assert found.columns[name][rows[point]] == pytest.approx(float(value), rel=1e-9), name
    tokens = float(jnp.mean(every.given.rates)) * 86400.0 * float(POINT.workload.osl)
    usd = np.asarray(found.columns["usd_per_day"])
    assert found.columns["cost"] == pytest.approx(1e6 * usd / tokens, rel=1e-12)


def test_the_band_of_ttft_is_that_of_steady_traffic_with_three_errors_less_and_more():
    """Of a pool that is steady, by its table; the shares by scipy's interval of a proportion."""
    from scipy.special import ndtr
    from scipy.stats import binomtest

    rate, copies, hour = 6.0, 4.0, 3600.0
    given = conditions(np.full(240, rate), copies)._replace(seconds=jnp.asarray(hour / 240))
    given = given._replace(limits=given.limits.with_(goodput=0.95))
    policy = Schedule.of().replace(replicas=jnp.full(240, copies))
    low, high = jax.jit(partial(outcome, DEPTH, 240))(policy, given).ttft_band[:, 0]
    count, level = int(rate * hour), 1.0 - 2.0 * float(ndtr(-3.0))
    share = binomtest(round(0.95 * count), count).proportion_ci(level, method="wilson")
    error = 3.0 * np.sqrt(2.0 * rate * 300.0) / 300.0  # of Poisson arrivals with exponential work
    for found, rate_, share_, factor in (
        (low, rate - error, share.low, 1.0 / 1.15), (high, rate + error, share.high, 1.15),
    ):  # fmt: skip
        met = given.replica.at_rate(jnp.asarray(rate_ / copies), copies)
        assert float(found) == pytest.approx(factor * float(met.ttft_within(share_)), rel=5e-3)
    assert float(high) > 1.5 * float(low)


def test_the_band_without_requests_is_finite_and_so_is_its_gradient():
    """Periods with none, with one and with more than replicas serve."""
    rates = np.repeat([0.0, 0.003, 30.0], 20)
    policy = Schedule.of().replace(replicas=jnp.full(60, 2.0))

    def ends(rates):
        return jnp.sum(outcome(DEPTH, 20, policy, conditions(rates, 2.0)).ttft_band)

    value, slope = jax.jit(jax.value_and_grad(ends))(jnp.asarray(rates))
    assert np.isfinite(value) and np.all(np.isfinite(slope)) and np.any(slope != 0.0)
    low, high = outcome_of(policy, conditions(rates, 2.0)).ttft_band
    assert np.all(low > 0.0) and np.all(low < high)


def test_the_ttft_of_a_period_is_that_of_its_requests_together():
    """The share within it, by brute force over steps with and without a queue."""
    rates = np.r_[np.full(40, 5.0), np.full(40, 1.0), np.zeros(40)]
    policy = Schedule.of(replicas=1.0).replace(replicas=jnp.full(120, 2.0))
    course, replica = course_of(policy, rates, 2.0), exponential_replica()
    columns = course.arriving, course.waits, service_of(course, replica)
    rows = jax.tree.map(lambda x: x.reshape(3, 80, *x.shape[2:]), columns)
    for share in (0.5, 0.99):
        within = partial(period_ttft, share=jnp.asarray(share))
        found = jax.lax.map(lambda x, law=within: law(*x), rows)
        for i in range(2):
            rate, waits, here = jax.tree.map(lambda x, i=i: x[i], rows)
            ends = [found[i] * (1.0 + x) for x in (-1e-6, 1e-6)]
            below, above = (np.average(here.share_within(t, waits), weights=rate) for t in ends)
            assert below <= share <= above  # of an idle replica most come at once
        assert np.isfinite(float(found[2]))


def test_what_waits_at_a_replica_stays_there_when_another_begins():
    """By hand: 1 serves 2/s of 3/s for 10 minutes, then 2 are there and 3/s come.

    The new one gets all until both hold alike. Of the 600 that wait at the old one the last has
    300 s before it, whatever begins.
    """
    rates, alone = np.full(200, 3.0), 40
    wanted = np.r_[np.full(alone, 1.0), np.full(160, 2.0)]
    policy = Schedule.of().replace(replicas=jnp.asarray(wanted))
    course = course_of(policy, rates, 1.0, Lifecycle.of(start_delay=0.0))
    queue, replicas = np.asarray(course.queue), np.asarray(course.replicas)
    assert queue[alone - 1, 0] == pytest.approx(600.0, rel=1e-9)
    assert course.waits[alone - 1, 0, 1] == pytest.approx(300.0, rel=1e-9)
    # of 600 a third is left once the other's queue is as long: 600 - 2t = t, after 200 s
    apart = replicas[:, 1] > 0.0
    assert apart.sum() == pytest.approx(200.0 / SECONDS, abs=1.0)
    assert np.all(np.asarray(course.arriving)[alone : alone + 12] == [0.0, 3.0])
    assert np.all(replicas.sum(axis=1) == wanted)
    assert course.arriving.sum(axis=1) == pytest.approx(rates, rel=1e-12)
    # then both answer 4/s: of 400 that wait one less every second
    ago = SECONDS * (alone + np.arange(20, 30) - (alone - 1)) - 200.0
    waiting = np.sum(queue * replicas, axis=1)[alone + 20 : alone + 30]
    assert waiting == pytest.approx(400.0 - ago, abs=8.0)
    first = course.waits[alone, 1]
    assert first[0] == 0.0 and first[1] < SECONDS


def test_waits_by_chance_settle_while_a_replica_is_busy():
    """At 0.98 of the capacity: in the first seconds those of 0.9, in the end its own."""
    replica, rates = exponential_replica(), np.r_[np.full(40, 1.0), np.full(4000, 1.96)]
    policy = Schedule.of(replicas=1.0).replace(replicas=jnp.full(4040, 1.0))
    course = course_of(policy, rates, 1.0)
    ttft = np.asarray(service_of(course, replica).ttft)[:, 0]
    at = [float(replica.at_rate(jnp.asarray(2.0 * x)).ttft) for x in (0.5, 0.9, 0.98)]
    assert ttft[39] == pytest.approx(at[0], rel=1e-9)
    busy = np.asarray(course.busy)[:, 0]
    begins = int(np.argmax(busy > 0.0))
    assert ttft[begins] == pytest.approx(at[1], rel=0.05)
    # from 0.9 on they grow as the root of the services, of which there are 2 a second
    settled = 0.1 * np.sqrt(2.0 * busy) > (at[2] - 0.1) / (at[1] - 0.1)
    assert ttft[settled] == pytest.approx(np.full(settled.sum(), at[2]), rel=1e-3)
    assert np.all(np.diff(ttft[40:]) > -1e-9)


def total(target, delay, away, level, ttft):
    """Dollars and the share of good requests of a day of an autoscaler of real replicas."""
    one = jnp.ones_like(delay)
    policy = Horizontal.of(stabilization=60.0).replace(target=target, smoothing=one)
    life = Lifecycle.of().replace(start_delay=delay, departures=away)
    shape = 1.0 + 0.5 * jnp.sin(jnp.arange(48) / 8.0)
    limits, seconds = ServiceLimits.of().replace(ttft=ttft), 15.0 * one
    replica, first = exponential_replica(), 2.0 * one
    course = simulate(policy, replica, life, limits, level * shape, seconds, first, DEPTH)
    good = share_good(service_of(course, replica), limits, course.waits, 0.1 * one)
    share = goodput(course.arriving, good)
    return jnp.sum(usd_by_step(course, replica, seconds)) + share


def test_gradients_agree_and_stay_finite_without_traffic_at_capacity_and_with_one_replica():
    agree_at(
        total, *(numbers(*x) for x in ((4.3, 52.0, 0.7, 3.1, 3.0), (2.7, 95.0, 0.1, 7.3, 2.0)))
    )
    full = 2.0 / 1.5  # the peak is the capacity of the first two, of the only one
    points = ((4.0, 60.0, 0.0, 0.0, 3.0), (4.0, 0.0, 0.0, 2.0 * full, 3.0),
              (1e4, 30.0, 0.0, full, 3.0), (1e4, 30.0, 0.0, 50.0, 0.0))  # fmt: skip
    finite_at(total, *(numbers(*x) for x in points))


def test_a_thousand_policies_are_one_trace():
    traces = []

    def cost(target, stabilization):
        traces.append(1)
        policy = Horizontal.of().replace(target=target, stabilization=stabilization)
        course = run(policy, 4.0 + 3.0 * np.sin(np.arange(120) / 20.0), 3.0)
        return jnp.sum(course.wanted), jnp.min(course.ready)

    many = jax.jit(jax.vmap(cost))
    targets = jnp.linspace(1.0, 9.0, 1000)
    wanted, _ = many(targets, jnp.full(1000, 300.0))
    many(targets + 1.0, jnp.full(1000, 60.0))
    assert len(traces) == 1
    assert wanted.shape == (1000,) and len(np.unique(np.asarray(wanted))) > 20
    assert float(wanted[0]) > float(wanted[-1])
    for i in (0, 500, 999):
        alone = course_of(
            Horizontal.of(target=float(targets[i])), 4.0 + 3.0 * np.sin(np.arange(120) / 20.0), 3.0
        )
        assert float(wanted[i]) == pytest.approx(float(jnp.sum(alone.wanted)), rel=1e-12)


def test_surges_have_two_rates_and_the_sojourn_that_is_asked_for():
    from infer_jax.fleets import surges

    factors = np.asarray(surges(3, 200_000, *(jnp.asarray(x) for x in (1.0, 0.25, 40.0))))
    assert set(factors.tolist()) == {0.75, 1.25}
    assert factors.mean() == pytest.approx(1.0, abs=0.02)
    changes = np.count_nonzero(np.diff(factors))
    # a step's chance to turn is 1 - exp(-1 / 40); 2 % are four deviations of 5,000 turns
    assert changes / 200_000 == pytest.approx(-np.expm1(-1.0 / 40.0), rel=0.06)
