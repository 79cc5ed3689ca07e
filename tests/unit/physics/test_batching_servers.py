"""Servers that batch, of closed loops and of arrivals: Little's law, limits and gradients."""

from contextlib import nullcontext
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics import scheduling
from tests.unit.physics.derivatives import PROGRAM, numbers

pytestmark = pytest.mark.usefixtures("x64")


# a server: 1 ms and 8 ms of weights beside what is computed, and what is read of the cache


def step(decoding, prompts, new, cached):
    fed = prompts * new
    memory = 8e-3 + 2e-5 * decoding
    compute = 4e-5 * (decoding + fed) + 1e-9 * fed * (cached + new / 2.0)
    return 1e-3 + (memory**3 + compute**3) ** (1.0 / 3.0)


def served(isl, osl, budget, slots, cache, amount, variability=None):
    """A ``Service`` of requests of one length; open where a variability is given."""
    one = jnp.ones(1)
    kinds = scheduling.Kinds(one, isl * one, 0.0 * one, osl * one)
    server = scheduling.ServerLimits(budget, slots, cache)
    if variability is None:
        return scheduling.closed_loop(step, kinds, server, amount)
    return scheduling.open_loop(step, kinds, server, amount, variability)


served_by = jax.jit(served, compiler_options=PROGRAM)
MACHINE = (900.0, 200.3, 2048.0, 61.3, 80000.0)  # its cohorts are not just full


def test_a_closed_loop_obeys_littles_law():
    for amount in (7.3, 40.2, 55.0, 90.0):
        s = served_by(*numbers(*MACHINE, amount))
        assert float(s.rate * s.latency) == pytest.approx(amount, rel=0.02)
        assert float(s.running) <= MACHINE[3]


LOOPS = {"closed": 41.3, "open": 4.1}


def all_times(s):
    """One number out of all that a ``Service`` answers."""
    return jnp.log(s.ttft) + jnp.log(s.tpot) + jnp.log(s.ttft_at[-1]) + 0.1 * jnp.log(s.capacity)


def variability(loop):
    return None if loop == "closed" else jnp.asarray(1.7)


def value(loop, *point):
    return float(all_times(served_by(*numbers(*point), variability(loop))))


@cache
def slopes(loop, mode):
    """The program of value and derivatives, in reverse mode or along the point itself."""

    def law(*point):
        return all_times(served(*point, variability=variability(loop)))

    def forward(*point):
        return jax.jvp(law, point, point)

    made = jax.value_and_grad(law, tuple(range(6))) if mode == "reverse" else forward
    return jax.jit(made, compiler_options=PROGRAM)


@pytest.mark.parametrize("loop", LOOPS)
def test_gradients_are_those_of_differences(loop):
    point = [*MACHINE, LOOPS[loop]]
    reverse = [float(x) for x in slopes(loop, "reverse")(*numbers(*point))[1]]
    for i, x in enumerate(point):
        up, down = (value(loop, *point[:i], x * (1 + h), *point[i + 1 :]) for h in (1e-5, -1e-5))
        assert reverse[i] * x == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-5), i
    if loop == "closed":
        along = slopes(loop, "forward")(*numbers(*point))[1]
        both = sum(g * x for g, x in zip(reverse, point, strict=True))
        assert float(along) == pytest.approx(both, rel=1e-8)


AMOUNTS = {"closed": (1.0, 60.0, 100.0, 1e4), "open": (0.0, 1e-6, 5.0, 12.0, 1e3)}
BAD = [(900.0, 1.0), (1.0, 1.0), (1.0, 300.0), (30000.0, 5.0), (4096.0, 200.0)]


# in CI float32 has values alone: six hundred servers of test_loops
@pytest.mark.parametrize(
    ("loop", "wide", "mode"),
    [
        ("closed", True, "reverse"),
        ("open", True, "reverse"),
        *(
            pytest.param(loop, False, mode, marks=pytest.mark.slow)
            for loop in LOOPS
            for mode in ("forward", "reverse")
        ),
    ],
)
def test_values_and_gradients_are_finite_up_to_and_beyond_saturation(loop, wide, mode):
    points = [(*MACHINE, amount) for amount in AMOUNTS[loop]]
    points += [(isl, osl, *MACHINE[2:], AMOUNTS[loop][1]) for isl, osl in BAD]
    points += [(*MACHINE[:2], 1e9, *MACHINE[3:], AMOUNTS[loop][1])]
    with nullcontext() if wide else jax.enable_x64(False):  # another context is another program
        for point in points:
            found, slope = slopes(loop, mode)(*numbers(*point))
            assert np.isfinite(found) and np.all(np.isfinite(slope)), (point, found, slope)
            assert found.dtype == (np.float64 if wide else np.float32)


@pytest.mark.parametrize("wide", [True, False], ids=["float64", "float32"])
def test_a_server_without_limits_on_sequences_is_full_when_its_cache_is(wide):
    """Twenty requests of 1,100 tokens fit; slots are as many as may be declared."""
    with nullcontext() if wide else jax.enable_x64(False):
        s = served_by(*numbers(900, 200, 2048, 2.0**40, 22000, 1.0, 1.0))
        few = served_by(*numbers(900, 200, 2048, 19.5, 1e9, 1.0, 1.0))
    assert float(s.limit) == pytest.approx(19.5, abs=0.6)
    assert float(s.capacity) == pytest.approx(float(few.capacity), rel=0.03)
