"""Waiting times in queues: means, and percentiles from exponential tails.

Laws of one queue, in closed form. Loads are shares of capacity. At and beyond capacity the
stationary wait is infinite; ``pole`` goes on along its tangent instead, so that values and
gradients stay finite where a limit beside them says infeasible.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.physics.numerics import square_root
from infer_jax.physics.root import crossing

TANGENT_LOAD = 0.995  # load from which 1 / (1 - load) follows its tangent
SHARPEST = 0.02  # width of a jump in a distribution, as a share of the shortest time
TENTH, STEEP, FLATTER = 0.44, 0.84, 0.4  # how soon after an arrival the excess comes: clustered
SHORTEST = 1e-12  # s, of a service that is told from none
FARTHEST = 40.0  # scales beyond which nothing of a tail is left
FULLEST, CLOSER = 1.0 - 1e-6, 6  # load of a closed loop's queue at most; steps to its rate
RAREST = 1e-6  # deviations that a mean wait is at least taken for: its chance is then 2e-12


def pole(load: Array) -> Array:
    """1 / (1 - load), from a load of ``TANGENT_LOAD`` on along the tangent there.

    >>> float(pole(jnp.asarray(0.5))), bool(pole(jnp.asarray(2.0)) < 1e5)
    (2.0, True)
    """
    far = load > TANGENT_LOAD
    left = 1.0 - jnp.where(far, TANGENT_LOAD, load)
    return 1.0 / left + jnp.where(far, (load - TANGENT_LOAD) / left**2, 0.0)


def single_server_wait(
    rate: Array,
    mean: Array,
    second: Array,
    load: Array,
    variability: Array,
    burst: Array | None = None,
) -> Array:
    """Mean wait (s) before one server that serves in the order of arrival.

    rate E[S^2] / (2 (1 - load)) for Poisson arrivals (Pollaczek and Khinchine), S the time of
    service (``mean`` and ``second`` moment). Of others ``burst`` times that for exponential S,
    exactly, and times 2 (c_a^2 + c_s^2) / ((c_a^2 + 1) (1 + c_s^2)) for other S, c_a^2 the
    ``variability`` of arrivals, c_s^2 that of S: exact in heavy traffic (Kingman 1961,
    Mathematical Proceedings 57). Arrivals more regular than Poisson, and S other than exponential:
    times the exponential of

        -2 (1 - load) (1 - c_a^2)^2 / (3 load) (1 / (c_a^2 + c_s^2) - 1 / (c_a^2 + 1)),

    as Kraemer and Langenbach-Belz have it (1976, 8th International Teletraffic Congress). ``load``
    is given, for it is not rate E[S] where service is faster when more wait; ``burst`` is
    ``bursts(load, variability)`` if not given. Source: Kleinrock, Queueing Systems 1 (1975), 5.6
    and 6.4.
    """
    varied = second + (variability - 1.0) * mean**2
    times = (bursts(load, variability) if burst is None else burst) / (variability + 1.0)
    regular = jnp.maximum(1.0 - variability, 0.0)
    unlike = variability + jnp.maximum(second / jnp.maximum(mean**2, SHORTEST**2) - 1.0, 0.0)
    far = jnp.clip(1.0 - load, 0.0, 1.0) / jnp.maximum(load, 1e-3)
    sooner = 1.0 / jnp.maximum(unlike, 1e-2) - 1.0 / (variability + 1.0)
    less = jnp.exp(-2.0 / 3.0 * far * regular**2 * sooner)
    return rate * jnp.maximum(varied, 0.0) * times * less * pole(load)


def closed_wait(requests: Array, demand: Array, elsewhere: Array) -> Array:
    """Mean wait (s) before a server of ``requests`` that go around, by mean-value analysis.

    (v + sqrt(v^2 + 2 (C - 1) D^2)) / 2, v = (C - 2) D - Z: C requests each ask D seconds of one
    server that serves in order, and are Z seconds ``elsewhere`` in between. It solves
    R = D + (C - 1) / C (Q D - U D / 2), with Q = C R / (Z + R) there and U = C D / (Z + R) busy:
    an arrival finds what a loop of one request fewer has in the mean (Reiser and Lavenberg 1980,
    Journal of the ACM 27, 2), which is about (C - 1) / C of what C have (Schweitzer 1979; Bard
    1979), and services of one length are half done (Reiser 1979, IEEE Transactions on
    Communications 27, 8). Of m servers D = S / m, and S (1 - 1 / m) are elsewhere (Seidmann,
    Schweitzer and Shalev-Oren 1987, Large Scale Systems 12). With few requests it is U D / 2, and
    once they fill the server C D - Z - D.

    >>> float(closed_wait(jnp.asarray(1.0), jnp.asarray(0.1), jnp.asarray(1.0)))
    0.0
    """
    others = jnp.maximum(requests - 1.0, 0.0)
    v = (others - 1.0) * demand - elsewhere
    return 0.5 * (v + square_root(v**2 + 2.0 * others * demand**2))


def closed_rate(requests: Array, unhindered: Array, demands: tuple[Array, ...]) -> Array:
    """Requests/s of ``requests`` that go around several queues, by mean-value analysis.

    X (unhindered + sum W) = C, Little's law for a whole cycle of C requests, of which
    ``unhindered`` seconds pass where nobody waits. A queue that asks D seconds of them keeps

        W = D u / (2 (1 - u)),  u = (C - 1) / C X D

    more: ``closed_wait`` for one queue. With few requests X is C / unhindered, with many 1 / D of
    the slowest queue, the asymptotes of Lazowska et al., Quantitative System Performance (1984),
    5.2. Newton's steps on a convex function, from the least that one queue alone lets through; a
    derivative needs the last of them alone.

    >>> round(float(closed_rate(*map(jnp.asarray, (1.0, 4.0)), (jnp.asarray(1.0),))), 6)
    0.25
    """

    def closer(rate: Array, requests: Array, cycle: Array, demands: tuple[Array, ...]) -> Array:
        seen = jnp.maximum(requests - 1.0, 0.0) / requests
        beyond, slope = rate * cycle - requests, cycle
        for demand in demands:
            load = jnp.minimum(seen * rate * demand, FULLEST)
            beyond = beyond + 0.5 * rate * demand * load / (1.0 - load)
            slope = slope + 0.5 * demand * load * (2.0 - load) / (1.0 - load) ** 2
        return rate - beyond / slope

    held = lax.stop_gradient((requests, unhindered, demands))
    some, cycle, asked = held
    waits = jnp.stack([closed_wait(some, demand, cycle - demand) for demand in asked])
    rate = some / (cycle + jnp.max(waits, axis=0))
    rate = lax.fori_loop(0, CLOSER, lambda _, rate: closer(rate, *held), rate)
    return closer(rate, requests, unhindered, demands)


def bursts(load: Array, variability: Array) -> Array:
    """Mean wait before an exponential server over that of Poisson arrivals, gaps being gamma.

    (s / (1 - s)) / (u / (1 - u)), s = (1 + c^2 (1 - s) / u)^(-1 / c^2) what arrivals find the
    server busy, u the load, c^2 the ``variability`` of gaps. 1 - s is the root of a convex
    function; Newton's steps from its value in heavy traffic, 2 (1 - u) / (1 + c^2). A derivative
    needs the last of them alone: at the root a step moves as the root does.
    """
    u, varied = jnp.clip(load, 1e-4, TANGENT_LOAD), jnp.maximum(variability, 1e-2)
    least = (1.0 - u) / (1.0 + varied)

    def closer(free: Array, u: Array, varied: Array, least: Array) -> Array:
        far = jnp.exp(-jnp.log1p(varied * free / u) / varied)
        slope = 1.0 - far / (u + varied * free)
        return jnp.clip(free - (free + far - 1.0) / jnp.maximum(slope, 1e-3), least, 1.0)

    held = lax.stop_gradient((u, varied, least))
    near = lax.fori_loop(0, 5, lambda _, free: closer(free, *held), 2.0 * held[2])
    free = closer(near, u, varied, least)
    return (1.0 - free) / free * (1.0 - u) / u


def burst_share(expected: Array, variability: Array) -> Array:
    """Share of the excess of bursty arrivals that comes while ``expected`` are expected.

    After an arrival, (c^2 - 1) / 2 more than the average come sooner or later (Cox, Renewal
    Theory, 1962, 4.2). Gaps of a gamma distribution of ``variability`` c^2 have seen
    sum_k P(k / c^2, x / c^2) arrivals when x are expected, P the regularised incomplete gamma
    function; 1 - exp(-0.44 (10 x)^(0.84 c^-0.8)) is their share of the excess to 0.08, c^2 from
    1/2 to 8. A test has the sum.
    """
    power = STEEP * jnp.exp(-FLATTER * jnp.log(jnp.maximum(variability, 1e-3)))
    scaled = jnp.exp(power * jnp.log(10.0 * expected + 1e-6))
    return -jnp.expm1(-TENTH * scaled)


def unlike_exponential(heavy: Array, load: Array, servers: Array) -> Array:
    """Mean wait before ``servers`` (real, at least 1) over that with exponential service.

    ``heavy`` in heavy traffic, (c_a^2 + c_s^2) / (c_a^2 + 1), the denominator of the arrivals that
    the exponential servers see; 1 where few wait, for then it is the next to finish of many that
    counts. Between them h + (1 - h) k / sqrt(1 + k^2) with

        k = (1 - u) (m - 1) (sqrt(4 + 5 m) - 2) / (16 u m)

    of Cosmetatos 1975 (INFOR 13), u the load and m the servers: his law for Poisson arrivals
    and service of one length is h = 1/2 and k itself.
    """
    m, u = jnp.maximum(servers, 1.0), jnp.maximum(load, 1e-6)
    k = (1.0 - u) * (m - 1.0) * (jnp.sqrt(4.0 + 5.0 * m) - 2.0) / (16.0 * u * m)
    return heavy + (1.0 - heavy) * k / jnp.sqrt(1.0 + k**2)


class Wait(NamedTuple):
    """Random times by their tails: P(T > t) = share * exp(-(t - least) / scale) for t > least.

    Each with its probability, arrays of one length: one of them happens.
    """

    chance: Array
    least: Array
    share: Array
    scale: Array


def exponential_tail(mean: Array, variance: Array, chance: Array | float = 1.0) -> Wait:
    """The time (s) of this mean and variance that has an exponential tail.

    Less varied than an exponential time: a shift, then an exponential of that deviation. More
    varied: nothing with some probability, else exponential. They meet where both are one. A mean
    below ``RAREST`` deviations is a wait that nobody meets, however long it is.
    """
    deviation = square_root(variance)
    varied = deviation > mean
    rarely = jnp.maximum(mean / jnp.where(varied, deviation, 1.0), RAREST)
    ratio = jnp.where(varied, rarely, 1.0)
    tail = (
        chance,
        jnp.maximum(mean - deviation, 0.0),
        2.0 * ratio**2 / (1.0 + ratio**2),
        deviation * (1.0 + ratio**2) / (2.0 * ratio),
    )
    return Wait(*(jnp.reshape(jnp.asarray(x), (1,)) for x in tail))


def mixture(first: Wait, second: Wait) -> Wait:
    """A mixture of two waits."""
    return Wait(*(jnp.concatenate(pair) for pair in zip(first, second, strict=True)))


def percentiles(
    levels: tuple[float, ...], offsets: Array, weights: Array, wait: Wait
) -> tuple[Array, ...]:
    """Times (s) within which a share ``level`` of offset i + wait is, i of probability w_i.

    The roots t of sum_i w_i P(offset_i + T <= t) = level. A jump of that distribution is drawn
    out over ``SHARPEST`` of the shortest time, so that a derivative exists.
    """
    start = offsets[:, None] + wait.least
    every = jnp.reshape(start, -1)
    # not jnp.min: its derivative asks what equals it, and what is computed twice may differ
    first = every[jnp.argmin(lax.stop_gradient(every))]
    sharp = SHARPEST * first
    scale = wait.scale + sharp
    share = weights[:, None] * wait.chance

    def within(t: Array) -> Array:
        past = t - start
        tail = wait.share * jnp.exp(-jnp.maximum(past, 0.0) / scale)
        jump = (1.0 - wait.share) * jnp.exp(-jnp.maximum(past, 0.0) / sharp)
        # no flat piece between the jumps, or the crossing there has no derivative
        return jnp.sum(share * jnp.where(past > 0, 1.0 - tail - jump, 1e-6 * past / scale))

    # a wait that is rarer than the highest level asks for moves no percentile, however long it is
    long = jnp.where(wait.share > 0.5 * (1.0 - max(levels)), scale, sharp)
    low, high = lax.stop_gradient((first, jnp.max(start + FARTHEST * long)))
    wanted = jnp.asarray(levels, low.dtype)
    return tuple(jax.vmap(lambda level: crossing(lambda t: within(t) - level, low, high))(wanted))
