"""Speculative sampling played with random distributions: does it do what the laws say?"""

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics import speculation as law

pytestmark = pytest.mark.usefixtures("x64")

WORDS, ROUNDS, DRAFTS = 9, 200_000, 5


def play(p: np.ndarray, q: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draft, accept, resample, ``ROUNDS`` times: the first token of each, and tokens yielded."""
    drafts = rng.choice(WORDS, (ROUNDS, DRAFTS), p=q)
    accepted = rng.random((ROUNDS, DRAFTS)) < np.minimum(1.0, p[drafts] / q[drafts])
    count = np.cumprod(accepted, axis=1).sum(axis=1)
    resampled = rng.choice(
        WORDS, ROUNDS, p=np.asarray(law.residual(jnp.asarray(p), jnp.asarray(q)))
    )
    first = np.where(accepted[:, 0], drafts[:, 0], resampled)
    return first, count + 1


@pytest.mark.parametrize("seed", range(5))
def test_the_output_is_the_targets_and_the_yield_is_the_law(seed):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(WORDS, 0.7), 2)
    first, tokens = play(p, q, rng)
    error = 5.0 * np.sqrt(0.25 / ROUNDS)  # five deviations of a share of ROUNDS draws
    np.testing.assert_allclose(np.bincount(first, minlength=WORDS) / ROUNDS, p, atol=error)

    acceptance = 1.0 - 0.5 * np.abs(p - q).sum()
    assert float(law.overlap(jnp.asarray(p), jnp.asarray(q))) == pytest.approx(acceptance)
    assert np.mean(tokens > 1) == pytest.approx(acceptance, abs=error)
    drawn = rng.choice(WORDS, ROUNDS, p=q)
    measured = law.acceptance_rate(jnp.log(p[drawn]), jnp.log(q[drawn]))
    assert float(measured) == pytest.approx(acceptance, abs=error)

    expected = float(law.bonus_yield(jnp.asarray(acceptance), jnp.asarray(1.0 * DRAFTS)))
    assert tokens.mean() == pytest.approx(expected, abs=5 * tokens.std() / np.sqrt(ROUNDS))


def test_a_curve_is_what_positions_measure():
    """Acceptance that falls with the position: the yield, and back from yields."""
    curve = np.array([0.9, 0.7, 0.5, 0.3])
    rng = np.random.default_rng(0)
    tokens = 1 + np.cumprod(rng.random((ROUNDS, 4)) < curve, axis=1).sum(axis=1)
    ours = [float(law.curve_yield(jnp.asarray(curve), jnp.asarray(1.0 * g))) for g in range(1, 5)]
    assert tokens.mean() == pytest.approx(ours[-1], abs=5 * tokens.std() / np.sqrt(ROUNDS))
    reached = jnp.asarray(np.diff([1.0, *ours]))
    np.testing.assert_allclose(law.acceptance_by_position(reached), curve, rtol=1e-12)
