"""Waiting times in queues: means, and percentiles from exponential tails.

Laws of one queue, in closed form: of arrivals, of a loop whose requests go around, and of the
distribution of a wait. A load is the utilisation rho, the arrival over the service rate. At and
beyond 1 the stationary wait is infinite; ``pole`` goes on along its tangent instead, so that values
and gradients stay finite where a limit beside them says infeasible.

Symbols: rho load, S time of service, c_a^2 and c_s^2 squared coefficients of variation of the gaps
between arrivals and of S; C requests in a loop, X their rate, D the seconds that each asks of a
queue.
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
FULLEST, NEWTON_STEPS = 1.0 - 1e-6, 6  # load of a closed loop's queue at most; steps to its rate
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

        W = rate E[S^2] / (2 (1 - load))

    for Poisson arrivals (Pollaczek and Khinchine), ``mean`` and ``second`` the moments of S. Of
    others ``burst`` times that for exponential S, exactly, and times 2 (c_a^2 + c_s^2) /
    ((c_a^2 + 1) (1 + c_s^2)) for other S, c_a^2 the ``variability``: exact in heavy traffic
    (Kingman 1961, Mathematical Proceedings 57). Arrivals more regular than Poisson, and S other
    than exponential: times the exponential of

        -2 (1 - load) (1 - c_a^2)^2 / (3 load) (1 / (c_a^2 + c_s^2) - 1 / (c_a^2 + 1)),

    as Kraemer and Langenbach-Belz have it (1976, 8th International Teletraffic Congress). ``load``
    is given, for it is not rate E[S] where service is faster when more wait; ``burst`` is
    ``bursts(load, variability)`` if not given. Source: Kleinrock, Queueing Systems 1 (1975), 5.6
    and 6.4.
    """
    both = second + (variability - 1.0) * mean**2  # (c_a^2 + c_s^2) E[S]^2
    ratio = (bursts(load, variability) if burst is None else burst) / (variability + 1.0)
    service = jnp.maximum(second / jnp.maximum(mean**2, SHORTEST**2) - 1.0, 0.0)  # c_s^2
    sooner = 1.0 / jnp.maximum(variability + service, 1e-2) - 1.0 / (variability + 1.0)
    free = jnp.clip(1.0 - load, 0.0, 1.0) / jnp.maximum(load, 1e-3)
    regular = jnp.exp(-2.0 / 3.0 * free * jnp.maximum(1.0 - variability, 0.0) ** 2 * sooner)
    return rate * jnp.maximum(both, 0.0) * ratio * regular * pole(load)


def bursts(load: Array, variability: Array) -> Array:
    """Mean wait before an exponential server over that of Poisson arrivals, gaps being gamma.

        (s / (1 - s)) / (rho / (1 - rho)),   s = (1 + c_a^2 (1 - s) / rho)^(-1 / c_a^2)

    s is the chance that an arrival finds the server busy. 1 - s is the root of a convex function;
    Newton's steps from its value in heavy traffic, 2 (1 - rho) / (1 + c_a^2). A derivative needs
    the last of them alone: at the root a step moves as the root does. Source: Kleinrock, Queueing
    Systems 1 (1975), 6.4.
    """
    rho, varied = jnp.clip(load, 1e-4, TANGENT_LOAD), jnp.maximum(variability, 1e-2)
    least = (1.0 - rho) / (1.0 + varied)

    def newton_step(free: Array, rho: Array, varied: Array, least: Array) -> Array:
        busy = jnp.exp(-jnp.log1p(varied * free / rho) / varied)
        slope = 1.0 - busy / (rho + varied * free)
        return jnp.clip(free - (free + busy - 1.0) / jnp.maximum(slope, 1e-3), least, 1.0)

    fixed = lax.stop_gradient((rho, varied, least))
    free = lax.fori_loop(0, 5, lambda _, free: newton_step(free, *fixed), 2.0 * fixed[2])
    free = newton_step(free, rho, varied, least)
    return (1.0 - free) / free * (1.0 - rho) / rho


def excess_arrivals(expected: Array, variability: Array) -> Array:
    """Arrivals about one, beyond those of Poisson, while ``expected`` come: (c_a^2 - 1) share.

    Half of them come before it and half after; the share is ``burst_share``.
    """
    return (variability - 1.0) * burst_share(expected, variability)


def burst_share(expected: Array, variability: Array) -> Array:
    """Share of the excess of bursty arrivals that comes while ``expected`` = x are expected.

        1 - exp(-0.44 (10 x)^(0.84 c_a^-0.8))

    After an arrival, (c_a^2 - 1) / 2 more than the average come sooner or later (Cox, Renewal
    Theory, 1962, 4.2). Gaps of a gamma distribution have seen sum_k P(k / c_a^2, x / c_a^2)
    arrivals when x are expected, P the regularised incomplete gamma function; this is their share
    of the excess to 0.08, c_a^2 from 1/2 to 8. A test has the sum.
    """
    power = STEEP * jnp.exp(-FLATTER * jnp.log(jnp.maximum(variability, 1e-3)))
    scaled = jnp.exp(power * jnp.log(10.0 * expected + 1e-6))
    return -jnp.expm1(-TENTH * scaled)


