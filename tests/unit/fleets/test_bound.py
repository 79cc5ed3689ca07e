"""The cheapest replicas of several pools: by hand, by brute force, and their slopes."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.fleets import (
    Lifecycle,
    Supply,
    base_and_burst,
    by_hour,
    cheapest,
    in_time,
    mixes,
    reserve,
)
from tests.unit.fleets.toys import LIMITS, exponential_replica
from tests.unit.physics.derivatives import agree_at, finite_at, numbers


def test_the_cheapest_replicas_of_one_pool_and_schedules_by_hand():
    """1.5 requests/s of a replica within limits: 1, 2 and 4 for 0, 2.9 and 5.9."""
    replica = exponential_replica()
    limits = LIMITS.with_(ttft=1e3, tpot=0.01 + 0.03 * 0.75)
    each, one = np.asarray(replica.planned_rate(limits))[None, None], np.ones(1)
    assert each == pytest.approx(np.full((1, 1), 1.5), rel=1e-9)
    spot = Lifecycle.of(departures=15.0, start_delay=120.0)  # serves 2/3 of the time
    rates = np.array([0.0, 2.9, 5.9])
    for share, expected in ((1.0, [1, 2, 4]), (float(spot.serving), [1, 3, 6])):
        supply = Supply(each * share, one, one, one, one, np.array([np.inf]))
        found = mixes(supply, 5.9)
        replicas = cheapest(*map(jnp.asarray, (rates, supply.serve(found), found)))
        assert replicas[:, 0].tolist() == expected
    needed = jnp.asarray([1.0, 5.0, 2.0, 3.0, 4.0])
    assert by_hour(needed, 2).tolist() == [4.0, 5.0, 4.0, 5.0, 4.0]
    assert in_time(needed[:2], 3, 2).tolist() == [1.0, 5.0, 5.0, 5.0, 5.0, 5.0]


def test_replicas_that_share_arrivals_serve_more_each():
    """One serves 1 request/s, two 1.5 each, very many 2: by hand, linear in 1 / copies."""
    each, copies, one = np.array([[1.0], [2.0]]), np.array([1.0, np.inf]), np.ones(1)
    supply = Supply(each, copies, one, one, one, np.array([np.inf]))
    assert supply.serve(np.array([[1.0], [2.0], [4.0]])) == pytest.approx([1.0, 3.0, 7.0])
    found = mixes(supply, 7.0)
    replicas = cheapest(*map(jnp.asarray, (np.array([1.1, 3.0, 6.9]), supply.serve(found), found)))
    assert replicas[:, 0].tolist() == [2, 2, 4]


def random_supply(draw):
    """Pools of one to three systems, every mix of which there are the GPUs, and a rate of one."""
    count = draw.integers(1, 4)
    each, systems = draw.uniform(0.5, 5.0, count), draw.integers(0, 3, count)
    chips = draw.integers(1, 4, count).astype(float)
    prices, gpus = draw.uniform(0.5, 4.0, 3)[systems] * chips, draw.integers(3, 9, 3) * 1.0
    every = np.stack(np.meshgrid(*(np.arange(9.0) for _ in each), indexing="ij"), -1)
    every = every.reshape(-1, count)[1:]
    used = every @ (chips[:, None] * (systems[:, None] == np.arange(3)))
    every = every[np.all(used <= gpus, axis=1)]
    rate = float(draw.uniform(0.2, 1.0) * (every @ each).max())
    return Supply(each[None], np.ones(1), prices, chips, systems, gpus[systems]), every, rate


def test_no_mix_of_replicas_that_serves_a_rate_costs_less():
    """Every number of replicas for which there are GPUs, by brute force, in 60 random cases."""
    for seed in range(60):
        draw = np.random.default_rng(seed)
        supply, every, rate = random_supply(draw)
        rates = np.r_[0.0, draw.uniform(0.0, rate, 20), rate]
        found = mixes(supply, rate)
        chosen = np.asarray(cheapest(*map(jnp.asarray, (rates, supply.serve(found), found))))
        assert np.all(supply.serve(chosen) >= rates)
        assert {*map(tuple, chosen.tolist())} <= {*map(tuple, every.tolist())}
        for x, mix in zip(rates, chosen, strict=True):
            least = min(y @ supply.prices for y in every if supply.serve(y) >= x)
            assert mix @ supply.prices == pytest.approx(least, rel=1e-12)


def test_layouts_of_a_system_have_its_gpus_between_them():
    """Replicas of 2 and of 4 GPUs, of which there are 8: four small ones, two large, or a mix."""
    each, rest = [[1.0, 1.9]], ([2.0, 4.0], [2.0, 4.0], ["a", "a"], [8.0, 8.0])
    two = Supply(*map(np.array, (each, [1.0], *rest)))
    assert mixes(two, 99.0)[-1].tolist() == [4, 0]
    assert mixes(two._replace(each=np.array([[1.0, 2.1]])), 99.0)[-1].tolist() == [0, 2]
    assert two.room(np.array([1.0, 0.0])).tolist() == [3, 1]
    base, scaled = base_and_burst(np.array([0.5, 3.9]), two)
    more = np.ceil((3.9 - base @ two.each[0]) / two.each[0, scaled])
    assert base @ two.chips + more * two.chips[scaled] <= 8


def test_the_base_below_a_pool_that_is_scaled_is_the_cheapest():
    """Every number of one pool and the other as large as the rates need, by brute force."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        supply, every, rate = random_supply(draw)
        rates, there = draw.uniform(0.0, rate, 40), {*map(tuple, every.tolist())}
        base, scaled = base_and_burst(rates, supply)
        costs, each = {}, supply.each[0]
        pools = np.eye(len(each))
        for at, other in np.ndindex(len(pools), len(pools)):
            for count in range(9) if at != other else [0]:
                always = count * pools[other]
                lack = (rates - always @ each) / each[at]
                rest = np.array([max(math.ceil(x), 1) for x in lack])
                if (*(always + rest.max() * pools[at]),) in there:
                    usd = always @ supply.prices + rest.mean() * supply.prices[at]
                    costs[at, (*always,)] = usd
        if scaled < 0:
            assert not costs
        else:
            assert costs[scaled, (*base,)] == pytest.approx(min(costs.values()))


