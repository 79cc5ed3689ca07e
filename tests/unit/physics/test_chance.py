"""The chance that limits hold: against quantiles of a band, closed forms and differences."""

from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics.chance import (
    Spread,
    chance,
    holds,
    limit_score,
    ratio,
    score,
    shared_and_own,
)

NORMAL = NormalDist()
WITHIN = {50: (0.95, 1.1), 80: (0.85, 1.3), 95: (0.7, 2.7)}


@pytest.fixture(scope="module")
def spread():
    return Spread.of(WITHIN)


def test_a_limit_at_a_bands_end_holds_with_the_bands_share(spread):
    """Nine tenths of measured runs are below the upper end of an 80 % band."""
    for share, (low, high) in WITHIN.items():
        for side, edge in ((-1.0, low), (1.0, high)):
            known = float(
                holds(
                    limit_score(jnp.array(2.0 * edge), jnp.array(2.0), spread), jnp.zeros(()), 1.0
                )
            )
            # in single precision
            assert known == pytest.approx(0.5 + side * share / 200.0, abs=1e-6)


def test_scores_and_ratios_are_inverse(spread):
    z = jnp.linspace(-6.0, 6.0, 49)
    assert np.allclose(score(ratio(z, spread), spread), z)
    assert np.all(np.diff(ratio(z, spread)) > 0)
    # equal quantiles, as a table of few digits has them, keep a slope
    flat = Spread.of({50: (1.0, 1.0), 80: (1.0, 1.2)})
    assert np.all(np.diff(flat.logs) > 0) and np.isfinite(score(jnp.zeros(()), flat))


def test_shared_and_own_parts_add_up_to_the_band(spread):
    """E Phi((a - s) / sqrt(1 - c)) with s of variance c is Phi(a), whatever share moves it."""
    draws = np.array([NORMAL.inv_cdf((i + 0.5) / 4000) for i in range(4000)])
    random = np.random.default_rng(0)
    for moved in (0.0, 0.3, 0.5):  # coefficients' part is 0, 0.09 or 0.25 of the 0.4
        at = jnp.array([moved * random.permutation(draws)] * 2)
        common = jnp.array([0.4, 0.4])
        shared, own = shared_and_own(at, common, jnp.array([random.permutation(draws)] * 2))
        for a in (-1.0, 0.5, 1.2816):
            one = chance(jnp.array([a, 50.0]))
            assert float(one) == pytest.approx(NORMAL.cdf(a), rel=1e-6)
            mean = jnp.mean(holds(jnp.array(a), shared[0], own[0]))
            assert float(mean) == pytest.approx(float(one), abs=0.006)
    # coefficients that say more than what is shared are held to it
    shared, own = shared_and_own(
        jnp.array([1.2 * draws] * 2), jnp.array([0.4, 0.4]), jnp.zeros((2, 4000))
    )
    assert float(jnp.var(shared[0])) == pytest.approx(0.4) and own[0] == pytest.approx(0.6**0.5)


def test_the_slope_by_a_limit_is_its_difference_and_finite_where_there_is_none(spread):
    @jax.jit
    def of(limits):
        rooms = jnp.stack([limit_score(limit, jnp.array(0.01), spread) for limit in limits])
        return chance(rooms)

    with jax.enable_x64(True):
        slopes_of = jax.jit(jax.grad(of))
        slope = slopes_of(jnp.array([0.0105, 0.0117]))
        step = 1e-7
        for i in range(2):
            at = np.array([0.0105, 0.0117])
            moved = np.eye(2)[i] * step
            difference = (of(jnp.array(at + moved)) - of(jnp.array(at - moved))) / (2 * step)
            assert float(slope[i]) == pytest.approx(float(difference), rel=1e-5)
        for bad, chances in ((0.0, 0.0), (jnp.inf, 1.0), (1e-300, 0.0), (1e300, 1.0)):
            limits = jnp.array([bad, bad])
            assert float(of(limits)) == pytest.approx(chances, abs=1e-12)
            assert np.all(np.asarray(slopes_of(limits)) == 0.0)
        by_time = jax.grad(lambda time: limit_score(jnp.array(0.01), time, spread))
        for bad, side in ((0.0, 1.0), (jnp.inf, -1.0)):
            far = limit_score(jnp.array(0.01), jnp.array(bad), spread)
            assert np.isfinite(far) and side * float(far) > 30.0
            assert float(by_time(jnp.array(bad))) == 0.0

        # coefficients that say nothing or too much, nothing shared: no root without a slope
        def parts(common, moved):
            return jnp.sum(shared_and_own(moved, common, jnp.ones((1, 4)))[0] ** 2)

        slopes_by = jax.jit(jax.grad(parts, argnums=(0, 1)))
        for moved in (jnp.zeros((1, 4)), jnp.array([[1.0, -1.0, 2.0, -2.0]])):
            for common in (0.0, 0.4):
                slopes = slopes_by(jnp.array([common]), moved)
                assert all(bool(np.all(np.isfinite(x))) for x in slopes)
