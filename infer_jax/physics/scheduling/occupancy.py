"""Occupancy: how many requests are present in an open loop, and how long they wait for a slot.

For waiting requests the server is the faster the more requests it runs: as fast as a closed loop of
that many, its flow-equivalent server (Chandy, Herzog and Woo 1975, IBM Journal of Research and
Development 19). The number present is then a birth-death chain: gaps of a gamma distribution before
servers that are taken one by one, with exponential times of service. Exact for Poisson arrivals,
also for servers that are shared by all present, whatever the times of service then are (Cohen 1979,
Acta Informatica 12). Arrivals that vary less than Poisson's are taken for those.

In this order: the server's speed by the requests that run (``flow_equivalent``), the chain
(``number_in_system``), and what both say of requests that decode and that wait (``occupancy``).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.physics.numerics import square_root
from infer_jax.physics.scheduling.admission import SATURATING, TAIL_END, CacheLimit, admit
from infer_jax.physics.scheduling.closed import cycle, cycle_times
from infer_jax.physics.scheduling.kinds import Kinds, Server, decode_step, service_time
from infer_jax.physics.scheduling.queueing import TANGENT_LOAD, pole, unlike_exponential
from infer_jax.specs import Arrivals

SETTLING = 16  # states beyond the last, where the recursion begins
MIN_GAP = 1e-6  # least 1 - ratio, so that the sum over all further states is finite
POINTS, STATES = 32, 128  # points of the speed curve, states of the chain
FIRST_POINT = 0.25  # requests at the first point of the curve
# the chain reaches this many standard deviations of the number present, and these requests, further
DEVIATIONS, MARGIN = 30.0, 16.0
MAX_LOG_RATIO = 60.0  # bound of log(service rate / arrival rate): e^60 between neighbouring states
MIN_LOAD = 1e-12  # a smaller load counts as this one
MIN_SPREAD = 0.3  # where requests are alike: slots and cache limits this close both make them wait


class FlowEquivalent(NamedTuple):
    """Closed loops of ``running`` requests: how fast the server is with so many."""

    running: Array  # requests
    decoding: Array  # of them, those past their first token
    throughput: Array  # requests/s
    decode_step: Array  # seconds of a step without prompts, as a decoding request meets it

    def at(self, running: Array) -> "FlowEquivalent":
        """The loop of ``running`` requests, interpolated linearly in logarithms."""
        x, points = jnp.log(running), jnp.log(self.running)
        return FlowEquivalent(*(jnp.exp(jnp.interp(x, points, jnp.log(y))) for y in self))


def flow_equivalent(server: Server, most: Array) -> FlowEquivalent:
    """Throughput (1/s) and decode step (s) of a server that runs n requests, up to ``most``.

        throughput = n / cycle

    of closed loops (Little 1961), none of which goes through in lockstep; the chain needs service
    rates that never fall as more requests run.
    """
    kinds, unlocked = server.kinds, jnp.asarray(0.0)

    def loop(running: Array) -> FlowEquivalent:
        c = cycle(server, running, unlocked)
        decode_steps = kinds.mean(kinds.decode_steps)
        decoding = c.per_step * decode_steps
        decode_time = decode_steps * cycle_times(server, c).step_time
        # a decoding request takes part in its step itself
        seen = jnp.maximum(decoding + 1.0 - decoding / running, 1.0)
        step = server.step(seen, jnp.asarray(0.0), jnp.asarray(1.0), jnp.asarray(0.0))
        return FlowEquivalent(running, running * decode_time / c.time, running / c.time, step)

    few = jnp.log(jnp.minimum(FIRST_POINT, most / 2.0))
    loops = jax.vmap(loop)(jnp.exp(few + (jnp.log(most) - few) * jnp.linspace(0.0, 1.0, POINTS)))
    return loops._replace(throughput=lax.cummax(loops.throughput))


class NumberInSystem(NamedTuple):
    """Chances that 0, h, 2h ... requests are present, h the width of a state."""

    chance: Array
    beyond: Array  # the chance of more than the last state has
    ratio: Array  # by which chances fall there, from one state to the next

    def mean(self, value: Array, rise: Array | float = 0.0) -> Array:
        """The mean of a value of the states 1, 2, ...; beyond them it rises by ``rise`` each.

        With nobody present the value is 0.
        """
        far = value[-1] + rise * _geometric_sum(self.ratio)
        return jnp.sum(self.chance[1:] * value) + self.beyond * far


def number_in_system(arrivals: Arrivals, service_rates: Array) -> NumberInSystem:
    """Chances of the number of requests present; service is ``service_rates`` (1/s) of 1, 2, ...

        pi_n = y + p r_n sum(y) / ((nu + r_n) sum(p nu / (nu + r_n))),
        y = r_(n+1) pi_(n+1) / (nu + r_n)

    with pi_n the chances of n requests by the phase of arrivals, nu the rates of phases and p their
    chances, and r_n the service rates, beyond the last state as there: as many leave a state as
    come, and as many go up as down. It runs from the top down; arrival rates are above 0.
    """
    p, gaps = hyperexponential_gaps(arrivals.variability)
    nu = arrivals.rate / gaps

    def down(carry: tuple[Array, Array], rates: tuple[Array, Array]):
        chances, log = carry
        here, above = rates
        y = above * chances / (nu + here)
        y = y + p * here / (nu + here) * jnp.sum(y) / jnp.sum(p * nu / (nu + here))
        total = jnp.sum(y)
        return (y / total, log + jnp.log(total)), (log + jnp.log(total), total)

    last = jnp.broadcast_to(service_rates[-1], (SETTLING,))
    here = jnp.concatenate([service_rates, last])
    above = jnp.concatenate([service_rates[1:], last, service_rates[-1:]])
    top = (p, jnp.zeros_like(arrivals.rate))
    (low, log), (logs, ratios) = lax.scan(down, top, (here, above), reverse=True)
    empty = log + jnp.log(service_rates[0] * jnp.sum(low / nu))
    logs = jnp.concatenate([empty[None], logs[: len(service_rates)]])
    chance = jnp.exp(logs - lax.stop_gradient(jnp.max(logs)))
    ratio = 1.0 / ratios[len(service_rates)]
    beyond = chance[-1] * ratio * _geometric_sum(ratio)
    total = jnp.sum(chance) + beyond
    return NumberInSystem(chance / total, beyond / total, ratio)


def hyperexponential_gaps(variability: Array) -> tuple[Array, Array]:
    """Chances and means of two exponential gaps that have three moments of a gamma gap of mean 1.

        x = (a + 1) / 3 +- sqrt((a + 1) (2 - a) / 18),   a = 1 / c_a^2

    A gamma gap of variability c_a^2 >= 1 is an exponential one of a random mean c_a^2 x, x of the
    beta distribution (a, 1 - a). These are the two points of its Gauss quadrature, the roots of the
    Jacobi polynomial (Abramowitz and Stegun 22.2.2). One has all the weight where c_a^2 = 1.
    """
    a = 1.0 / jnp.maximum(variability, 1.0)
    spread = jnp.sqrt((a + 1.0) * (2.0 - a) / 18.0)
    long, short = (a + 1.0) / 3.0 + spread, (a + 1.0) / 3.0 - spread
    share = (a - short) / (long - short)
    return jnp.stack([share, 1.0 - share]), jnp.stack([long, short]) / a


def _geometric_sum(ratio: Array) -> Array:
    """1 + ratio + ratio^2 + ..."""
    return 1.0 / jnp.maximum(1.0 - ratio, MIN_GAP)


class Occupancy(NamedTuple):
    """Means over time and over arrivals where requests come at random."""

    decoding: Array  # requests past their first token
    decode_step: Array  # mean seconds of a step without prompts, over decoding requests
    slot_wait: Array  # mean seconds that a request waits for a slot or for cache
    wait_chance: Array  # share of arrivals that wait for a slot or for cache


def occupancy(server: Server, cache: CacheLimit, arrivals: Arrivals) -> Occupancy:
    """Requests that decode, and the wait (s) for a slot or for cache: Little's law of a chain.

        slot_wait = h E[waiting] / r,   wait_chance = E[X (requests made to wait by one more)] / r

    X(n) is the throughput with n present. The chain's times of service are exponential; h scales
    its waits from the variability of its gaps (``gap_excess``) to c_a^2 + c_s^2, c_s^2 that of
    ``work_variation`` (``unlike_exponential``). At and beyond the throughput of all slots the wait
    goes on along its tangent.
    """
    limit = jnp.minimum(server.limits.slots, cache.limit)
    curve = flow_equivalent(server, limit)
    full = curve.at(admit(jnp.asarray(SATURATING), server.limits, cache).run)
    load = arrivals.rate / full.throughput
    within = jnp.clip(load, MIN_LOAD, TANGENT_LOAD)
    rate = within * full.throughput
    excess = gap_excess(server.kinds, arrivals.variability)
    peakedness = 1.0 + 0.5 * excess

    width = state_width(curve, limit, rate, peakedness)
    n = width * (1.0 + jnp.arange(STATES))
    admitted = admit(n, server.limits, cache)
    speed = curve.at(admitted.run)
    middle = curve.at(admit(n - (width - 1.0) / 2.0, server.limits, cache).run)
    ratio = jnp.log(middle.throughput) - jnp.log(rate)
    rates = rate * jnp.exp(state_log_ratio(ratio, width, peakedness))
    chain = number_in_system(Arrivals(rate=rate, variability=1.0 + excess / width), rates)

    decoding = chain.mean(speed.decoding)
    step = chain.mean(speed.decoding * speed.decode_step) / jnp.maximum(decoding, 1e-30)
    made_to_wait = jnp.diff(admitted.wait, prepend=0.0) / width
    wait_chance = jnp.clip(chain.mean(speed.throughput * made_to_wait) / rate, 0.0, 1.0)
    heavy = arrivals.variability + work_variation(server, cache, full)
    scale = unlike_exponential(heavy / (2.0 + excess), within, limit)
    slot_wait = chain.mean(admitted.wait, width) / rate * scale
    return Occupancy(decoding, step, slot_wait * pole(load) * (1.0 - within), wait_chance)


def gap_excess(kinds: Kinds, variability: Array) -> Array:
    """Variability of the chain's gaps beyond 1: (c_a^2 - 1) 2 E[min(O, O')] / E[O], at least 0.

    Bursts of requests of one length leave together, so that more are present at once than with
    exponential times; gaps so much more variable have that peakedness, the variance of the number
    present over its mean, O and O' two outputs (Whitt 1992, Management Science 38).
    """
    shorter = kinds.mean(jnp.minimum(kinds.output[:, None], kinds.output) @ kinds.weight)
    return jnp.maximum(variability - 1.0, 0.0) * 2.0 * shorter / kinds.mean(kinds.output)


def state_width(curve: FlowEquivalent, limit: Array, rate: Array, peakedness: Array) -> Array:
    """Requests of a state of the chain: one, or more where it would be too long with one."""
    typical = jnp.interp(jnp.log(rate), jnp.log(curve.throughput), jnp.log(curve.running))
    reach = jnp.exp(typical) + DEVIATIONS * jnp.exp(typical / 2.0) * jnp.sqrt(peakedness) + MARGIN
    return lax.stop_gradient(jnp.maximum(jnp.minimum(2.0 * limit, reach) / STATES, 1.0))


def state_log_ratio(middle: Array, width: Array, peakedness: Array) -> Array:
    """Logarithm of service over arrival rate of a state of several requests.

        (width + z - 1) / z middle

    ``middle`` is that of its middle, z the peakedness: chances change as over the requests between.
    Beyond ``MAX_LOG_RATIO`` a state has no probability left, and the power would overflow float32.
    """
    power = (width + peakedness - 1.0) / peakedness
    return jnp.clip(power * middle, -MAX_LOG_RATIO, MAX_LOG_RATIO)


def work_variation(server: Server, cache: CacheLimit, full: FlowEquivalent) -> Array:
    """Squared coefficient of variation of the work of requests: their prompt and decode steps.

    Where cache is short, of that times the cache they hold.
    """
    kinds, limits = server.kinds, server.limits
    spread = square_root(cache.varied * cache.limit) + MIN_SPREAD
    short = jnp.clip((limits.slots - cache.limit) / spread, -TAIL_END, TAIL_END)
    by_cache = jax.scipy.stats.norm.cdf(short)
    decode = decode_step(server, full.decoding)
    work = service_time(server, decode, jnp.zeros_like(decode.prompt_budget))
    work = work + kinds.output / kinds.gain * full.decode_step / full.decoding
    space = work * cache.tokens
    return by_cache * kinds.variation(space) + (1.0 - by_cache) * kinds.variation(work)
