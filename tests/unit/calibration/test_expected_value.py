"""The worth of knowing a number before choosing, and draws of coefficients: closed forms."""

import math

import numpy as np
import pytest

from infer_jax.calibration.posterior import (
    normal_scores,
    perfect_information,
    shadow_price,
    shipped_intervals,
    with_draws,
)
from infer_jax.catalog.published import serving_coefficients
from infer_jax.estimators.serving import Serving


def _normal(z: float) -> tuple[float, float]:
    """Density and distribution of a normal number."""
    density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return density, 0.5 * math.erfc(-z / math.sqrt(2))


def test_the_worth_of_a_linear_benefit_is_the_unit_normal_loss():
    """b = m + s x + noise beside 0: E max(0, m + s x) = s phi(m / s) + m Phi(m / s)."""
    x, noise = normal_scores(2, 4096).T
    for mean, slope in ((0.0, 1.0), (0.5, 1.0), (-0.5, 0.25)):
        benefits = np.stack([np.zeros_like(x), mean + slope * x + 0.5 * noise], axis=1)
        density, below = _normal(mean / slope)
        expected = slope * density + mean * below - max(mean, 0.0)
        assert perfect_information(benefits, x) == pytest.approx(expected, abs=0.015)
    # what says nothing of the benefits is worth nothing, nor is a constant
    benefits = np.stack([np.zeros_like(x), 0.2 + x], axis=1)
    assert perfect_information(benefits, noise) < 0.01
    assert perfect_information(benefits, np.ones_like(x)) == 0.0


def test_the_worth_of_a_step_is_found_where_it_is():
    """Worth 1 above a step and -1 below it, beside 0: known, half of the draws gain 1."""
    (x,) = normal_scores(1, 4096).T
    benefits = np.stack([np.zeros_like(x), np.where(x > 0.0, 1.0, -1.0)], axis=1)
    assert perfect_information(benefits, x, [0.0]) == pytest.approx(0.5, abs=1e-6)


def test_the_shadow_price_is_the_slope_of_the_hull():
    costs, chances = np.array([1.0, 2.0, 5.0, 4.9]), np.array([0.5, 0.8, 0.95, 0.6])
    assert shadow_price(costs, chances, 0.9) == pytest.approx((5 - 2) / (0.95 - 0.8))
    assert shadow_price(costs, chances, 0.7) == pytest.approx((2 - 1) / (0.8 - 0.5))
    assert shadow_price(costs, chances, 0.4) == 0.0  # the cheapest keeps it
    assert shadow_price(costs, chances, 0.99) == pytest.approx(20.0)  # none does


def test_drawn_coefficients_have_their_intervals():
    """A tenth of the draws lies below each interval, a tenth above, and bounds hold."""
    serving = Serving.vllm_engine()
    known = shipped_intervals(serving)
    assert "vllm.eager" in known and "trtllm.eager" not in known
    changed = shipped_intervals(serving.with_(cache_read=0.7))
    assert set(known) - set(changed) == {"cache_read"}
    scores = {one.symbol: normal_scores(1, 256, seed=3)[:, 0] for one in known.values()}
    draws = with_draws(serving, known, scores, 256)
    assert float(draws.weight_read[0]) == float(serving.weight_read)
    for path, one in known.items():
        value = draws
        for name in path.split("."):
            value = getattr(value, name)
        values, high = np.asarray(value)[1:], serving_coefficients()[path].high
        assert np.mean(values < one.low) == pytest.approx(0.1, abs=0.02), path
        assert np.mean(values > high) == pytest.approx(0.0 if high == 1.0 else 0.1, abs=0.02), path
