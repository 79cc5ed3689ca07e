"""Slopes along a path that is held: against differences of whole replays, and without NaN."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from infer_jax.replays import (
    GuaranteedNoEvict,
    Preempting,
    PrefillFirst,
    Requests,
    path_gradient,
    replay,
)

pytestmark = pytest.mark.usefixtures("x64")

SIZES = {"budget": 256, "slots": 8, "blocks": 60, "block": 16}
RULES = {
    "whole lives": GuaranteedNoEvict.of(**SIZES),
    "preempting": Preempting.of(**SIZES),
    "preempting, passes ahead": Preempting.of(**SIZES, overlap=1),
    "prefill first": PrefillFirst.of(**SIZES | {"block": 1, "blocks": 960}),
}
COEFFICIENTS = np.array([1e-3, 8e-3, 4e-8, 5e-5, 2e-9])


def step(c, decoding, context, new, pairs):
    memory, compute = c[1] + c[2] * context, c[3] * (decoding + new) + c[4] * pairs
    return c[0] + jnp.sqrt(memory**2 + compute**2)


def requests(rate, seed: int = 0, count: int = 60) -> Requests:
    """Arrivals of unit gaps over ``rate``; lengths drawn once."""
    rng = np.random.default_rng(seed)
    drawn = Requests.of(
        np.cumsum(rng.exponential(1.0, count)),
        rng.integers(20, 200, count),
        rng.integers(1, 60, count),
    )
    return drawn._replace(arrival=jnp.asarray(drawn.arrival) / rate)


def means(log):
    return jnp.stack([log.mean(log.ttft), log.mean(log.tpot), log.mean(log.latency)])


@partial(jax.jit, static_argnames="closed")
def played(coefficients, rate, rules, closed=False):
    concurrency = jnp.asarray(5, jnp.int32) if closed else None
    given = requests(rate)
    log = replay(Partial(step, coefficients), rules, given, concurrency, width=8, turns=1024)
    return log, means(log)


@partial(jax.jit, static_argnames="closed")
def slopes(coefficients, rate, log, closed=False):
    concurrency = jnp.asarray(5, jnp.int32) if closed else None

    def again(c, r):
        return means(path_gradient(Partial(step, c), log, requests(r), concurrency))

    reverse = jax.jacrev(again, (0, 1))(coefficients, rate)
    return again(coefficients, rate), reverse, jax.jacfwd(again, (0, 1))(coefficients, rate)


@pytest.mark.parametrize(
    ("name", "closed"),
    [("preempting", True), ("preempting, passes ahead", False), ("prefill first", True)],
)
def test_slopes_where_the_path_does_not_change(name, closed):
    """Differences over 1e-7 of a number, where both sides go through the same events."""
    rules, rate = RULES[name], jnp.asarray(12.0)
    log, exact = played(COEFFICIENTS, rate, rules, closed)
    assert log.complete
    same, reverse, forward = slopes(COEFFICIENTS, rate, log, closed)
    np.testing.assert_allclose(same, exact, rtol=1e-10)
    for a, b in zip(reverse, forward, strict=True):
        assert np.all(np.isfinite(a))
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)
    for i in range(len(COEFFICIENTS) + 1):
        up = np.zeros(len(COEFFICIENTS) + 1)
        up[i] = 1e-7
        sides = [
            played(COEFFICIENTS * (1 + side * up[:-1]), rate * (1 + side * up[-1]), rules, closed)
            for side in (-1, 1)
        ]
        for held in ("count", "decoding", "fed", "jump"):
            for other, _ in sides:
                np.testing.assert_array_equal(getattr(other.path, held), getattr(log.path, held))
        x = float(rate) if i == len(COEFFICIENTS) else float(COEFFICIENTS[i])
        difference = (sides[1][1] - sides[0][1]) / (2e-7 * x)
        ours = reverse[1] if i == len(COEFFICIENTS) else reverse[0][:, i]
        scale = np.abs(exact) / x
        np.testing.assert_allclose(ours / scale, difference / scale, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["whole lives", "preempting, passes ahead"])
def test_slopes_in_phase(name):
    """All coefficients times k are all waits times k (Euler): sum of c dT/dc is T."""
    log, exact = played(COEFFICIENTS, jnp.asarray(12.0), RULES[name])
    log = log._replace(cached=jnp.arange(len(log.output)))  # which stays with the same events

    def again(c):
        log_again = path_gradient(Partial(step, c), log, requests(12.0), phase=True)
        return means(log_again), log_again.cached

    same, cached = again(COEFFICIENTS)
    slope, _ = jax.jit(jax.jacfwd(again))(jnp.asarray(COEFFICIENTS))
    np.testing.assert_allclose(same, exact, rtol=1e-10)
    np.testing.assert_allclose(slope @ COEFFICIENTS, exact, rtol=1e-9)
    np.testing.assert_array_equal(cached, log.cached)


def test_a_step_without_a_slope_at_nothing():
    """A root of what is fed: infinite slope at 0, which no pass of a replay feeds."""

    def rooted(c, decoding, context, new, pairs):
        return jnp.sqrt(c[0] * (decoding + new)) + c[1] * context

    log, _ = played(COEFFICIENTS, jnp.asarray(12.0), RULES["whole lives"])

    @jax.jit
    def both(coefficients):
        def again(c):
            return means(path_gradient(Partial(rooted, c), log, requests(12.0)))

        return jax.jacrev(again)(coefficients), jax.jacfwd(again)(coefficients)

    for slope in both(jnp.asarray([1e-6, 1e-7])):
        assert np.all(np.isfinite(slope)) and np.all(slope[0] > 0.0)
