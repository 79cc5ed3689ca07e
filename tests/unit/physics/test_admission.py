"""Requests that run and wait beside draws of how many the cache holds."""

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics.scheduling import CacheLimit, ServerLimits
from infer_jax.physics.scheduling.admission import admit

CASES = ((50.0, 40.0, 0.3), (60.0, 60.0, 1.0), (30.0, 40.0, 0.5), (90.0, 80.0, 0.0))


@pytest.mark.parametrize(("flight", "limit", "varied"), CASES)
def test_waiting_requests_have_the_mean_and_variance_of_draws(flight, limit, varied):
    server = ServerLimits(*map(jnp.asarray, (8192.0, 70.0, 1e6)))
    held = CacheLimit(jnp.asarray(limit), jnp.asarray(varied), jnp.ones(1))
    found = admit(jnp.asarray(flight), server, held)
    wanted = min(flight, 70.0)
    deviation = np.sqrt(varied * min(wanted, limit)) + 1e-3
    places = np.random.default_rng(0).normal(limit, deviation, 400_000)
    short = np.maximum(wanted - places, 0.0)
    assert float(found.wait) == pytest.approx(short.mean() + flight - wanted, rel=0.01, abs=0.01)
    assert float(found.varied) == pytest.approx(short.var(), rel=0.02, abs=0.02)
    assert float(found.run + found.wait) == pytest.approx(flight, rel=1e-6)
