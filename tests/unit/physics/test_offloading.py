"""The batched dual simplex against HiGHS; a walker counts what the three schedules send."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from infer_jax.physics.linear_program import minimise
from infer_jax.physics.memory.tiers import (
    Graph,
    cache_traffic,
    diagonal_block,
    hidden_traffic,
    weight_traffic,
    zigzag_block,
    zigzag_over_optimal,
    zigzag_peak,
)

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


GIB = 2.0**30
W, H, C = 1009.0, 2.0, 4.0  # bytes of weights, hidden state, cache: easily told apart


def squares(order, layers, tokens, samples, batch):
    """Squares (sample, token, layer) in the order of a schedule; ``batch`` samples a block."""
    starts = range(0, samples, batch)
    columns = list(itertools.product(range(tokens), range(layers)))
    if order == "row-by-row":
        return [(r, t, layer) for r in range(samples) for t, layer in columns]
    return [
        (r, t, layer)
        for start in starts
        for t, layer in columns
        for r in range(start, min(start + batch, samples))
    ]


def walk(order, prompt):
    """(weights, hidden, cache, peak) bytes of computing squares in this order.

    A layer's weights are loaded when another's were used before. A sample keeps the cache of all
    its layers from its first square to its last, sized for its last token as a buffer is.
    """
    tokens = 1 + max(t for _, t, _ in order)
    layers = 1 + max(layer for _, _, layer in order)
    loaded = hidden = cache = peak = 0.0
    current, alive = None, set()
    for r, t, layer in order:
        loaded += W * (layer != current)
        current = layer
        positions = prompt if t == 0 else 1
        hidden += 2 * H * positions
        cache += C * (prompt + t)
        alive.add(r)
        held = C * layers * (prompt + tokens) + H
        peak = max(peak, W + len(alive) * held)
        if (t, layer) == (tokens - 1, layers - 1):
            alive.discard(r)
    return loaded, hidden, cache, peak


@pytest.mark.parametrize(("layers", "tokens", "samples", "batch", "prompt"),
                         [(2, 3, 4, 2, 5), (3, 2, 6, 3, 1), (4, 4, 4, 4, 7)])  # fmt: skip
def test_traffic_and_peak_of_row_by_row_and_zigzag(layers, tokens, samples, batch, prompt):
    graph = Graph(layers, prompt, tokens, W, H, C)
    for order, blocks, alive in (("row-by-row", samples, 1), ("zig-zag", samples // batch, batch)):
        walked = walk(squares(order, layers, tokens, samples, batch), prompt)
        expected = (
            weight_traffic(graph, blocks),
            hidden_traffic(graph, samples),
            cache_traffic(graph, samples),
            zigzag_peak(graph, alive),
        )
        np.testing.assert_allclose(walked, np.asarray(expected), rtol=1e-14)


# block sizes, their ratio and its limit; weights, cache and hidden traffic in GiB: the six
# published rows for 200 GiB (FlexGen's Appendix A.2 evaluated on OPT)
PUBLISHED = [
    (48, 7168, 512, 32, 285.18, 303.30, 1.0635, 1.0303, 55.125, 21.636, 0.696),
    (48, 7168, 512, 512, 151.50, 202.40, 1.3359, 1.3333, 55.125, 503.67, 1.311),
    (48, 7168, 128, 1024, 134.67, 242.64, 1.8017, 1.8000, 55.125, 839.34, 1.475),
    (64, 9216, 512, 128, 140.87, 157.76, 1.1199, 1.1111, 121.5, 161.86, 1.404),
    (96, 12288, 512, 32, 82.25, 87.47, 1.0635, 1.0303, 324.0, 74.18, 2.386),
    (96, 12288, 1024, 32, 42.37, 44.41, 1.0481, 1.0154, 324.0, 146.18, 4.636),
]


@pytest.mark.parametrize("row", PUBLISHED)
def test_block_sizes_of_the_paper(row):
    layers, d, s, n, b1, b2, ratio, limit, weights, cache, hidden = row
    graph = Graph(layers, s, n, 24.0 * d * d, 2.0 * d, 4.0 * d)
    small, large = zigzag_block(graph, 200 * GIB), diagonal_block(graph, 200 * GIB)
    assert round(small, 2) == b1
    assert round(large, 2) == b2
    assert round(large / small, 4) == ratio
    assert round((2 * s + 2 * n) / (2 * s + n), 4) == limit
    assert layers * graph.weights / GIB == weights
    np.testing.assert_allclose(cache_traffic(graph, 1) / GIB, cache, rtol=5e-5)
    np.testing.assert_allclose(hidden_traffic(graph, 1) / GIB, hidden, rtol=8e-4)


def test_zigzag_is_within_twice_the_least_in_the_limit():
    """Theorem 4.1: the ratio of a long run is the formula's, below 2, and tends to 2 for n >> s."""
    for s, n in ((0, 3), (5, 7), (512, 32), (0, 1000)):
        rows, memory = 10_000, 60.0 * (s + n)
        bound = rows * sum(s + t for t in range(1, n + 1)) / memory
        zigzag = n * rows / 60.0
        np.testing.assert_allclose(zigzag / bound, zigzag_over_optimal(s, n), rtol=1e-12)
        assert 1.0 <= zigzag / bound < 2.0
    assert zigzag_over_optimal(0.0, 1e6) > 1.99999
    assert zigzag_over_optimal(1e6, 1.0) < 1.00001
