"""A run of some waves of requests takes as long as its passes, counted one by one."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics.scheduling import interference
from infer_jax.specs import UNBOUNDED

from .derivatives import agree_at, finite_at

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
