"""Servers whose steps with prompts decode nobody, beside events one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics import scheduling
from tests.unit.physics.derivatives import PROGRAM

DECODE, FIXED, EACH, FRESH, OUTPUT = 0.01, 0.015, 0.002, 100.0, 20
KINDS = scheduling.Kinds(*(jnp.asarray([x]) for x in (1.0, FRESH, 0.0, float(OUTPUT))))


def step(decoding, prompts, new, cached):
    """Seconds of a decode step, and of a step of prompts after it."""
    fed = prompts * new
    return DECODE + jnp.where(fed > 0, FIXED + EACH * fed / FRESH, 0.0)


def tpot(rate, slots):
    limits = (jnp.asarray(x) for x in (16384.0, slots, 1e9))
    server = scheduling.ServerLimits(*limits, prompts_first=1.0)
    return scheduling.open_loop(step, KINDS, server, rate).tpot


_law = jax.jit(jax.value_and_grad(tpot), compiler_options=PROGRAM)


def law(rate, slots=1024.0):
    return _law(rate, slots)


def replayed(rate, slots=1024, count=40_000):
    """Mean TPOT (s) of a server that takes all prompts that it has slots for, and else decodes."""
    arrivals = np.cumsum(np.random.default_rng(0).exponential(1.0 / rate, count))
    now, come, running, times = 0.0, 0, [], []
    while come < count or running:
        waiting = int(np.searchsorted(arrivals, now, side="right")) - come
        waiting = min(waiting, slots - len(running))
        if waiting:
            now, come = now + FIXED + EACH * waiting, come + waiting
            running += [(now, OUTPUT - 1)] * waiting
        elif running:
            now += DECODE
            times += [(now - first) / (OUTPUT - 1) for first, left in running if left == 1]
            running = [(first, left - 1) for first, left in running if left > 1]
        else:
            now = arrivals[come]
    return np.mean(times[len(times) // 10 :])


@pytest.mark.parametrize("rate", [0.5, 10.0, 40.0, 80.0])
def test_decoding_halts_as_in_events(rate):
    assert float(law(rate)[0]) == pytest.approx(replayed(rate), rel=0.08)


@pytest.mark.parametrize(("rate", "slots"), [(180.0, 1024), (160.0, 200)])
def test_prompts_halt_decoding_until_no_slot_is_left(rate, slots):
    """At half of the capacity; by arrivals alone more would decode than there are slots.

    The law is a little long: a slot that was left stays free until a prompt comes.
    """
    events = replayed(rate, slots, 20_000)
    assert events <= float(law(rate, float(slots))[0]) <= 1.15 * events


@pytest.mark.parametrize("rate", [0.0, 1e-6, 30.0, 80.0, 1e6])
def test_slopes_are_finite_and_right(rate):
    slope = float(law(rate)[1])
    assert np.isfinite(slope)
    if 1.0 < rate < 1e3:
        above, below = (float(law(rate * (1.0 + x))[0]) for x in (1e-3, -1e-3))
        assert slope == pytest.approx((above - below) / (2e-3 * rate), rel=0.02)
