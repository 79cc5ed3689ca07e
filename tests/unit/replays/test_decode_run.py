"""Steps summed at once: against the sum step by step, and where a time falls among them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.replays.decode_run import LONGEST, decode_run, run_time, steps_until

MEMORY = (4e-3, 2e-8)  # seconds, and per token read
COUNTS = (1, 2, 3, 7, 40, 511, LONGEST)


def step(decoding, context, new, pairs):
    memory, compute = MEMORY[0] + MEMORY[1] * context, 2e-5 * (decoding + new) + 1e-9 * pairs
    return 1e-4 + (memory**3 + compute**3) ** (1.0 / 3.0)


@jax.jit
def both(decoding, context, count, seconds):
    """Seconds of all steps, and the step at which ``seconds`` have passed."""
    zero = jnp.zeros_like(decoding)
    passes = decode_run(step, decoding, context, zero, seconds * 0.0, count)
    return run_time(passes, count.astype(seconds.dtype)), steps_until(passes, seconds)


def by_steps(decoding, context, count):
    return np.cumsum(step(decoding, context + decoding * np.arange(count, dtype=float), 0, 0.0))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("decoding", "context"), [(1, 2), (60, 60 * 100), (250, 250 * 3000)])
def test_the_sum_over_steps(x64, decoding, context, count):
    exact = by_steps(decoding, context, count)
    given = (jnp.asarray(x, jnp.int32) for x in (decoding, context, count))
    whole, _ = both(*given, jnp.asarray(0.0))
    assert float(whole) == pytest.approx(exact[-1], rel=1e-12)


def test_the_step_at_which_time_has_passed(x64):
    """A hundred moments between the first and the last end, and those ends themselves."""
    ends = by_steps(40, 40 * 500, 300)
    moments = np.concatenate([np.linspace(0.0, ends[-1], 100), ends[[0, 17, 150]]])
    given = [jnp.asarray(x, jnp.int32) for x in (40, 40 * 500, 300)]
    for moment in moments:
        expected = np.searchsorted(ends * (1 + 1e-13), moment) + 1
        assert int(both(*given, jnp.asarray(moment))[1]) == min(expected, 300)
