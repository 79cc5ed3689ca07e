"""Waits for the cache, for other attention groups and of a run's start, beside draws and rules."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics.scheduling import CacheLimit, ServerLimits, interference
from infer_jax.physics.scheduling.admission import admit, balance_wait
from infer_jax.specs import UNBOUNDED

from .derivatives import agree_at, finite_at, numbers

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


STEP, TOKEN = 10e-3, 5e-6  # seconds of a pass, and of a prompt's token


def run(outputs, places, prompt, budget, each):
    """Seconds of all requests: decodes first, prompts in order with what is left of ``budget``."""
    queue, active, seconds = list(outputs), [], 0.0
    while queue or active:
        while len(active) < places and queue:
            active.append([prompt, queue.pop(0)])
        decoding = [one for one in active if one[0] == 0]
        room = fed = budget - len(decoding)
        for one in active:
            taken = min(room, one[0])
            room, one[0] = room - taken, one[0] - taken
            if taken and one[0] == 0:
                one[1] -= 1
        for one in decoding:
            one[1] -= 1
        seconds += STEP + each * len(decoding) + TOKEN * (fed - room)
        active = [one for one in active if one[1] > 0]
    return seconds


@pytest.mark.parametrize(("equal", "within"), [(True, 0.015), (False, 0.08)])
@pytest.mark.parametrize("waves", [0.5, 1.0, 1.4, 2.9])
def test_a_run_is_as_long_as_its_passes(equal, waves, within):
    """A request's seconds in a server that runs on are those of the later ones of a long run."""
    rng = np.random.default_rng(1)
    for places, prompt, output in ((20, 500, 60), (30, 3000, 40), (16, 64, 90)):
        count, each = round(waves * places), 0.5 * STEP / places
        running = min(count, places)
        low = output if equal else round(0.8 * output)
        outputs = rng.integers(low, output + 1, 12 * running).tolist()
        sizes = (12 * running, 6 * running)
        long, short = (run(outputs[:n], running, prompt, 2048, each) for n in sizes)
        mean = float(np.mean(outputs))
        room = 2048 - running * mean / (mean + prompt / 2048)
        period, feeding = mean - 1 + math.ceil(prompt / room), running * prompt / room
        numbers = map(jnp.asarray, (max(waves, 1.0), period, feeding, equal))
        beyond = interference.passes_beyond(*numbers)
        expected = run(outputs[:count], places, prompt, 2048, each)
        steady = count * (long - short) / (6 * running)
        assert steady + float(beyond) * STEP == pytest.approx(expected, rel=within)


@pytest.mark.parametrize("waves", [1.0, 1.25, 1.6, 2.0, 10.0])
def test_the_median_of_a_start_is_that_of_its_requests(waves):
    """b of w b requests wait for 0 to b - 1 prompts of ``TOKEN`` seconds, the others for none."""
    running = 4000
    waits = np.zeros(round(waves * running))
    waits[:running] = TOKEN * np.arange(running)
    mean = interference.first_wave(jnp.asarray(float(running)), jnp.asarray(TOKEN), waves)
    assert float(mean) == pytest.approx(waits.mean(), rel=1e-5)
    median = float(interference.median_of_wave(mean, waves))
    assert median == pytest.approx(np.median(waits), rel=2e-3, abs=1e-9) and median <= float(mean)


def test_slopes_of_the_median_of_a_start(x64):
    agree_at(interference.median_of_wave, *((0.2, x) for x in (1.0, 1.3, 1.9, 3.0, UNBOUNDED)))
    finite_at(interference.median_of_wave, (0.0, 1.0), (0.2, 2.0), (0.0, UNBOUNDED))


def test_its_slopes_are_finite():
    for point in ((1.0, 100.0, 0.0), (2.0, 100.0, 100.0), (1.5, 1.0, 1e9), (1e12, 10.0, 3.0)):
        for equal in (True, False):
            slopes = jax.grad(interference.passes_beyond, argnums=(0, 1, 2))(*point, equal)
            assert np.all(np.isfinite(slopes))
    one = jax.grad(interference.passes_beyond, argnums=(0, 1, 2))(1.4, 100.0, 30.0, True)
    np.testing.assert_allclose(one, (-70.0, 0.6, 0.4), rtol=1e-5)
