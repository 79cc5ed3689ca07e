"""The table of a replica: what it is read for, against closed forms and brute force."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.fleets import ServiceLimits, share_good, tabulate
from infer_jax.fleets.replica import (
    COPIES,
    FULLEST,
    IDLE,
    POINTS,
    Replica,
    routed_variability,
    stages_of,
)
from infer_jax.physics import scheduling
from infer_jax.physics.scheduling import LEVELS
from tests.unit.fleets.toys import LIMITS, erlang_c, exponential_replica, wait_at
from tests.unit.physics.derivatives import agree_at, finite_at, numbers


def test_shares_and_times_are_inverse_and_exact_at_the_percentiles_of_the_law():
    replica = exponential_replica()
    here = replica.at_rate(jnp.asarray([1.85, 1.9, 1.95]))
    for i, level in enumerate(LEVELS):
        assert here.ttft_within(level) == pytest.approx(np.asarray(here.ttft_at[:, i]), rel=1e-12)
    for share in (0.3, 0.7, 0.93, 0.97, 0.995, 0.9999):
        times = here.ttft_within(share)
        assert here.share_within(times) == pytest.approx(share * np.ones(3), rel=1e-9)
    assert here.share_within(jnp.asarray(-1.0)) == pytest.approx(np.zeros(3), abs=0)


def test_tails_beyond_the_last_percentile_are_the_exponential_ones_of_erlang():
    """Waits of M/M/m fall as exp(-(m mu - rate) t), at 0.999 and between 0.95 and 0.99."""
    servers, mu, rate = 4, 0.5, 1.8
    here = exponential_replica(servers, mu).at_rate(jnp.asarray(rate))
    # one percent is what the table's linear reading between its loads adds
    for level in (0.97, 0.999):
        exact = 0.1 + wait_at(level, rate, mu, servers)
        assert float(here.ttft_within(level)) == pytest.approx(exact, rel=0.01)


def test_the_rate_within_limits_is_the_largest_that_keeps_them():
    replica = exponential_replica()
    for ttft, tpot, goodput in ((3.0, 1.0, 0.99), (30.0, 0.031, 0.9), (2.0, 0.05, 0.97)):
        limits = ServiceLimits.of(ttft=ttft, tpot=tpot, goodput=goodput)
        within = float(replica.rate_within(limits))
        tried = np.linspace(0.0, FULLEST * 2.0, 20_001)
        every = replica.at_rate(jnp.asarray(tried))
        keeps = np.asarray((every.ttft_within(goodput) <= ttft) & (every.tpot <= tpot))
        assert within == pytest.approx(tried[keeps].max(), abs=2e-4)
    assert float(replica.rate_within(ServiceLimits.of(ttft=0.01))) == 0.0  # an idle one breaks it


def test_the_staffing_of_erlang_c_is_found():
    """Servers for 90 % within 1.5 s at a rate, by the closed form: one replica is four of them."""
    replica = exponential_replica(servers=4, mu=0.5)
    limits = ServiceLimits.of(ttft=0.1 + 1.5, tpot=1.0, goodput=0.9)
    rate = float(replica.rate_within(limits))
    # bisection in closed form
    low, high = 0.1, 1.999
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if wait_at(0.9, middle, 0.5, 4) <= 1.5 else (low, middle)
    assert rate == pytest.approx(low, rel=2e-3)  # the table is linear between its loads


def test_good_requests_are_none_beyond_the_limit_of_tpot():
    here, limits = (
        exponential_replica().at_rate(jnp.asarray(1.0)),
        ServiceLimits.of(ttft=1.0, tpot=0.02),
    )
    assert float(share_good(here, limits)) == 0.0
    kept = limits.with_(tpot=0.05)
    assert float(share_good(here, kept)) == float(here.share_within(jnp.asarray(1.0)))
    soft = [float(share_good(here, kept, smoothing=jnp.asarray(x))) for x in (0.1, 0.02)]
    assert soft[0] < soft[1] < float(share_good(here, kept)) < soft[1] * 1.0001


def replica_leaves(held, coming, limit):
    """A number of each reading, for gradients."""
    replica = exponential_replica()._replace(prompts=jnp.asarray(5.0))
    coming, seconds = 0.1 * held + 15.0 * coming, jnp.asarray(15.0)
    running, queue = replica.step(held * replica.stages, coming, seconds).admit(coming)
    after = jnp.sum(running) + queue
    here, waits = replica.at(after), limit * jnp.array([0.05, 0.2])
    good = here.share_within(limit, waits) + here.ttft_within(0.995) + here.waiting
    return good + replica.rate_within(ServiceLimits.of().replace(ttft=limit)) + after


def test_gradients_agree_and_stay_finite_at_the_ends_of_the_table():
    agree_at(replica_leaves, *(numbers(*x) for x in ((2.0, 1.1, 3.0), (40.0, 2.5, 2.0))))
    edge = float(exponential_replica().service.running[-1])
    points = ((0.0, 0.0, 2.0), (edge, 0.0, 2.0), (edge, 2.0, 1e-3), (1e5, 0.0, 0.0))
    finite_at(replica_leaves, *(numbers(*x) for x in points))


class Answer:
    """Estimates at several rates of an instance of two chips."""

    def __init__(self, rate):
        ones = jnp.ones_like(rate)
        self.latency, self.ttft, self.tpot, self.chips = 2.0 + rate, ones, 0.1 * ones, 2.0 * ones
        self.percentiles = {f"p{100 * x:g}": (1.0 + x) * ones for x in LEVELS}
        self.power = 300.0 * ones
        terms = {"queue": 0.1 * rate, "other prefills": 0.2 * rate}
        self.prefill: Any = type("Phase", (), {"terms": terms})
        limit = type("Limit", (), {"capacity": 8.0 * ones})
        self.decode = type("Phase", (), {"limits": {"arrivals": limit}})


jax.tree_util.register_pytree_node(
    Answer,
    lambda x: (
        ((x.latency, x.ttft, x.tpot, x.chips, x.power), x.percentiles, x.prefill.terms),
        x.decode,
    ),
    lambda aux, leaves: _rebuilt(aux, leaves),
)


def _rebuilt(decode, leaves):
    answer = object.__new__(Answer)
    (answer.latency, answer.ttft, answer.tpot, answer.chips, answer.power), answer.percentiles = (
        leaves[:2]
    )
    answer.prefill, answer.decode = type("Phase", (), {"terms": leaves[2]}), decode
    return answer


def test_a_table_is_the_estimates_from_idle_to_nearly_full():
    """Little's law gives requests in flight and waiting; the rent is that of two chips."""
    hardware: Any = type("Hardware", (), {"price": 3.0})()
    asked = []
    answer: Any = Answer

    def estimate(rate, variability):
        asked.append((rate, variability))
        return answer(rate)

    replica = tabulate(estimate, hardware, 2.0)
    assert len(asked) == 1 + len(COPIES) and all(len(x) == POINTS for x, _ in asked)
    assert float(asked[0][0][0]) == IDLE and np.all(np.asarray(asked[1][1]) == 2.0)
    service, rate = replica.service, np.asarray(replica.service.rate)
    assert rate[0] == 0.0 and rate[-1] == pytest.approx(FULLEST * 8.0)
    assert np.all(np.diff(rate) > 0)
    assert service.in_flight == pytest.approx(rate * (2.0 + rate), rel=1e-6)
    assert service.waiting == pytest.approx(rate * 0.3 * rate, abs=1e-6)
    assert float(replica.usd_per_hour) == 6.0
    assert service.power == pytest.approx(600.0 * np.ones(POINTS))
    assert service.ttft_at.shape == (POINTS, len(LEVELS))