def unlike_exponential(heavy: Array, load: Array, servers: Array) -> Array:
    """Mean wait before ``servers`` (real, at least 1) over that with exponential service.

        h + (1 - h) k / sqrt(1 + k^2),   k = (1 - rho) (m - 1) (sqrt(4 + 5 m) - 2) / (16 rho m)

    m servers; h = ``heavy`` in heavy traffic, (c_a^2 + c_s^2) / (c_a^2 + 1), the denominator of the
    arrivals that the exponential servers see; 1 where few wait, for then it is the next to finish
    of many that counts. k is of Cosmetatos 1975 (INFOR 13), whose law for Poisson arrivals and
    service of one length is h = 1/2 and k itself.
    """
    m, rho = jnp.maximum(servers, 1.0), jnp.maximum(load, 1e-6)
    k = (1.0 - rho) * (m - 1.0) * (jnp.sqrt(4.0 + 5.0 * m) - 2.0) / (16.0 * rho * m)
    return heavy + (1.0 - heavy) * k / jnp.sqrt(1.0 + k**2)


def closed_wait(requests: Array, demand: Array, elsewhere: Array) -> Array:
    """Mean wait (s) before a server of ``requests`` that go around, by mean-value analysis.

        W = (v + sqrt(v^2 + 2 (C - 1) D^2)) / 2,   v = (C - 2) D - Z

    C requests each ask D seconds of one server that serves in order, and are Z seconds
    ``elsewhere`` in between. It solves R = D + (C - 1) / C (Q D - U D / 2), with
    Q = C R / (Z + R) there and U = C D / (Z + R) busy: an arrival finds what a loop of one request
    fewer has in the mean (Reiser and Lavenberg 1980, Journal of the ACM 27, 2), which is about
    (C - 1) / C of what C have (Schweitzer 1979; Bard 1979), and services of one length are half
    done (Reiser 1979, IEEE Transactions on Communications 27, 8). Of m servers D = S / m, and
    S (1 - 1 / m) are elsewhere (Seidmann, Schweitzer and Shalev-Oren 1987, Large Scale Systems 12).
    With few requests it is U D / 2, and once they fill the server C D - Z - D.

    >>> float(closed_wait(jnp.asarray(1.0), jnp.asarray(0.1), jnp.asarray(1.0)))
    0.0
    """
    others = jnp.maximum(requests - 1.0, 0.0)
    v = (others - 1.0) * demand - elsewhere
    return 0.5 * (v + square_root(v**2 + 2.0 * others * demand**2))


def closed_rate(requests: Array, unhindered: Array, demands: tuple[Array, ...]) -> Array:
    """Requests/s of ``requests`` that go around several queues, by mean-value analysis.

        X (unhindered + sum W) = C,   W = D u / (2 (1 - u)),   u = (C - 1) / C X D

    by Little's law for a whole cycle of C requests, of which ``unhindered`` seconds pass where
    nobody waits, and W more in a queue that asks D seconds of them: ``closed_wait`` for one queue.
    With few requests X is C / unhindered, with many 1 / D of the slowest queue, the asymptotes of
    Lazowska et al., Quantitative System Performance (1984), 5.2. Newton's steps on a convex
    function, from the least that one queue alone lets through; a derivative needs the last alone.

    >>> round(float(closed_rate(*map(jnp.asarray, (1.0, 4.0)), (jnp.asarray(1.0),))), 6)
    0.25
    """

    def newton_step(
        rate: Array, requests: Array, cycle: Array, demands: tuple[Array, ...]
    ) -> Array:
        seen = jnp.maximum(requests - 1.0, 0.0) / requests
        beyond, slope = rate * cycle - requests, cycle
        for demand in demands:
            load = jnp.minimum(seen * rate * demand, FULLEST)
            beyond = beyond + 0.5 * rate * demand * load / (1.0 - load)
            slope = slope + 0.5 * demand * load * (2.0 - load) / (1.0 - load) ** 2
        return rate - beyond / slope

    fixed = lax.stop_gradient((requests, unhindered, demands))
    count, cycle, seconds = fixed
    waits = jnp.stack([closed_wait(count, demand, cycle - demand) for demand in seconds])
    rate = count / (cycle + jnp.max(waits, axis=0))
    rate = lax.fori_loop(0, NEWTON_STEPS, lambda _, rate: newton_step(rate, *fixed), rate)
    return newton_step(rate, requests, unhindered, demands)


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
