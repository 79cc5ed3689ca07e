"""The number of customers in a queue whose service rate grows with that number.

Arrivals whose gaps are of a gamma distribution before servers that are taken one by one; times
of service are exponential. Exact for Poisson arrivals, also for servers that are shared by all
present, whatever the times of service then are (Cohen 1979, Acta Informatica 12). Arrivals that
vary less than Poisson's are taken for those.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

SETTLING = 16  # states beyond the last, where the recursion begins
MIN_GAP = 1e-6  # least 1 - ratio, so that the sum over all further states is finite


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