def test_a_service_between_numbers_of_copies_is_linear_in_their_inverse():
    """Of tables whose TTFT is 1, 3 and 7 times one's: 3/4 and 1/2 of the way by 1 / copies."""
    one = exponential_replica()
    levels = jax.tree.map(lambda x: jnp.stack([x, x, x]), one.service)
    factors = jnp.asarray([1.0, 3.0, 7.0])
    levels = levels._replace(ttft=levels.ttft * factors[:, None])
    copies = jnp.asarray([1.0, 2.0, jnp.inf])
    many = Replica(levels, copies, one.capacity, one.usd_per_hour, one.prompts, one.stages)
    held = jnp.asarray(3.0)
    alone = float(one.at(held).ttft)
    for copies, factor in (
        (0.5, 1.0),
        (1.0, 1.0),
        (4 / 3, 2.0),
        (2.0, 3.0),
        (4.0, 5.0),
        (1e9, 7.0),
    ):
        assert float(many.at(held, copies).ttft) == pytest.approx(alone * factor, rel=1e-6)
        assert float(many.at(held, copies).tpot) == pytest.approx(float(one.at(held).tpot))
    each = float(one.rate_within(LIMITS))
    assert many.rate_within(LIMITS, jnp.asarray([1.0, 3.0])) == pytest.approx([each, each])


