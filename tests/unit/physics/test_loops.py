"""Loops of a server that batches, on hundreds of random servers: what must hold of any of them.

All servers of a test are one compiled program. The draws are seeded here: a search that picks its
examples by what else is imported would try other ones in another order of tests.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics import scheduling
from tests.unit.physics.derivatives import PROGRAM
from tests.unit.physics.test_batching_servers import step

pytestmark = pytest.mark.usefixtures("x64")
SERVERS = 600


def served(isl, osl, budget, slots, cache, variability, launch, amount, loop="open"):
    """A ``Service`` of requests of one length; a step with prompts takes ``launch`` s longer."""
    one = jnp.ones(1)
    kinds = scheduling.Kinds(one, isl * one, 0.0 * one, osl * one)
    server = scheduling.ServerLimits(budget, slots, cache)

    def law(decoding, prompts, new, cached):
        more = jnp.where(prompts * new > 0.0, launch, 0.0)
        return step(decoding, prompts, new, cached) + more

    if loop == "closed":
        return scheduling.closed_loop(law, kinds, server, amount)
    return scheduling.open_loop(law, kinds, server, amount, variability)


opened = jax.jit(jax.vmap(served), compiler_options=PROGRAM)
closed = jax.jit(jax.vmap(lambda *x: served(*x, loop="closed")), compiler_options=PROGRAM)


def wide(seed):
    """Servers as unlike as may be: in four of ten, slots are as many as tokens of a step."""
    rng = np.random.default_rng(seed)

    def between(low, high):
        return np.exp(rng.uniform(np.log(low), np.log(high), SERVERS))

    budget = 2.0 ** rng.integers(9, 15, SERVERS)
    slots = np.where(rng.random(SERVERS) < 0.4, budget, np.minimum(between(1, 8192), budget))
    isl, osl = between(1, 32000), between(1, 4000)
    cache = np.where(rng.random(SERVERS) < 0.5, 1e9, (isl + osl) * between(1, 1e4))
    return isl, osl, budget, slots, cache, between(0.25, 8), between(1e-4, 1e-1)


def usual(seed):
    """Servers of 4 to 256 slots and room for all."""
    rng = np.random.default_rng(seed)
    isl, osl = rng.uniform(50, 6000, SERVERS), rng.uniform(2, 800, SERVERS)
    budget = rng.choice([512.0, 2048.0, 8192.0], SERVERS)
    slots = rng.uniform(4, 256, SERVERS)
    none, room = np.zeros(SERVERS), np.full(SERVERS, 1e7)
    return isl, osl, budget, slots, room, rng.uniform(0.25, 4, SERVERS), none


def capacity(servers):
    return np.asarray(opened(*servers, np.full(SERVERS, 1e-6)).capacity)


def test_requests_in_flight_are_rate_times_latency():
    """Little's law (1961), to 0.1 %: of the times that a user reads, TTFT and TPOT."""
    servers = wide(0)
    rate = np.random.default_rng(1).uniform(0.02, 0.8, SERVERS) * capacity(servers)
    s = opened(*servers, rate)
    latency = s.ttft + s.tpot * jnp.maximum(servers[1] - 1.0, 0.0)
    np.testing.assert_allclose(s.running + s.waiting, rate * latency, rtol=1e-3)
    assert np.all(s.running <= s.limit * (1.0 + 1e-12))
    np.testing.assert_allclose(s.rate, rate, rtol=1e-12)


def test_more_load_is_never_faster():
    servers = usual(2)
    load = np.random.default_rng(3).uniform(0.05, 0.9, SERVERS)
    full = capacity(servers)
    low, high = (opened(*servers, part * full) for part in (load, load + 0.05))
    for name in ("ttft", "latency", "decoding"):
        assert np.all(getattr(high, name) >= getattr(low, name) * (1.0 - 1e-3)), name
    # near saturation of few slots, TPOT is that of those who have one: it may level off
    assert np.all(high.tpot >= low.tpot * (1.0 - 0.06))
    assert np.mean(high.tpot >= low.tpot * (1.0 - 1e-3)) > 0.995
    few, more = (closed(*servers, part * servers[3]) for part in (load, load + 0.05))
    assert np.all(more.rate >= few.rate * (1.0 - 1e-9))


def test_a_step_in_lockstep_is_no_emptier_than_the_mean_step():
    """At most a step of 512 tokens after the other, each with 1.68 prompts of 303 tokens."""
    one = np.ones(SERVERS)  # seven loads, in the program of the others
    given = (303.0 * one, 2.0 * one, 512.0 * one, 8.0 * one, 1e7 * one, one, 0.0 * one)
    rate = np.asarray(closed(*given, np.resize(np.linspace(3.5, 6.5, 7), SERVERS)).rate)[:7]
    fastest = 1.6842 / float(step(1.6842, 1.0, 303.0 * 1.6842, 0.0))
    assert np.all(rate <= 1.01 * fastest) and rate[-1] >= 0.97 * fastest


def test_single_precision_is_finite_and_agrees():
    """At rest, at loads up to 0.8, and at several times the capacity."""
    servers = wide(4)
    rate = np.random.default_rng(5).uniform(0.02, 0.8, SERVERS) * capacity(servers)
    rate = rate * np.resize([1.0, 0.0, 5.0], SERVERS)
    double = opened(*servers, rate)
    with jax.enable_x64(False):
        single = opened(*(np.asarray(x, np.float32) for x in (*servers, rate)))
    for name in ("ttft", "tpot", "latency", "decoding", "running", "rate", "capacity"):
        result, expected = (np.asarray(getattr(s, name)) for s in (single, double))
        assert np.all(np.isfinite(result)), name
        near = np.isclose(result, expected, rtol=1e-2, atol=1e-9)
        assert np.mean(near) > 0.995, name  # a chunk or a cohort more is a jump
    assert all(np.all(np.isfinite(t)) for t in single.ttft_at)
