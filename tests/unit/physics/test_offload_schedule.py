"""A walker over small graphs counts what the formulas of the three schedules say."""

import itertools

import numpy as np
import pytest

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
ROWS = [
    (48, 7168, 512, 32, 285.18, 303.30, 1.0635, 1.0303, 55.125, 21.636, 0.696),
    (48, 7168, 512, 512, 151.50, 202.40, 1.3359, 1.3333, 55.125, 503.67, 1.311),
    (48, 7168, 128, 1024, 134.67, 242.64, 1.8017, 1.8000, 55.125, 839.34, 1.475),
    (64, 9216, 512, 128, 140.87, 157.76, 1.1199, 1.1111, 121.5, 161.86, 1.404),
    (96, 12288, 512, 32, 82.25, 87.47, 1.0635, 1.0303, 324.0, 74.18, 2.386),
    (96, 12288, 1024, 32, 42.37, 44.41, 1.0481, 1.0154, 324.0, 146.18, 4.636),
]


@pytest.mark.parametrize("row", ROWS)
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