def test_arrivals_at_a_copy_are_all_arrivals_of_one_and_more_even_at_many():
    """2 of one; of very many 1.3 - 0.45 - 0.2 at half a load, a fiftieth of the time in prefill."""
    law = routed_variability
    assert float(law(2.0, 1.0, 0.5, 0.02)) == 2.0
    many = [float(law(*map(jnp.asarray, (2.0, n, 0.5, 0.02)))) for n in (1.0, 2.0, 4.0, 1e9)]
    assert np.all(np.diff(many) < 0) and many[-1] == pytest.approx(0.65)
    assert float(law(2.0, jnp.inf, 0.5, 0.02)) == pytest.approx(0.65)
    assert law(1.0, 4.0, 0.9, 0.2) == 0.25  # not less than of a router that goes round
    agree_at(law, *(numbers(*x) for x in ((2.0, 3.0, 0.4, 0.01), (1.0, 1.0, 0.0, 0.5))))
    finite_at(law, numbers(0.0, jnp.inf, 1.0, 0.0), numbers(1.0, 2.0, 1.0, 0.04))


def test_stages_have_the_variation_that_is_asked_for_within_what_they_can():
    for asked, exact in ((0.0, 0.25), (0.25, 0.25), (0.4, 0.4), (0.9, 0.9), (1.0, 1.0), (3.0, 1.0)):
        shares = stages_of(asked)
        assert shares.sum() == pytest.approx(1.0) and np.all(shares > 0.0)
        assert np.sum(shares**2) == pytest.approx(exact, rel=1e-6)


def test_the_open_loop_of_the_house_is_erlangs_where_its_requests_are_exponential():
    """Four slots, steps of one length whoever runs, and outputs of variation 1: M/M/4."""
    step, slots, mean = 0.05, 4, 41.0
    # two lengths that have the first two moments of an exponential one
    chances, outputs = np.array([0.8, 0.2]), mean * np.array([0.5, 3.0])
    assert chances @ outputs == mean and chances @ (outputs / mean - 1.0) ** 2 == 1.0
    kinds = scheduling.Kinds(*map(jnp.asarray, (chances, np.ones(2), np.zeros(2), outputs)))
    sizes = (jnp.asarray(x) for x in (1e6, float(slots), 1e12))
    server = scheduling.ServerLimits(*sizes, phase=0.0)

    def law(decoding, prompts, new, cached):
        return step + 0.0 * (decoding + prompts + new + cached)

    mu = 1.0 / (step * mean)
    rates = np.array([0.5, 0.8, 0.95]) * slots * mu
    found = jax.jit(jax.vmap(lambda rate: scheduling.open_loop(law, kinds, server, rate)))(rates)
    exact = [erlang_c(r / mu, slots) / (slots * mu - r) for r in rates]
    assert found.capacity == pytest.approx(slots * mu * np.ones(3), rel=1e-6)
    assert found.slot_wait == pytest.approx(np.array(exact), rel=0.02), (found.slot_wait, exact)
