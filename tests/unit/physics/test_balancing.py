"""Waits of prompts for those of other attention groups, beside the engine's rule pass by pass."""

import jax
import numpy as np
import pytest

from infer_jax.physics.scheduling.balancing import balance_wait

from .derivatives import agree_at, finite_at, numbers

PASSES = 100_000


def waits_by_rule(arrivals: float, groups: int, timeout: int, seed: int = 0) -> float:
    """Mean wait in passes by the rule of TensorRT-LLM's _balance_adp_requests, all groups decoding.

    In each pass it counts up unless every group has a prompt; at ``timeout`` all go.
    """
    coming = np.random.default_rng(seed).poisson(arrivals, (PASSES, groups))
    waiting, count, waited = np.zeros(groups), 0, 0.0
    for new in coming:
        waited += waiting.sum() + 0.5 * new.sum()  # they come at a random moment of the pass
        waiting += new
        count += 1
        if waiting.all() or count >= timeout:
            waiting[:], count = 0.0, 0
    return waited / coming.sum()


@pytest.mark.parametrize(
    ("arrivals", "groups", "timeout"),
    [(0.001, 8, 60), (0.01, 2, 50), (0.03, 8, 60), (0.07, 4, 60), (0.2, 8, 30)],
)
def test_the_wait_is_that_of_the_rule(arrivals, groups, timeout):
    by_rule = waits_by_rule(arrivals, groups, timeout)
    # the rule looks once a pass, half a pass after the last prompt came on average
    assert abs(float(balance_wait(arrivals, groups, timeout)) - by_rule) < 0.5 + 0.05 * by_rule


def test_it_is_half_the_timeout_at_most_and_nothing_alone():
    rates = np.geomspace(1e-6, 10.0, 40)
    each = jax.jit(jax.vmap(balance_wait, (0, None, None)))
    for groups in (1.0, 2.0, 8.0, 64.0):
        waits = np.asarray(each(rates, groups, 60.0))
        assert (np.diff(waits) <= 1e-4).all() and 0.0 <= waits[-1] <= waits[0] < 30.0 + 1e-4
    assert float(balance_wait(0.1, 1.0, 60.0)) == 0.0
    assert float(balance_wait(0.1, 8.0, 0.0)) == 0.0
    assert float(balance_wait(0.0, 8.0, 60.0)) == pytest.approx(30.0)


def test_its_slopes_are_finite_where_nothing_comes_and_right_elsewhere(x64):
    points = (0.0, 1.0, 0.0), (0.0, 2.0, 60.0), (0.1, 1.0, 60.0), (1e4, 64.0, 1e3)
    finite_at(balance_wait, *(numbers(*point) for point in points))
    # of two groups the other has a prompt within t passes with chance a t: T / 2 - a T^2 / 3
    assert float(jax.jit(jax.grad(balance_wait))(0.0, 2.0, 60.0)) == pytest.approx(-(60.0**2) / 3.0)
    agree_at(balance_wait, numbers(0.05, 4.0, 60.0), numbers(0.3, 2.5, 20.0))
