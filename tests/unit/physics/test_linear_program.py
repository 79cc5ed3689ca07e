"""The batched dual simplex answers what HiGHS answers, with exact status and right gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from infer_jax.physics.linear_program import minimise

solve = jax.jit(jax.vmap(minimise))
BATCH, ROWS, COLUMNS = 1000, 20, 8


@pytest.fixture(scope="module")
def programs():
    """1,000 programs around a random point; a third or so have no feasible point.

    Some columns cost nothing, as fractions do, so that the optimum is often not unique.
    """
    rng = np.random.default_rng(20230306)
    rows = rng.normal(size=(BATCH, ROWS, COLUMNS)) * (rng.uniform(size=(BATCH, ROWS, 1)) + 0.1)
    inside = np.einsum("bij,bj->bi", rows, rng.uniform(size=(BATCH, COLUMNS)))
    bounds = inside - rng.uniform(-0.2, 0.8, size=(BATCH, ROWS)) * (rng.uniform(size=(BATCH, 1)))
    cost = rng.uniform(size=(BATCH, COLUMNS))
    cost[:, :5] *= rng.uniform(size=(BATCH, 5)) < 0.4
    return cost, rows, bounds, np.ones((BATCH, ROWS))


@pytest.fixture(scope="module")
def result(programs):
    return jax.device_get(solve(*programs))


@pytest.fixture(scope="module")
def referee(programs):
    """HiGHS: (feasible, optimum) of each program."""
    cost, rows, bounds, _ = programs
    result = [
        linprog(c, A_ub=-a, b_ub=-b, method="highs")
        for c, a, b in zip(cost, rows, bounds, strict=True)
    ]
    assert {f.status for f in result} == {0, 2}
    return np.array([f.status == 0 for f in result]), np.array(
        [f.fun if f.status == 0 else np.nan for f in result]
    )


def test_status_and_optimum_agree_with_highs(programs, referee, result, x64):
    feasible, optimum = referee
    assert np.array_equal(result.feasible, feasible)
    assert 200 < feasible.sum() < 900
    ours = np.einsum("bi,bi->b", programs[0], result.x)[feasible]
    np.testing.assert_allclose(ours, optimum[feasible], rtol=1e-8, atol=1e-8)
    slack = np.einsum("bij,bj->bi", programs[1], result.x) - programs[2]
    assert slack[feasible].min() > -1e-9
    assert np.min(result.x[feasible]) > -1e-9
    assert np.all(np.asarray(result.excess)[feasible] == 0)


def test_float32_agrees_with_highs(programs, referee):
    feasible, optimum = referee
    narrow = [np.asarray(x, np.float32) for x in programs]
    result = solve(*narrow)
    assert result.x.dtype == np.float32
    assert np.array_equal(result.feasible, feasible)
    ours = np.einsum("bi,bi->b", programs[0], result.x)[feasible]
    np.testing.assert_allclose(ours, optimum[feasible], rtol=1e-4, atol=1e-4)


def test_infeasible_rows_are_proven_and_relaxed_least(programs, referee, result, x64):
    """The rows of the proof alone are infeasible, and the excess is the least by HiGHS."""
    feasible, _ = referee
    cost, rows, bounds, _ = programs
    for i in np.flatnonzero(~feasible)[:60]:
        proof = np.asarray(result.proof[i])
        assert proof.any()
        alone = linprog(cost[i], A_ub=-rows[i][proof], b_ub=-bounds[i][proof], method="highs")
        assert alone.status == 2
        wide = np.column_stack([rows[i], np.ones(ROWS)])
        least = linprog(np.eye(COLUMNS + 1)[-1], A_ub=-wide, b_ub=-bounds[i], method="highs")
        np.testing.assert_allclose(result.excess[i], least.fun, rtol=1e-7, atol=1e-9)


def _optimum(cost, rows, bounds, relax):
    return cost @ minimise(cost, rows, bounds, relax).x


def test_gradients_agree_with_finite_differences(programs, referee, x64):
    """Forward, reverse and central differences, batched, with respect to c, A and b."""
    feasible, _ = referee
    chosen = np.flatnonzero(feasible)[:40]
    batch = [x[chosen] for x in programs]
    # a cost of exactly zero cannot be moved to both sides: the graded tie-break decides there
    batch[0] = batch[0] + 0.05
    reverse = jax.jit(jax.vmap(jax.grad(_optimum, argnums=(0, 1, 2))))(*batch)
    rng = np.random.default_rng(1)
    moved = [rng.normal(size=x.shape) for x in batch[:3]]
    still = np.zeros_like(batch[3])
    value = jax.jit(jax.vmap(_optimum))

    def slope(*tangents):
        return jax.jvp(_optimum, tuple(tangents[:4]), tuple(tangents[4:]))[1]

    forward = jax.jit(jax.vmap(slope))(*batch, *moved, still)
    both = sum(
        np.sum((np.asarray(g) * d).reshape(len(chosen), -1), axis=1)
        for g, d in zip(reverse, moved, strict=True)
    )
    np.testing.assert_allclose(forward, both, rtol=1e-9, atol=1e-9)
    h = 1e-6
    ends = [value(*(x + s * h * d for x, d in zip(batch, moved, strict=False)), batch[3])
            for s in (1, -1)]  # fmt: skip
    difference = (np.asarray(ends[0]) - np.asarray(ends[1])) / (2 * h)
    np.testing.assert_allclose(difference, both, rtol=2e-5, atol=2e-5)


def test_the_gradient_jumps_where_the_best_vertex_changes(x64):
    """min t, t >= u, t >= 1 - u, u <= c: t = 1/2 from c = 1/2 on, 1 - c below: slopes -1 and 0."""

    def time(c):
        rows = jnp.array([[-1.0, 1.0], [1.0, 1.0], [-1.0, 0.0]])
        bounds = jnp.stack([0.0 * c, 1.0 + 0.0 * c, -c])
        return minimise(jnp.array([0.0, 1.0]), rows, bounds, jnp.ones(3)).x[1]

    slope = jax.grad(time)
    np.testing.assert_allclose([slope(0.3), slope(0.7)], [-1.0, 0.0], atol=1e-12)
    assert slope(0.5) in (-1.0, 0.0)
    np.testing.assert_allclose([time(0.3), time(0.5), time(0.7)], [0.7, 0.5, 0.5], rtol=1e-12)


def test_contradicting_rows_that_may_not_give_way_are_infeasible(x64):
    rows, bounds = np.array([[1.0], [-1.0]]), np.array([2.0, -1.0])
    assert not bool(minimise(np.ones(1), rows, bounds, np.zeros(2)).feasible)
