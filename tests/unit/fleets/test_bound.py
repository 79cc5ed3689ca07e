"""The cheapest replicas of several pools: by hand, by brute force, and their slopes."""

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.fleets import Lifecycle, base_and_burst, by_hour, cheapest, in_time, mixes
from tests.unit.fleets.toys import LIMITS, exponential_replica
from tests.unit.physics.derivatives import agree_at, finite_at, numbers


def test_the_cheapest_replicas_of_one_pool_and_schedules_by_hand():
    """1.5 requests/s of a replica within limits: 1, 2 and 4 for 0, 2.9 and 5.9."""
    replica = exponential_replica()
    limits = LIMITS.with_(ttft=1e3, tpot=0.01 + 0.03 * 0.75)
    each = np.asarray(replica.planned_rate(limits))[None]
    assert each == pytest.approx([1.5], rel=1e-9)
    spot = Lifecycle.of(departures=15.0, start_delay=120.0)  # serves 2/3 of the time
    rates = np.array([0.0, 2.9, 5.9])
    for share, expected in ((1.0, [1, 2, 4]), (float(spot.serving), [1, 3, 6])):
        found = mixes(each * share, np.ones(1), np.array([np.inf]), 5.9)
        replicas = cheapest(jnp.asarray(rates), jnp.asarray(each * share), jnp.asarray(found))
        assert replicas[:, 0].tolist() == expected
    needed = jnp.asarray([1.0, 5.0, 2.0, 3.0, 4.0])
    assert by_hour(needed, 2).tolist() == [4.0, 5.0, 4.0, 5.0, 4.0]
    assert in_time(needed[:2], 3, 2).tolist() == [1.0, 5.0, 5.0, 5.0, 5.0, 5.0]


def random_pools(draw):
    """Requests/s and rents of replicas of some pools, how many there are, and a rate they serve."""
    count = draw.integers(1, 4)
    each, prices = draw.uniform(0.5, 5.0, count), draw.uniform(0.5, 4.0, count)
    most = draw.integers(1, 6, count).astype(float)
    return each, prices, most, float(draw.uniform(0.2, 1.0) * (most @ each))


def test_no_mix_of_replicas_that_serves_a_rate_costs_less():
    """Every number of replicas of each pool, by brute force, in 60 random cases."""
    for seed in range(60):
        draw = np.random.default_rng(seed)
        each, prices, most, rate = random_pools(draw)
        every = np.stack(np.meshgrid(*(np.arange(n + 1) for n in most), indexing="ij"), -1)
        every = every.reshape(-1, len(each))
        every = every[every.sum(axis=1) > 0]
        rates = np.r_[0.0, draw.uniform(0.0, rate, 20), rate]
        found = mixes(each, prices, most, rate)
        chosen = np.asarray(cheapest(*map(jnp.asarray, (rates, each, found))))
        assert np.all(chosen @ each >= rates) and np.all(chosen <= most)
        for x, mix in zip(rates, chosen, strict=True):
            least = min(y @ prices for y in every if y @ each >= x)
            assert mix @ prices == pytest.approx(least, rel=1e-12)


def test_the_base_below_a_pool_that_is_scaled_is_the_cheapest():
    for seed in range(20):
        draw = np.random.default_rng(seed)
        each, prices, most, rate = random_pools(draw)
        rates = draw.uniform(0.0, rate, 40)
        base, scaled = base_and_burst(rates, each, prices, most)
        costs = {}
        for at in range(len(each)):
            for other in range(len(each)):
                for count in range(int(most[other]) + 1 if other != at else 1):
                    rest = [max(int(np.ceil((x - count * each[other]) / each[at])), 1)
                            for x in rates]  # fmt: skip
                    if max(rest) <= most[at]:
                        usd = count * prices[other] + np.mean(rest) * prices[at]
                        costs[at, other if count else at, count] = usd
        if scaled < 0:
            assert not costs
            continue
        other = int(np.argmax(base)) if base.any() else scaled
        assert costs[scaled, other, int(base.max())] == pytest.approx(min(costs.values()))


def mix_cost(first, second, level):
    """Dollars and replicas of real mixes of two pools at some rates."""
    each = jnp.stack([first, second])
    found = jnp.asarray([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [2.0, 0.0], [2.0, 1.0]])
    rates = level * jnp.asarray([0.0, 0.31, 0.77, 1.13, 1.5])
    replicas = cheapest(rates, each, found, smoothing=jnp.ones_like(level))
    return jnp.sum(replicas @ jnp.asarray([3.0, 1.1]))


def test_smooth_mixes_have_slopes_and_are_exact_as_their_steps_narrow():
    agree_at(mix_cost, *(numbers(*x) for x in ((3.1, 0.9, 4.0), (2.2, 0.7, 2.9))))
    finite_at(mix_cost, *(numbers(*x) for x in ((3.0, 1.0, 0.0), (3.0, 1.0, 3.0), (2.0, 2.0, 9.0))))
    found = jnp.asarray([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    each, rates = jnp.asarray([3.0, 1.0]), jnp.asarray([0.4, 1.5, 3.0, 3.7])
    exact = cheapest(rates, each, found)
    assert exact.tolist() == [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    near = cheapest(rates, each, found, smoothing=jnp.asarray(1e-3))
    assert near == pytest.approx(np.asarray(exact), abs=1e-9)
    assert cheapest(rates[3:], each, found, smoothing=jnp.asarray(1.0))[0].tolist() == (
        pytest.approx([1.0, 0.7])
    )
