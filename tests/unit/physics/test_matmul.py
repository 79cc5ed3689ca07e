"""FLOP, streamed bytes and rates of matrix products."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from infer_jax.physics.matmul import Matrix, elements, flops, rate, streamed_bytes
from infer_jax.specs import Chip

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
