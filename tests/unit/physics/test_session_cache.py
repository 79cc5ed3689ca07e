"""Where conversations find their cache: beside a simulation of least recently used tiers."""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from infer_jax.physics.scheduling.prefix_cache import conversation, hits
from infer_jax.physics.scheduling.session_cache import (
    Turns,
    break_even_bandwidth,
    break_even_gap,
    tier_hits,
)

LEVELS = jnp.linspace(0.0, 1.0, 11)
jitted_hits = jax.jit(tier_hits)


def turns(rate=0.5, count=4.0, gaps=(5.0, 600.0), branches=0.0, depth=None):
    times = jnp.geomspace(gaps[0], gaps[1], len(LEVELS))
    deep = count - 1.0 if depth is None else depth
    numbers = (jnp.asarray(x) for x in (rate, count, 1000.0, 200.0, 300.0, deep))
    return Turns(*numbers, LEVELS, times, jnp.asarray(branches))  # pyright: ignore[reportCallIssue]


def simulated(kind, rooms, seed=0, sessions=6000):
    """Shares of returning turns that find their context in each tier, by a list of what is kept."""
    random = np.random.default_rng(seed)
    events = []
    for number, begins in enumerate(np.cumsum(random.exponential(1 / float(kind.rate), sessions))):
        count = random.geometric(1 / float(kind.count))
        count = count if kind.depth == kind.count - 1 else int(kind.count)
        gaps = np.exp(np.interp(random.random(count - 1), kind.levels, np.log(kind.gaps)))
        for k, time in enumerate(begins + np.concatenate([[0.0], np.cumsum(gaps)])):
            events.append((time, number, 1300.0 + 500.0 * k, k > 0))
            for i in range(int(kind.branches)):  # what they add, which nobody uses again
                events.append((time + 1e-6 * (i + 1), (number, k, i), 500.0, False))
    kept, found, returning = OrderedDict(), np.zeros(len(rooms)), 0
    warm = events[len(events) // 5][0]
    for time, number, size, follows in sorted(events, key=lambda x: x[0]):
        if follows and time > warm:
            returning += 1
            if number in kept:
                younger = 0.0  # what was used after it lies before it
                for other in reversed(kept):
                    younger += kept[other]
                    if other == number:
                        break
                tier = np.searchsorted(np.cumsum(rooms), younger)
                if tier < len(rooms):
                    found[tier] += 1
        kept.pop(number, None)
        kept[number] = size
        while sum(kept.values()) > sum(rooms):
            kept.popitem(last=False)
    return found / returning


@pytest.mark.parametrize(
    ("rooms", "branches", "depth"),
    [
        ((1.5e5, 1.5e5), 0.0, None),
        ((4e4, 3e5), 0.0, None),
        ((1.5e5, 1.5e5), 3.0, None),
        ((1.5e5, 1.5e5), 0.0, 1.5),  # four turns each
    ],
)
def test_turns_find_what_a_simulation_of_the_tiers_finds(rooms, branches, depth):
    kind = turns(branches=branches, depth=depth)
    law = tier_hits(kind, jnp.array(rooms)).turns
    np.testing.assert_allclose(law, simulated(kind, rooms, sessions=2500), atol=0.03)


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.floats(0.01, 5.0), st.floats(1.0, 20.0), st.floats(1e3, 1e7))
def test_more_room_finds_more_and_all_of_it_everything(rate, count, room):
    kind = turns(rate, count)
    some, more, every = (jitted_hits(kind, jnp.array([x])) for x in (room, 2 * room, 1e15))
    assert float(some.turns[0]) <= float(more.turns[0]) + 1e-9
    assert float(every.turns[0]) == pytest.approx(1.0)
    again = float((1.0 - 1.0 / kind.count) * kind.left)
    assert float(every.tokens[0]) == pytest.approx(again, rel=1e-6)


def test_gaps_of_one_length_are_those_of_the_law_of_exponential_gaps_where_all_is_kept():
    # two turns of a hundred conversations a second, all kept: both laws find every token
    kind = turns(1.0, 1.5)
    chain = conversation(jnp.asarray(1.0), 2, *map(jnp.asarray, (1000.0, 300.0, 60.0)))
    assert float(hits(chain, jnp.asarray(1e12)).device) == pytest.approx(1300.0, rel=1e-6)
    assert float(tier_hits(kind, jnp.array([1e12])).turns.sum()) == pytest.approx(1.0)


