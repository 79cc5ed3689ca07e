"""Requests present in an open loop, and how many of them wait.

For waiting requests, the server is the faster the more requests it runs: as fast as a closed loop
of that many requests (Chandy, Herzog and Woo 1975, IBM Journal of Research and Development 19). The
number of requests present is then that of a queue whose service rate grows with it (birth and
death): gaps of a gamma distribution before servers that are taken one by one, with exponential
times of service. Exact for Poisson arrivals, also for servers that are shared by all present,
whatever the times of service then are (Cohen 1979, Acta Informatica 12). Arrivals that vary less
than Poisson's are taken for those.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.physics.numerics import square_root
from infer_jax.physics.scheduling.admission import SATURATING, TAIL_END, CacheLimit, admit
from infer_jax.physics.scheduling.closed import cycle, paces
from infer_jax.physics.scheduling.kinds import Kinds, ServerLimits, Step, added_time, plain_step
from infer_jax.physics.scheduling.queueing import TANGENT_LOAD, pole, unlike_exponential

SETTLING = 16  # states beyond the last, where the recursion begins
MIN_GAP = 1e-6  # least 1 - ratio, so that the sum over all further states is finite
POINTS, STATES = 32, 128  # points of the speed curve, states of the chain
FIRST_POINT = 0.25  # requests at the first point of the curve
# the chain reaches this many standard deviations of the number present, and these requests, further
DEVIATIONS, ROOM = 30.0, 16.0
MAX_LOG_RATIO = 60.0  # bound of log(service rate / arrival rate): e^60 between neighbouring states
MIN_LOAD = 1e-12  # a smaller load counts as this one
MIN_SPREAD = 0.3  # where requests are alike: slots and cache limits this close both make them wait


class Present(NamedTuple):
    """Chances of 0, h, 2h ... customers, h the width of a state.

    ``beyond`` is the chance of more than the last state has; there chances fall by ``ratio`` from
    one state to the next.
    """

    chance: Array
    beyond: Array
    ratio: Array

    def mean(self, value: Array, rise: Array | float = 0.0) -> Array:
        """The mean of a value of the states 1, 2, ...; beyond them it rises by ``rise`` each.

        With nobody present the value is 0.
        """
        far = value[-1] + rise * _sum(self.ratio)
        return jnp.sum(self.chance[1:] * value) + self.beyond * far


def phases(variability: Array) -> tuple[Array, Array]:
    """Chances and means of two exponential gaps that have three moments of a gamma gap of mean 1.

    A gamma gap of variability c^2 >= 1 is an exponential one of a random mean c^2 x, x of the
    beta distribution (a, 1 - a), a = 1 / c^2. Its Gauss quadrature with two points, the roots of
    the Jacobi polynomial (Abramowitz and Stegun 22.2.2), is

        x = (a + 1) / 3 +- sqrt((a + 1) (2 - a) / 18).

    One of them has all the weight where c^2 = 1.
    """
    a = 1.0 / jnp.maximum(variability, 1.0)
    apart = jnp.sqrt((a + 1.0) * (2.0 - a) / 18.0)
    long, short = (a + 1.0) / 3.0 + apart, (a + 1.0) / 3.0 - apart
    share = (a - short) / (long - short)
    return jnp.stack([share, 1.0 - share]), jnp.stack([long, short]) / a


def present(rate: Array, served: Array, variability: Array) -> Present:
    """Customers that come ``rate`` > 0 times a second, ``served`` where 1, 2, ... are there.

    Beyond the last state service is as fast as there. From that state down, with pi_n the
    chances of n customers by the phase of arrivals, nu their rates, p the chances of phases,

        pi_n = y + p r_n sum(y) / ((nu + r_n) sum(p nu / (nu + r_n))),
        y = r_(n+1) pi_(n+1) / (nu + r_n)

    which says that as many leave a state as come, and as many go up as down.
    """
    p, gaps = phases(variability)
    nu = rate / gaps

    def down(carry: tuple[Array, Array], speeds: tuple[Array, Array]):
        chances, log = carry
        here, above = speeds
        y = above * chances / (nu + here)
        y = y + p * here / (nu + here) * jnp.sum(y) / jnp.sum(p * nu / (nu + here))
        more = jnp.sum(y)
        return (y / more, log + jnp.log(more)), (log + jnp.log(more), more)

    last = jnp.broadcast_to(served[-1], (SETTLING,))
    here = jnp.concatenate([served, last])
    above = jnp.concatenate([served[1:], last, served[-1:]])
    begin = (p, jnp.zeros_like(rate))
    (low, log), (logs, steps) = lax.scan(down, begin, (here, above), reverse=True)
    logs = logs[: len(served)]
    empty = log + jnp.log(served[0] * jnp.sum(low / nu))
    logs = jnp.concatenate([empty[None], logs])
    top = lax.stop_gradient(jnp.max(logs))
    chance = jnp.exp(logs - top)
    ratio = 1.0 / steps[len(served)]
    beyond = chance[-1] * ratio * _sum(ratio)
    every = jnp.sum(chance) + beyond
    return Present(chance / every, beyond / every, ratio)


def _sum(ratio: Array) -> Array:
    """1 + ratio + ratio^2 + ..."""
    return 1.0 / jnp.maximum(1.0 - ratio, MIN_GAP)


class Loops(NamedTuple):
    """Closed loops: requests in them, those that decode, requests/s, time of a plain step.

    The step is that of a decoding request, which takes part in it itself.
    """

    running: Array
    decoding: Array
    rate: Array
    base: Array

    def at(self, running: Array) -> "Loops":
        """The loop of ``running`` requests, interpolated linearly in logarithms."""
        x, points = jnp.log(running), jnp.log(self.running)
        return Loops(*(jnp.exp(jnp.interp(x, points, jnp.log(y))) for y in self))


def loops(step: Step, kinds: Kinds, server: ServerLimits, most: Array) -> Loops:
    """Closed loops of few requests up to ``most``, none of which goes through in lockstep."""
    apart = jnp.asarray(0.0)

    def loop(running: Array) -> Loops:
        c = cycle(step, kinds, server, running, apart)
        decode_steps = kinds.mean(kinds.decode_steps)
        decoding = c.coming * decode_steps
        decode_time = decode_steps * paces(kinds, server, c).step_time
        seen = jnp.maximum(decoding + 1.0 - decoding / running, 1.0)
        own = step(seen, jnp.asarray(0.0), jnp.asarray(1.0), jnp.asarray(0.0))
        return Loops(running, running * decode_time / c.cycle, running / c.cycle, own)

    few = jnp.log(jnp.minimum(FIRST_POINT, most / 2.0))
    rates = jax.vmap(loop)(jnp.exp(few + (jnp.log(most) - few) * jnp.linspace(0.0, 1.0, POINTS)))
    # the chain needs service rates that never fall as more requests run
    return rates._replace(rate=lax.cummax(rates.rate))


class Occupancy(NamedTuple):
    """Means over time and over arrivals where requests come at random."""

    decoding: Array  # requests past their first token
    base: Array  # mean seconds of a step without prompts, over decoding requests
    queued: Array  # mean seconds that a request waits for a slot or for cache
    taken: Array  # share of arrivals that wait for a slot or for cache


def occupancy(
    step: Step,
    kinds: Kinds,
    server: ServerLimits,
    held: CacheLimit,
    rate: Array,
    variability: Array,
) -> Occupancy:
    """Occupancy at ``rate`` requests/s; waits depend on how much requests vary.

    The chain's times of service are exponential; its waits are scaled from the variability of its
    gaps (``gap_excess``) to c_a^2 + c_s^2, c_s^2 that of ``work_variation``. At and beyond the
    speed of all slots the wait goes on along its tangent.
    """
    limit = jnp.minimum(server.slots, held.limit)
    speeds = loops(step, kinds, server, limit)
    full = speeds.at(admit(jnp.asarray(SATURATING), server, held).run)
    load = rate / full.rate
    within = jnp.clip(load, MIN_LOAD, TANGENT_LOAD)
    rate = within * full.rate
    excess = gap_excess(kinds, variability)
    peak = 1.0 + 0.5 * excess  # variance of the number present over its mean

    width = state_width(speeds, limit, rate, peak)
    n = width * (1.0 + jnp.arange(STATES))
    admitted = admit(n, server, held)
    speed = speeds.at(admitted.run)
    # the speed of a state of several requests is that of its middle, raised to a power, so that
    # chances change as over the requests in between
    middle = speeds.at(admit(n - (width - 1.0) / 2.0, server, held).run)
    power = (width + peak - 1.0) / peak
    # beyond MAX_LOG_RATIO a state has no probability left, and the power would overflow float32
    faster = jnp.clip(power * (jnp.log(middle.rate) - jnp.log(rate)), -MAX_LOG_RATIO, MAX_LOG_RATIO)
    chain = present(rate, rate * jnp.exp(faster), 1.0 + excess / width)

    decoding = chain.mean(speed.decoding)
    base = chain.mean(speed.decoding * speed.base) / jnp.maximum(decoding, 1e-30)
    blocked = jnp.diff(admitted.wait, prepend=0.0) / width
    taken = jnp.clip(chain.mean(speed.rate * blocked) / rate, 0.0, 1.0)

    heavy = (variability + work_variation(step, kinds, server, held, full)) / (2.0 + excess)
    queued = chain.mean(admitted.wait, width) / rate * unlike_exponential(heavy, within, limit)
    return Occupancy(decoding, base, queued * pole(load) * (1.0 - within), taken)


def gap_excess(kinds: Kinds, variability: Array) -> Array:
    """Variability of the chain's gaps beyond 1: (c^2 - 1) 2 E[min(O, O')] / E[O], at least 0.

    Bursts of requests of one length leave together, so that more are present at once than with
    exponential times; gaps so much more variable have that peakedness, O and O' two outputs
    (Whitt 1992, Management Science 38).
    """
    shorter = kinds.mean(jnp.minimum(kinds.output[:, None], kinds.output) @ kinds.weight)
    return jnp.maximum(variability - 1.0, 0.0) * 2.0 * shorter / kinds.mean(kinds.output)


def state_width(speeds: Loops, limit: Array, rate: Array, peak: Array) -> Array:
    """Requests of a state of the chain: one, or more where it would be too long with one."""
    typical = jnp.interp(jnp.log(rate), jnp.log(speeds.rate), jnp.log(speeds.running))
    reach = jnp.exp(typical) + DEVIATIONS * jnp.exp(typical / 2.0) * jnp.sqrt(peak) + ROOM
    return lax.stop_gradient(jnp.maximum(jnp.minimum(2.0 * limit, reach) / STATES, 1.0))


def work_variation(
    step: Step, kinds: Kinds, server: ServerLimits, held: CacheLimit, full: Loops
) -> Array:
    """Squared variation of the work that requests bring: their prompt and their decode steps.

    Where cache is short, of that times the cache they hold.
    """
    spread = square_root(held.varied * held.limit) + MIN_SPREAD
    short = jnp.clip((server.slots - held.limit) / spread, -TAIL_END, TAIL_END)
    by_cache = jax.scipy.stats.norm.cdf(short)
    plain = plain_step(step, kinds, server, full.decoding)
    work = added_time(step, kinds, full.decoding, plain, jnp.zeros_like(plain.room))
    work = work + kinds.output / kinds.gain * full.base / full.decoding
    space = work * held.tokens
    return by_cache * kinds.variation(space) + (1.0 - by_cache) * kinds.variation(work)
