"""Smooth maxima, staircases and ticks: values, limits, and gradients at the bad points."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from infer_jax.compiling.programs import accepted_options
from infer_jax.physics.numerics import ceiling, flooring, maximum, soft_weights, square_root, tick
from infer_jax.physics.root import crossing

from .derivatives import agree_at, finite_at

pytestmark = pytest.mark.usefixtures("x64")

positive = st.floats(1e-9, 1e9)
temperature = st.floats(1e-3, 1.0)
compiled = jax.jit(maximum)


@given(positive, positive, temperature)
def test_maximum_is_the_p_norm_between_max_and_sum(a, b, s):
    value = float(compiled(a, b, s))
    assert max(a, b) <= value <= (a + b) * (1 + 1e-12)
    top, low = max(a, b), min(a, b)
    assert value == pytest.approx(top * (1 + (low / top) ** (1 / s)) ** s, rel=1e-12)
    assert value == pytest.approx(float(compiled(b, a, s)), rel=1e-15)


@given(positive, positive)
def test_maximum_goes_to_the_exact_one(a, b):
    # at a tie the p-norm is 2^s times the maximum, its farthest
    assert float(compiled(a, b, 1e-6)) == pytest.approx(max(a, b), rel=0.7e-6)
    assert float(maximum(jnp.asarray(a), jnp.asarray(b))) == max(a, b)


def test_slopes_of_the_maximum_at_ordinary_and_bad_points():
    pairs = (3.0, 4.0), (2.0, 2.0), (1e-6, 3e-6), (5.0, 1.0)
    agree_at(maximum, *((*pair, s) for pair, s in product(pairs, (0.05, 0.5, 1.0))))
    bad = (0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1e-18, 1e18)
    finite_at(lambda x, y: maximum(x, y, jnp.asarray(0.01)), *bad)
    finite_at(maximum, *bad)


def test_a_tie_shares_the_slope():
    for smoothing in (None, 0.5):
        value, slopes = jax.value_and_grad(maximum, (0, 1))(0.0, 0.0, smoothing)
        assert value == 0.0 and slopes == (0.5, 0.5)


@given(st.integers(-1000, 1000), st.one_of(st.none(), temperature))
def test_integers_keep_their_value_at_any_temperature(n, s):
    assert float(ceiling(jnp.asarray(float(n)), s)) == n
    assert float(flooring(jnp.asarray(float(n)), s)) == n


@given(st.floats(-50, 50), temperature)
def test_staircases_lie_around_the_line_and_meet_the_exact_ones(x, s):
    up, down = float(ceiling(jnp.asarray(x), s)), float(flooring(jnp.asarray(x), s))
    slack = 1e-12
    assert np.floor(x) <= down <= x + slack and x - slack <= up <= np.ceil(x)
    if x - np.floor(x) > s:
        assert up == np.ceil(x)
    if np.ceil(x) - x > s:
        assert down == np.floor(x)
    assert float(ceiling(jnp.asarray(x), jnp.asarray(1.0))) == pytest.approx(x, abs=1e-12)


@pytest.mark.parametrize("law", [ceiling, flooring])
def test_staircase_gradients(law):
    assert float(jax.grad(law)(2.5)) == 0.0
    agree_at(law, (2.1, 0.4), (-2.9, 0.4))
    finite_at(law, (3.0,))
    finite_at(law, (3.0, 0.3))


def test_square_root():
    assert float(square_root(jnp.asarray(9.0))) == 3.0
    assert float(square_root(jnp.asarray(-1.0))) == 0.0
    assert float(jax.grad(square_root)(0.0)) == 0.0
    agree_at(square_root, (2.0,))


@given(st.floats(1.0, 1e6), st.integers(1, 12))
def test_ticks_end_exactly_and_rise_by_one_factor(top, count):
    ticks = np.array(
        [float(tick(jnp.asarray(float(j)), count, jnp.asarray(top))) for j in range(count)]
    )
    assert ticks[0] == 1.0 and (count == 1 or ticks[-1] == top)
    if count > 1:
        np.testing.assert_allclose(ticks, top ** (np.arange(count) / (count - 1)), rtol=1e-12)


def test_slope_of_a_tick():
    agree_at(lambda top: tick(jnp.asarray(2.0), 5, top), (7.0,))


def test_soft_weights():
    times, over = jnp.array([1.0, 2.0, 4.0]), jnp.array([0.0, 0.0, 0.0])
    # softmax of -log t is proportional to 1 / t
    np.testing.assert_allclose(soft_weights(times, over, jnp.asarray(1.0)), np.array([4, 2, 1]) / 7)
    np.testing.assert_allclose(soft_weights(times, over, jnp.asarray(1e-3)), [1, 0, 0], atol=1e-12)
    # a shortfall of log 4 makes the fastest as good as the slowest
    shifted = soft_weights(times, jnp.array([np.log(4.0), 0.0, 0.0]), jnp.asarray(1.0))
    np.testing.assert_allclose(shifted, np.array([1, 2, 1]) / 4)


def test_a_crossing_stays_where_it_is_found_whatever_the_compiler_rounds():
    """Of 20,000 power limits, 90 + c x^3 = limit, by programs compiled quickly and well."""
    rng = np.random.default_rng(0)
    full, limit = (jnp.asarray(rng.uniform(*ends, 20_000)) for ends in ((300, 2000), (150, 700)))

    def root(c, most):
        def over(x):
            return 90.0 + c * x * jnp.maximum(x, 0.6) ** 2 - most

        return crossing(over, jnp.asarray(0.1), jnp.asarray(1.0))

    plain = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": True}
    plain |= {"xla_llvm_disable_expensive_passes": True, "xla_backend_extra_options": ""}
    for options in (None, accepted_options(plain)):
        x = jax.jit(jax.vmap(root), compiler_options=options)(full, limit)
        drawn = 90.0 + full * x * jnp.maximum(x, 0.6) ** 2
        inside = (x > 0.1) & (x < 1.0)
        np.testing.assert_allclose(drawn[inside], limit[inside], rtol=1e-12)