@pytest.mark.usefixtures("x64")
def test_by_hand():
    """Gaps of 100 s exactly, two turns in the mean, 2 conversations a second."""
    kind = turns(2.0, 2.0, (100.0, 100.0))
    # a second: 2 (2 (1000 + 300) + 2 (200 + 300)) tokens are left; half of them are used again
    assert float(kind.left) == 7200.0 and float(kind.context) == 1800.0
    # 2 (1000 + 200) new ones, and half of what is left
    assert float(kind.prompts) == 2400.0 + 3600.0
    # kept for 50 s nothing is found: 7200 x 50 tokens; 100 s and more find all
    assert float(tier_hits(kind, jnp.array([7200.0 * 50])).stays[0]) == pytest.approx(50.0)
    assert float(tier_hits(kind, jnp.array([7200.0 * 50])).turns[0]) == 0.0
    assert float(tier_hits(kind, jnp.array([7200.0 * 101])).turns[0]) == 1.0
    # 100,000 bytes a token x 1,000 tokens in 0.05 s; 0.01 USD to compute, 1e-12 USD a byte-second
    assert float(break_even_bandwidth(*map(jnp.asarray, (1e5, 1e3, 0.05)))) == pytest.approx(2e9)
    gap = break_even_gap(*map(jnp.asarray, (0.01, 1e3, 1e5, 1e-12)))
    assert float(gap) == pytest.approx(100.0)


@pytest.mark.usefixtures("x64")
def test_turns_of_one_number_by_hand():
    """Four turns each: prompts of 1000, 1500, 2000 and 2500, and answers of 300."""
    kind = turns(2.0, 4.0, (100.0, 100.0), depth=1.5)
    assert float(kind.left) == 2 * (7000.0 + 4 * 300.0)
    # the first three are followed
    assert float(kind.context) == 1800.0 and float(kind.followed) == 2 * 3 * 1800.0
    assert float(kind.prompts) == pytest.approx(2 * 7000.0)
    # kept for 50 s nothing is found; for 101 s all that is followed, and the last one of each lies
    hits = tier_hits(kind, jnp.array([2 * 8200.0 * 50, 1e9]))
    assert float(hits.stays[0]) == pytest.approx(50.0) and float(hits.turns[0]) == 0.0
    assert float(hits.tokens[1]) == pytest.approx(2 * 3 * 1800.0)
    one = turns(2.0, 1.0, (100.0, 100.0), depth=0.0)
    slope = jax.grad(lambda x: one._replace(count=x).context)(1.0)
    assert float(one.context) == 1300.0 and np.isfinite(slope)


@pytest.mark.usefixtures("x64")
def test_branches_by_hand():
    """As above, and every turn forks 3 requests that add 200 + 300 tokens to all that was said."""
    kind = turns(2.0, 2.0, (100.0, 100.0), branches=3.0)
    assert float(kind.left) == 7200.0 and float(kind.context) == 1800.0
    # 2 x 2 turns a second x 3 branches of 500 tokens
    assert float(kind.forked) == 6000.0
    # new are 2 x 1,000, of 2 turns and 12 branches 200 each; 12 branches begin with 1,800
    assert float(kind.prompts) == 2000.0 + 14 * 200.0 + 3600.0 + 12 * 1800.0
    # kept for 50 s nothing returns, and branches find what they share
    hits = tier_hits(kind, jnp.array([13_200.0 * 50]))
    assert float(hits.stays[0]) == pytest.approx(50.0)
    assert float(hits.turns[0]) == 0.0 and float(hits.tokens[0]) == pytest.approx(12 * 1800.0)
    slope = jax.grad(lambda b: tier_hits(kind._replace(branches=b), jnp.array([1e5])).stays[0])(0.0)
    assert float(slope) == pytest.approx(-1e5 / 7200.0 * 2000.0 / 7200.0, rel=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "point", [(0.5, 4.0, 1e5), (0.5, 1.0, 1e5), (1e-6, 4.0, 1e5), (0.5, 4.0, 1.0)]
)
def test_slopes_at_ordinary_points_at_one_turn_no_traffic_and_no_room(point):
    def found(rate, count, room):
        kind = turns()._replace(rate=rate, count=count, depth=count - 1.0)
        return tier_hits(kind, jnp.stack([room, room])).tokens[1]

    slopes = jax.grad(found, argnums=(0, 1, 2))(*map(jnp.asarray, point))
    assert all(bool(jnp.isfinite(x)) for x in slopes)
    for i, slope in enumerate(slopes):
        if point == (0.5, 1.0, 1e5) and i == 1:
            continue  # fewer turns than one are none
        step = 1e-5 * point[i]
        ends = [
            float(found(*map(jnp.asarray, (x + s * step * (j == i) for j, x in enumerate(point)))))
            for s in (1, -1)
        ]
        assert float(slope) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=2e-3, abs=1e-6)
