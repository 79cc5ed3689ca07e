"""Collectives and the fastest instance against a plain loop, a search, and points by hand."""

import math
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from infer_jax.physics.network import collectives
from infer_jax.physics.network.collectives import Link, fastest_instance
from infer_jax.physics.pareto import frontier_rows

from .derivatives import agree_at, finite_at

pytestmark = pytest.mark.usefixtures("x64")

PROTOCOLS = collectives.nccl_protocols()
LINK = Link.of(intra=200e9, inter=25e9)
MICRO = 1e-6
# latency inside a node, between nodes, launch (us); share of bandwidth: NCCL's tuning table
TABLE = {"LL": (0.6, 5.0, 6.8, 0.5), "LL128": (1.25, 8.5, 14.0, 0.95), "Simple": (28, 28, 0, 1)}


@jax.jit
def _tree(ranks, nodes, size, link):
    law = collectives.nccl_tree
    return tuple(law(ranks, nodes, size, link, PROTOCOLS, reduces=r) for r in (True, False))


def tree(ranks, nodes, size, *, reduces, link=LINK) -> float:
    """Seconds as a Python float."""
    return float(_tree(ranks, nodes, size, link)[0 if reduces else 1])


def ring(ranks, size, bandwidth, *, reduces) -> float:
    """Seconds as a Python float, hops of 1 us."""
    given = (jnp.asarray(x) for x in (ranks, size, bandwidth, MICRO))
    return float(collectives.torus_ring(*given, reduces=reduces))


def by_loop(ranks, nodes, size, *, reduces, intra=200e9, inter=25e9) -> float:
    """The same from the paper's words, one protocol after the other, in Python floats."""
    if ranks <= 1:
        return 0.0
    times = []
    for hop, jump, launch, share in TABLE.values():
        once = (ranks / nodes - 1) * hop + math.log2(nodes) * jump
        waits = (launch + (2 if reduces else 1) * once) * MICRO
        local = size * nodes / ranks * max(ranks / nodes - 1, 0) / (intra * share)
        remote = size * (nodes - 1) / ranks / (inter * share)
        moves = max(local, remote)
        times.append(waits + (moves if reduces else moves / 2))
    return min(times)


@given(st.floats(1.0, 4096), st.floats(1.0, 64), st.floats(0, 1e10), st.booleans())
def test_tree_equals_the_loop(group, nodes, size, reduces):
    ranks = group * nodes
    expected = by_loop(ranks, nodes, size, reduces=reduces)
    assert tree(ranks, nodes, size, reduces=reduces) == pytest.approx(expected, rel=1e-12)


def test_one_rank_takes_no_time():
    for ranks in (0.5, 1.0):
        assert [tree(ranks, 1.0, 1e9, reduces=x) for x in (True, False)] == [0.0, 0.0]
        assert ring(ranks, 1e9, 1e9, reduces=True) == 0.0


def test_gradients_and_bad_points():
    for reduces in (True, False):

        def law(ranks, nodes, size, link, protocols, reduces=reduces):
            return 1e6 * collectives.nccl_tree(ranks, nodes, size, link, protocols, reduces=reduces)

        def around(*given, reduces=reduces):
            return collectives.torus_ring(*given, reduces=reduces)

        points = product((1.1, 3.1), (1e3, 1e8))
        agree_at(law, *((11.3, nodes, size, LINK, PROTOCOLS) for nodes, size in points))
        bad = (1.0, 1.0, 0.0), (8.0, 8.0, 1e6), (2.0, 1.0, 0.0)
        finite_at(law, *((*point, LINK, PROTOCOLS) for point in bad))
        agree_at(around, (5.5, 1e6, 1e9, 1e-6))
        finite_at(around, (1.0, 0.0, 1e9, 1e-6))


def test_ring_by_hand():
    # five chips, 10 GB at 2 GB/s: twice 4 hops of 1 us and 4/5 of 5 s; half of the rest else
    assert ring(5.0, 1e10, 2e9, reduces=True) == 8e-6 + 4.0
    assert ring(5.0, 1e10, 2e9, reduces=False) == 4e-6 + 2.0


def test_square_root_latency():
    law = collectives.square_root_latency
    assert float(law(jnp.asarray(16.0), jnp.asarray(2e-6), jnp.asarray(6e-6))) == pytest.approx(
        12e-6
    )
    assert float(law(jnp.asarray(0.25), jnp.asarray(2e-6), jnp.asarray(6e-6))) == 6e-6
    agree_at(law, (16.0, 2e-6, 6e-6))
    finite_at(law, *((chips, 2e-6, 6e-6) for chips in (0.0, 1.0)))


def test_an_absent_tier_is_never_zero_times_infinity():
    def alone(inter):
        link = Link(intra=jnp.asarray(1e11), inter=inter)
        size = jnp.asarray(1e6)
        four, one, protocols = jnp.asarray(4.0), jnp.asarray(1.0), collectives.nccl_protocols()
        return collectives.nccl_tree(four, one, size, link, protocols, reduces=True)

    value, slope = jax.value_and_grad(alone)(jnp.asarray(0.0))
    assert value == alone(jnp.asarray(1e10)) and slope == 0.0


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
