"""Seconds of many decode steps in a row, between which only the context grows.

Between two events every step reads ``decoding`` tokens more than the one before. Its time is a
smooth function of the context, which a polynomial through ``NODES`` points follows; the sum over
steps is the integral of that polynomial, corrected for the midpoint rule (Euler and Maclaurin; for
polynomials of this degree the correction is exact):

    h sum_j q(t_j) = integral of q - h^2/24 q'' + 7 h^4/5760 q''''

With five points the sum over up to 512 steps differs from the step-by-step one by less than 1e-12
of it where the step time is smooth (``tests/unit/replays/test_serve.py``); one step is exact.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

StepTime = Callable[[Array, Array, Array, Array], Array]  # decoding, context, new, pairs -> s
NODES = 5
LONGEST = 512  # steps summed at once
TOLERANCE = 1e-5  # share of a run: where Newton's step was shorter, the next would be 1e-10 or less

_POINTS, _ = np.polynomial.legendre.leggauss(NODES)
_FIT = np.linalg.inv(np.vander(_POINTS, NODES, increasing=True))


class DecodeRun(NamedTuple):
    """Steps that follow each other: how many (at most), and the coefficients of their sum."""

    count: Int[Array, ""]
    sum: tuple[Float[Array, ""], ...]  # of t, t^2, ...: t is -1 before the first and 1 at the end


def decode_run(
    step: StepTime,
    decoding: Array,
    context: Array,
    new: Array,
    pairs: Array,
    count: Array,
    grows: Array | None = None,
) -> DecodeRun:
    """``count`` steps in a row, of which only those without new tokens may be more than one.

    The context grows by ``grows`` tokens from one to the next: where not given, one for each of
    ``decoding`` requests.
    """
    kind = pairs.dtype
    length, requests = count.astype(kind), decoding.astype(kind)
    grow = requests if grows is None else grows.astype(kind)
    at = 0.5 * (length * jnp.asarray(_POINTS, kind) + length - 1.0)
    seconds = step(requests, context.astype(kind) + grow * at, new.astype(kind), pairs)
    fit = jnp.asarray(_FIT, kind)
    q = [jnp.sum(fit[i] * seconds) for i in range(NODES)]
    h2 = (2.0 / length) ** 2
    q[0] = q[0] - h2 / 12.0 * q[2] + 7.0 * h2**2 / 240.0 * q[4]
    q[1] = q[1] - h2 / 4.0 * q[3]
    q[2] = q[2] - h2 / 2.0 * q[4]
    half = 0.5 * length
    return DecodeRun(count, tuple(half * x / (i + 1) for i, x in enumerate(q)))


def run_time(s: DecodeRun, steps: Array) -> Float[Array, ""]:
    """Seconds that the first ``steps`` steps take; a real number of them is in between."""
    t = 2.0 * steps / s.count.astype(s.sum[0].dtype) - 1.0
    return _power_sum(s, t) - _power_sum(s, -1.0)


def steps_until(s: DecodeRun, seconds: Array) -> Int[Array, ""]:
    """The step at whose end at least ``seconds`` have passed, counted from 1: Newton's method."""
    kind = s.sum[0].dtype
    count = s.count.astype(kind)
    begin = _power_sum(s, -1.0)
    longest = _power_sum(s, 1.0) - begin
    target = jnp.clip(seconds, 0.0, longest)
    t = 2.0 * target / longest - 1.0

    def newton(at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        step = (_power_sum(s, at[0]) - begin - target) / _slope(s, at[0])
        return at[0] - step, jnp.abs(step), at[2] + 1

    first = newton((t, t, jnp.zeros_like(s.count)))
    t = lax.while_loop(lambda at: (at[1] > TOLERANCE) & (at[2] < 3), newton, first)[0]
    # an arrival at the very end of a step is seen there: what rounding adds is no step more
    tiny = 1e-9 if kind == jnp.float64 else 1e-4
    steps = jnp.ceil(0.5 * (t + 1.0) * count - tiny).astype(jnp.int32)
    return jnp.clip(steps, 1, s.count)


def _power_sum(s: DecodeRun, t: Array | float) -> Array:
    total = s.sum[-1]
    for x in s.sum[-2::-1]:
        total = total * t + x
    return total * t


def _slope(s: DecodeRun, t: Array) -> Array:
    total = NODES * s.sum[-1]
    for i in range(NODES - 2, -1, -1):
        total = total * t + (i + 1) * s.sum[i]
    return total