def mix_cost(first, second, level):
    """Dollars and replicas of real mixes of two pools at some rates."""
    each = jnp.stack([first, second])
    found = jnp.asarray([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [2.0, 0.0], [2.0, 1.0]])
    rates = level * jnp.asarray([0.0, 0.31, 0.77, 1.13, 1.5])
    replicas = cheapest(rates, found @ each, found, smoothing=jnp.ones_like(level))
    return jnp.sum(replicas @ jnp.asarray([3.0, 1.1]))


def test_smooth_mixes_have_slopes_and_are_exact_as_their_steps_narrow():
    agree_at(mix_cost, *(numbers(*x) for x in ((3.1, 0.9, 4.0), (2.2, 0.7, 2.9))))
    finite_at(mix_cost, *(numbers(*x) for x in ((3.0, 1.0, 0.0), (3.0, 1.0, 3.0), (2.0, 2.0, 9.0))))
    found = jnp.asarray([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    each, rates = jnp.asarray([3.0, 1.0]), jnp.asarray([0.4, 1.5, 3.0, 3.7])
    exact = cheapest(rates, found @ each, found)
    assert exact.tolist() == [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    near = cheapest(rates, found @ each, found, smoothing=jnp.asarray(1e-3))
    assert near == pytest.approx(np.asarray(exact), abs=1e-9)
    assert cheapest(rates[3:], found @ each, found, smoothing=jnp.asarray(1.0))[0].tolist() == (
        pytest.approx([1.0, 0.7])
    )


def test_as_many_are_reserved_as_are_cheapest():
    """Every number of reserved replicas, by brute force."""
    draw = np.random.default_rng(1)
    used = draw.integers(1, 20, 168).astype(float)
    for price in (0.3, 0.55, 0.8, 1.0):
        count, cost = map(float, reserve(jnp.asarray(used), jnp.asarray(price)))
        costs = [price * k + np.maximum(used - k, 0.0).mean() for k in range(22)]
        paid = price * count + np.maximum(used - count, 0).mean()
        assert paid == pytest.approx(min(costs), rel=1e-12)
        assert cost == pytest.approx(min(costs), rel=1e-12)
    # a kind of which there are never any costs nothing, reserved or not, beside one of which 3 are
    count, cost = reserve(jnp.tile(jnp.array([0.0, 3.0]), (9, 1)), 0.6)
    assert count.tolist() == [0.0, 3.0] and cost.tolist() == [0.0, pytest.approx(1.8)]
