"""Matrix products, of layers and of experts: FLOP, streamed bytes, rates, sizes and visits."""

from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from infer_jax.physics import feedforward as ffn
from infer_jax.physics.matmul import Matrix, elements, flops, rate, streamed_bytes
from infer_jax.specs import Chip, Dense, Experts

from .derivatives import agree_at, finite_at

pytestmark = pytest.mark.usefixtures("x64")

size = st.floats(1.0, 1e5)
count = st.floats(1.0, 1e4)
streamed = jax.jit(lambda m, k, n, t, w, a: streamed_bytes(Matrix(m, k), n, t, w, a))


def test_flops_by_hand():
    pair = (Matrix(jnp.asarray(3.0), jnp.asarray(4.0)), Matrix(jnp.asarray(5.0), jnp.asarray(2.0)))
    assert float(elements(pair)) == 22.0
    assert float(flops(pair, jnp.asarray(7.0))) == 2 * 22 * 7
    assert float(elements(())) == 0.0


def test_streamed_bytes_by_hand():
    # one chip: the weight once, inputs and outputs of 3 tokens
    assert float(streamed(4.0, 5.0, 3.0, 1.0, 1.0, 2.0)) == 20 + (4 + 5) * 3 * 2
    # four chips, square: 2 x 2 slices, so inputs and outputs twice each
    assert float(streamed(4.0, 4.0, 3.0, 4.0, 2.0, 2.0)) == 16 * 2 + (2 * 4 + 2 * 4) * 3 * 2
    # four chips, 1 x 64: slices along the long side only, the single input word read by all
    assert float(streamed(64.0, 1.0, 1.0, 4.0, 0.0, 1.0)) == 4 * 1 + 64
    # no tokens: the weight all the same
    assert float(streamed(4.0, 5.0, 0.0, 8.0, 2.0, 2.0)) == 40.0
    # an empty matrix moves nothing
    assert [float(streamed(*x, 3.0, 2.0, 1.0, 2.0)) for x in ((0.0, 4.0), (4.0, 0.0))] == [0.0, 0.0]


_log_slopes = jax.jit(jax.grad(lambda *x: jnp.log(streamed(*x)), tuple(range(4))))


@pytest.mark.parametrize(
    ("m", "k", "split"),
    [(100.0, 4096.0, 1.0), (4096.0, 100.0, 1.0), (512.0, 512.0, 1.0), (100.0, 4096.0, 40.96)],
)
def test_the_slope_is_that_of_both_sides_where_slices_begin_and_where_they_turn_square(m, k, split):
    point = (m, k, 37.0, split, 2.0, 2.0)
    for i, slope in enumerate(_log_slopes(*point)):
        for h in (1e-5, -1e-5):
            moved = streamed(*point[:i], point[i] * (1.0 + h), *point[i + 1 :])
            side = float(jnp.log(moved / streamed(*point))) / h
            assert float(slope) * point[i] == pytest.approx(side, rel=1e-3, abs=1e-5), i


@given(size, size, count)
def test_no_slicing_moves_less(m, k, t):
    rows = np.geomspace(1.0, t, 400)
    best = (rows * k + t / rows * m).min()
    moved = float(streamed(m, k, 1.0, t, 0.0, 1.0))
    assert moved <= best * (1 + 1e-12)
    assert moved == pytest.approx(best, rel=1e-3)  # the grid is finer than that


def test_slopes_of_streamed_bytes_at_ordinary_and_bad_points():
    sizes = product((1.5, 7.3, 900.0), ((3.0, 4.0), (400.0, 5.0), (5.0, 400.0)))
    agree_at(streamed, *((*shape, 2.0, t, 0.5, 2.0) for t, shape in sizes))
    bad = ((0.0, 4.0, 1.0, 2.0), (4.0, 0.0, 1.0, 2.0), (0.0, 0.0, 0.0, 1.0), (4.0, 4.0, 1.0, 1.0),
           (1.0, 4.0, 1.0, 4.0), (1e6, 1e6, 1e6, 1e5))  # fmt: skip
    finite_at(streamed, *((*point, 1.0, 2.0) for point in bad))


