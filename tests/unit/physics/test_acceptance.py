"""The acceptance of drafted tokens: the mean of min(1, p/q), and its gradient everywhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics.speculation import acceptance_rate


def test_equal_models_accept_all_and_disjoint_ones_nothing():
    logp = jnp.log(jnp.array([0.2, 0.5]))
    assert float(acceptance_rate(logp, logp)) == 1.0
    assert float(acceptance_rate(jnp.full(2, -jnp.inf), logp)) == 0.0


@pytest.mark.usefixtures("x64")
def test_gradient():
    logp, logq = jnp.array([-2.0, -1.0, -3.0]), jnp.array([-1.0, -2.0, -3.0])
    slope = jax.grad(acceptance_rate)(logp, logq)
    step = 1e-6
    ordinary = [
        (acceptance_rate(logp.at[i].add(step), logq) - acceptance_rate(logp.at[i].add(-step), logq))
        / (2 * step)
        for i in (0, 1)
    ]
    np.testing.assert_allclose(slope[:2], ordinary, atol=1e-8)
    assert float(slope[2]) == pytest.approx(0.5 / 3)  # at p = q half of the slope on its one side
    assert float(jax.grad(acceptance_rate)(jnp.array([-jnp.inf]), jnp.array([-1.0]))[0]) == 0.0
