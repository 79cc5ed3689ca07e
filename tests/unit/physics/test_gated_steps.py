"""Waits in steps that feed every prompt that came during the one before, against a simulation."""

from bisect import bisect
from functools import cache
from math import ceil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics import scheduling
from infer_jax.physics.scheduling.queueing import single_server_wait
from tests.unit.physics.derivatives import PROGRAM

pytestmark = pytest.mark.usefixtures("x64")
WEIGHTS = np.array([0.4, 0.3, 0.2, 0.1])
TOKENS = np.array([300.0, 800.0, 1500.0, 3000.0])
BASE, EACH = 0.02, 1e-4  # seconds of a step, and of a prompt token in it
COUNT = 60_000


def step(decoding, prompts, new, cached):
    return BASE + EACH * prompts * new + 0.0 * (decoding + cached)


def found(rate, variability):
    """The law's answer; outputs are so long that somebody always decodes."""
    kinds = scheduling.Kinds(*map(jnp.asarray, (WEIGHTS, TOKENS, 0.0 * TOKENS, 1e5 + 0.0 * TOKENS)))
    server = scheduling.ServerLimits(*map(jnp.asarray, (1e9, 1e9, 1e15)))
    return scheduling.open_loop(step, kinds, server, rate, variability)


law = jax.jit(found, compiler_options=PROGRAM)


@cache
def simulated(rate, variability):
    """Seconds to the first token of prompts whose gaps are gamma.

    Steps without prompts, of one length each, are counted and not gone through.
    """
    draw = np.random.default_rng(11)
    arrival = np.cumsum(draw.gamma(1.0 / variability, variability / rate, COUNT))
    cost = EACH * draw.choice(TOKENS, COUNT, p=WEIGHTS)
    until, fed = arrival.tolist(), np.r_[0.0, np.cumsum(cost)].tolist()
    begin = end = 0
    clock, times = 0.0, np.zeros(COUNT)
    while end < COUNT:
        if begin == end:
            clock += BASE * max(ceil((until[end] - clock) / BASE), 1)
        else:
            clock += BASE + fed[end] - fed[begin]
            times[begin:end] = clock - arrival[begin:end]
        begin, end = end, bisect(until, clock)
    return times[: begin or COUNT]


# loads of 0.1 to 0.7; before, the deviation of Poisson's was a sixth to a fifth short
@pytest.mark.parametrize(
    ("variability", "mean", "tail"), [(1.0, 0.03, 0.08), (2.0, 0.12, 0.16), (0.25, 0.2, 0.2)]
)
def test_means_and_percentiles_are_those_of_a_simulation(variability, mean, tail):
    for rate in (1.0, 3.0, 6.0):
        answer, times = law(*map(jnp.asarray, (rate, variability))), simulated(rate, variability)
        assert float(answer.ttft) == pytest.approx(times.mean(), rel=mean)
        assert float(answer.ttft_at[-1]) == pytest.approx(np.quantile(times, 0.99), rel=tail)
        if variability == 1.0:
            assert float(answer.ttft_at[1]) == pytest.approx(np.quantile(times, 0.9), rel=0.05)


def test_regular_arrivals_before_one_server_wait_as_lindleys():
    """Gaps of variability 1/4 before services of one length, and of two: simulated waits."""
    draw, load = np.random.default_rng(3), 0.7
    two = draw.choice([0.5, 3.0], COUNT, p=[0.8, 0.2])
    for service, near in ((np.ones(COUNT), 0.22), (two, 0.12)):
        gaps = draw.gamma(4.0, 0.25 / load, COUNT)
        waits, wait = np.zeros(COUNT), 0.0
        for i in range(1, COUNT):
            wait = max(wait + service[i - 1] - gaps[i], 0.0)
            waits[i] = wait
        numbers = map(jnp.asarray, (load, 1.0, np.mean(service**2), load, 0.25))
        assert float(single_server_wait(*numbers)) == pytest.approx(waits.mean(), rel=near)
