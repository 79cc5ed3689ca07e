"""The fastest instance in closed form against a search; a frontier against all pairs of rows."""

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

from infer_jax.physics.network.collectives import fastest_instance
from infer_jax.physics.pareto import frontier_rows

from .derivatives import agree_at, finite_at

pytestmark = pytest.mark.usefixtures("x64")

fastest = jax.jit(fastest_instance)


@given(st.floats(1e-6, 1e-1), st.floats(1e-6, 1e2))
def test_it_is_the_minimum(hops, read):
    chips = np.geomspace(1.0, 1e6, 20001)
    times = hops * (np.sqrt(chips) - 1.0) + read / chips
    best = fastest(hops, read)
    assert float(best.time) <= times.min() * (1 + 1e-12) + 1e-15
    assert float(best.time) == pytest.approx(times.min(), rel=1e-5)
    at = float(best.chips)
    assert float(best.time) == pytest.approx(hops * (np.sqrt(at) - 1.0) + read / at, rel=1e-9)


def test_by_hand():
    # hops (sqrt N - 1) + read / N at hops 1, read 4: N = 8^(2/3) = 4, time 1 + 1
    assert [float(x) for x in fastest(1.0, 4.0)] == pytest.approx([4.0, 2.0], rel=1e-12)
    # a read shorter than half a hop: one chip, which reads everything
    assert [float(x) for x in fastest(1.0, 0.4)] == [1.0, 0.4]


def test_value_and_slope_are_continuous_where_one_chip_is_best():
    below, above = (fastest(1.0, 0.5 * (1 + e)) for e in (-1e-9, 1e-9))
    assert float(below.time) == pytest.approx(float(above.time), rel=1e-8)
    slope = jax.grad(lambda h, r: fastest_instance(h, r).time, (0, 1))
    for at in (0.5 * (1 - 1e-9), 0.5, 0.5 * (1 + 1e-9)):
        np.testing.assert_allclose(slope(1.0, at), (0.0, 1.0), atol=1e-8)


def test_gradients_at_ordinary_points_ties_and_extremes():
    for name in ("time", "chips"):
        law = lambda h, r, name=name: getattr(fastest_instance(h, r), name)  # noqa: E731
        agree_at(law, (1.0, 4.0), (1e-3, 2.0), (1.0, 0.3))
    ends = (1.0, 0.5), (1e-6, 1e6), (1e6, 1e-6)
    finite_at(lambda h, r: sum(fastest_instance(h, r)), *ends)


@pytest.mark.parametrize("seed", range(20))
def test_the_rows_are_those_that_no_other_beats(seed):
    dice = np.random.default_rng(seed)
    first, second = dice.integers(0, 12, (2, dice.integers(1, 60))).astype(float)  # many ties
    no_worse = (first[:, None] <= first) & (second[:, None] <= second)
    better = (first[:, None] < first) | (second[:, None] < second)
    free = np.flatnonzero(~(no_worse & better).any(axis=0))
    answer = frontier_rows(first, second)
    assert (np.diff(first[answer]) > 0).all() and (np.diff(second[answer]) < 0).all()
    assert {(first[i], second[i]) for i in free} == {(first[i], second[i]) for i in answer}
    for i in answer:  # of equal rows the first
        assert i == np.flatnonzero((first == first[i]) & (second == second[i]))[0]


def test_no_rows_and_one():
    assert frontier_rows([], []).tolist() == []
    assert frontier_rows([np.inf], [1.0]).tolist() == [0]