def test_rate():
    chip = Chip.of(flops_16=1e15, flops_8=2e15, flops_4=4e15, memory=1.0, memory_bandwidth=1.0)
    found = [float(rate(chip, jnp.asarray(bits))) for bits in (16.0, 8.0, 6.0, 4.0, 2.0)]
    assert found == [1e15, 2e15, 2e15, 4e15, 4e15]


WIDTH = jnp.asarray(10.0)
DENSE = Dense.of(width=6.0, inward=2)
MIXTURE = Experts.of(experts=8, active=3, width=4, inward=1, shared=DENSE)
touched = jax.jit(ffn.visited_share)


def test_experts_by_hand():
    assert float(ffn.routed_elements(MIXTURE, WIDTH)) == 8 * 2 * 40
    assert float(ffn.common_elements(MIXTURE, WIDTH)) == 3 * 60
    assert float(ffn.router_elements(MIXTURE, WIDTH)) == 80
    assert float(ffn.router_elements(MIXTURE.with_(router=0.0), WIDTH)) == 0
    assert float(ffn.sparsity(MIXTURE)) == 8 / 3
    assert float(ffn.floored_sparsity(MIXTURE)) == 2.0
    assert float(ffn.floored_sparsity(MIXTURE, jnp.asarray(1.0))) == pytest.approx(8 / 3)
    assert float(ffn.active_experts(MIXTURE)) == 3.0


def test_experts_of_another_width():
    narrow = MIXTURE.with_(outer_width=5.0)
    assert float(ffn.routed_elements(narrow, WIDTH)) == 8 * 2 * 20
    assert float(ffn.router_elements(narrow, WIDTH)) == 80  # the router reads the model's width


@pytest.mark.parametrize(
    ("experts", "active", "tokens"), [(4, 1, 4), (5, 2, 3), (4, 3, 2), (3, 3, 2)]
)
def test_touched_is_the_mean_over_all_routings(experts, active, tokens):
    choices = [set(c) for c in combinations(range(experts), active)]
    visited = [len(set().union(*r)) for r in product(choices, repeat=tokens)]
    expected = np.mean(visited) / experts
    assert float(touched(experts / active, float(tokens))) == pytest.approx(expected, rel=1e-12)


def test_touched_at_the_edges():
    assert float(touched(7.0, 0.0)) == 0.0
    assert float(touched(1.0, 5.0)) == 1.0
    assert jax.grad(ffn.visited_share, (0, 1))(1.0, 5.0) == (0.0, 0.0)
    tiny = ffn.visited_share(jnp.float32(1e12), jnp.float32(3.0))
    assert tiny.dtype == jnp.float32 and float(tiny) == pytest.approx(3e-12, rel=1e-6)


def test_slopes_of_touched_at_ordinary_and_bad_points():
    agree_at(ffn.visited_share, (1.3, 2.0), (8.0, 5.5), (200.0, 64.0))
    finite_at(ffn.visited_share, *product((1.0, 1.0 + 1e-7, 2.0, 1e12), (0.0, 1.0, 1e7)))


def test_gradients_of_sizes():
    def size(layer, width):
        elements = ffn.routed_elements(layer, width) + ffn.common_elements(layer, width)
        return elements / ffn.sparsity(layer) + ffn.router_elements(layer, width)

    agree_at(size, (MIXTURE, 10.0), (MIXTURE.with_(outer_width=5.0), 10.0))
    single = Experts.of(experts=1, active=1, width=4, inward=1)  # no shared expert either
    finite_at(size, (single, 10.0))
    finite_at(lambda layer: ffn.floored_sparsity(layer), (single,))
    assert float(ffn.floored_sparsity(single)) == float(ffn.sparsity(single)) == 1.0
