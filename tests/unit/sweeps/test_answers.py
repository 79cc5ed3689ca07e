"""Every reducer against brute force, whatever the chunk; constraints, groups, dependence."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.sweeps import (
    Axis,
    Best,
    Constraint,
    Everything,
    Histogram,
    Pareto,
    Quantiles,
    Space,
    TopK,
)
from tests.unit.sweeps.toy import Toy, arch, brute, hardware, plan, sweep, workload

TP, PP, BATCH = (1, 2, 4, 8), (1, 2, 3), tuple(range(1, 13))
BANDWIDTHS = (1.0, 2.0, 3.0)


def space(**more):
    return Space(
        arch(),
        [hardware(b, price=1 + b) for b in BANDWIDTHS],
        workload(batch=Axis.values(*BATCH), isl=Axis.values(1, 2, 3)),
        plan(tp=Axis.values(*TP), pp=Axis.values(*PP)),
        **more,
    )


@pytest.fixture(scope="module")
def table():
    """All points by hand, in float64, in the order of the index."""
    rows = []
    for h, b_isl in itertools.product(range(3), itertools.product((1, 2, 3), BATCH)):
        for tp, pp in itertools.product(TP, PP):
            isl, b = b_isl
            rate, price = BANDWIDTHS[h], 1 + BANDWIDTHS[h]
            tpot = (1 + abs(b - 5) + 7 / tp) / rate
            cost = tp * pp * price / (1 + (b * 3 + pp + isl) % 7)
            ok = b * 4 <= 40 * tp * pp
            rows.append((1 / tpot, cost, tp * pp, ((isl * 5 + tp) % 11) / 11, ok, h, tpot, b))
    return np.array(rows, float).T


def sweep_it(keep, chunk=256, precision="float64", **more):
    return sweep(Toy.of(), space(**more), keep, chunk=chunk, precision=precision)


def test_everything_is_every_point_in_order(table):
    result = sweep_it(Everything("speed", "cost"))
    np.testing.assert_allclose(result.columns["cost"], table[1][table[4] > 0], rtol=1e-12)
    assert result.index == np.flatnonzero(table[4]).tolist()


@pytest.mark.parametrize(("chunk", "precision"), [(8, "float64"), (2048, "float32")])
def test_frontier_of_two(table, chunk, precision):
    keys = np.stack([-table[0], table[1]])
    expected = brute(keys, table[4] > 0)
    assert sorted(sweep_it(Pareto("speed", "cost"), chunk, precision).index) == expected


def test_frontier_of_three_outgrows_its_capacity(table):
    keys = np.stack([-table[0], table[1], -table[3]])
    result = sweep_it(Pareto("speed", "cost", "max decode.mfu", capacity=4), 64)
    assert sorted(result.index) == brute(keys, table[4] > 0)
    assert len(result) > 4


def test_frontier_per_position(table):
    keys = np.stack([-table[0], table[1]])
    expected = brute(keys, table[4] > 0, table[5].astype(int))
    assert sorted(sweep_it(Pareto("speed", "cost", per="hardware")).index) == expected


def test_top_k_takes_the_lowest_index_of_ties_also_per_group(table):
    ok = np.flatnonzero(table[4])
    expected = sorted(ok, key=lambda i: (table[1][i], i))[:40]
    assert sweep_it(TopK(40, "cost"), 8).index == expected
    expected = []
    for h in range(3):
        ok = np.flatnonzero((table[4] > 0) & (table[5] == h))
        expected += sorted(ok, key=lambda i: (table[1][i], i))[:3]
    assert sweep_it(TopK(3, "cost", per="hardware"), 32).index == expected


def test_best_under_limits_and_the_near_misses(table):
    under = {"tpot": 3.0, "speed": 0.4}
    met = (table[4] > 0) & (table[6] <= 3.0) & (table[0] >= 0.4)
    expected = min(np.flatnonzero(met), key=lambda i: (table[1][i], i))
    actual = sweep_it(Best("cost", under=under))
    assert (actual.index, actual.met) == ([expected], True)
    result = sweep_it(Best("cost", under={"tpot": 0.01}, misses=3))
    memory = np.maximum(table[7] * 4 / (40 * table[2]) - 1, 0)
    excess = np.maximum(table[6] / 0.01 - 1, memory)
    assert result.index == np.lexsort((np.arange(len(excess)), excess))[:3].tolist()
    assert not result.met
    assert "tpot" in result.violated_limits(0) and "over 0.01 s" in result.violated_limits(0)


def test_histogram_and_quantiles(table):
    cost = table[1][table[4] > 0]
    edges = (0.5, 1.0, 2.0, 4.0)
    answer = sweep_it(Histogram("cost", edges), 128).answer
    expected = np.bincount(np.searchsorted(edges, cost, side="right"), minlength=5)
    assert answer is not None and answer["counts"] == expected.tolist()
    output = sweep_it(Quantiles("cost", (0.0, 0.5, 1.0)), 128).answer
    assert output is not None and output["points"] == len(cost)
    for bounds in output["quantiles"]:
        true = np.quantile(cost, bounds["q"], method="inverted_cdf")
        assert bounds["at_least"] <= true < bounds["below"] <= bounds["at_least"] * 1.005


def test_epsilon_keeps_a_point_within_epsilon_of_every_point(table):
    result = sweep_it(Pareto("speed", "cost", epsilon=0.2), 64)
    exact = brute(np.stack([-table[0], table[1]]), table[4] > 0)
    assert 0 < len(result) < len(exact)
    for i in exact:
        near = (table[0][result.index] * 1.2 >= table[0][i] * (1 - 1e-12)) & (
            table[1][result.index] <= 1.2 * table[1][i] * (1 + 1e-12)
        )
        assert near.any()
    assert sweep_it(Pareto("speed", "cost", epsilon=0.2), 1024).index == result.index


def test_constraints_in_python_and_as_tables(table):
    chips, batch = table[2], table[7]
    tables = (
        Constraint(product=("plan.tp", "plan.pp"), at_most=8.0),
        Constraint(sum=("plan.tp", "plan.pp"), at_least=3.0),
        Constraint(ratio=("workload.batch", "plan.tp"), at_most="plan.pp"),
        Constraint(value="plan.pp", divides="workload.batch"),
    )

    def python(point, life):
        held = (point.plan.chips <= 8.0) & (point.plan.tp + point.plan.pp >= 3.0)
        held &= point.workload.batch / point.plan.tp <= point.plan.pp
        return held & (jnp.mod(point.workload.batch, point.plan.pp) == 0) & (life.tpot > 0)

    pp = np.tile(PP, len(batch) // 3)
    tp = chips / pp
    held = (chips <= 8) & (tp + pp >= 3) & (batch / tp <= pp) & (batch % pp == 0)
    expected = brute(np.stack([-table[0], table[1]]), (table[4] > 0) & held)
    for where in (tables, (python,)):
        assert sorted(sweep_it(Pareto("speed", "cost"), where=where).index) == expected


def test_structures_are_grouped_under_one_index():
    models = [arch(4.0, 1), arch(8.0, 2), arch(2.0, 1)]
    grid = Space(models, hardware(), workload(batch=Axis.values(5, 6)), plan(tp=Axis.values(1, 2)))
    result = sweep(Toy.of(), grid, Everything("decode.limits.memory.need"), chunk=8)
    needs = result.columns["decode.limits.memory.need"]
    # the model at position 1 is of another structure; its last point on one chip does not fit
    assert needs.tolist() == [20, 20, 24, 24, 10, 10, 12, 12, 40, 40, 48]
    assert result.columns["arch"].tolist() == [0] * 4 + [2] * 4 + [1] * 3
    assert result.columns["plan.tp"].tolist() == [1, 2] * 5 + [2]


def test_zipped_and_dependent_axes():
    grid = Space(
        arch(),
        hardware(),
        workload(batch=Axis.values(1, 2, 3)),
        plan(tp=Axis.values(1, 2, 4), pp=Axis.dependent(lambda step, p: step / p.plan.tp, [4, 8])),
        zips=[("workload.batch", "plan.tp")],
    )
    result = sweep(Toy.of(), grid, Everything("plan.pp", "plan.chips", "workload.batch"), chunk=8)
    assert result.columns["plan.chips"].tolist() == [4, 8] * 3
    assert result.columns["workload.batch"].tolist() == [1, 1, 2, 2, 3, 3]


def test_an_axis_over_the_estimator():
    grid = Space(arch(), hardware(), workload(), plan())
    result = sweep(Toy.of().replace(scale=Axis.values(3, 1, 2)), grid, TopK(2, "tpot"))
    assert result.columns["estimator.scale"].tolist() == [1.0, 2.0]
