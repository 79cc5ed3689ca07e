"""Steps of the search: they shrink from the first size to the last."""

import jax.numpy as jnp
import pytest

from infer_jax.design.ascent import FAST, SLOW, _optimiser

pytest.importorskip("optax")


def test_the_last_step_is_small():
    """Under a constant gradient Adam's step is its rate."""
    steps, x = 40, jnp.zeros(1)
    adam = _optimiser("adam", steps)
    state, sizes = adam.init(x), []
    for _ in range(steps + 1):
        step, state = adam.update(jnp.ones(1), state, x)
        sizes.append(-float(step[0]))
    assert sizes[0] == pytest.approx(FAST, rel=1e-3)
    assert sizes[-1] == pytest.approx(SLOW, rel=1e-3) and FAST > 10 * SLOW
    assert sizes == sorted(sizes, reverse=True)
