"""Which replicas keep the limits at least cost: the bound of any autoscaler, what schedules want.

A mix has a number of replicas of each pool.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from infer_jax.physics.numerics import Smoothing, ceiling


class Supply(NamedTuple):
    """The replicas that there can be, arrays over pools; ``gpus``: those of its system in all.

    Those of one system cost the same each, so that of its pools the cheapest mix has fewest.
    """

    each: np.ndarray  # requests/s of a replica within limits: [copies, pools]
    copies: np.ndarray  # of all pools that share what arrives, rising
    prices: np.ndarray  # USD/h of a replica
    chips: np.ndarray  # GPUs of a replica
    systems: np.ndarray  # names, or numbers
    gpus: np.ndarray

    def serve(self, replicas: np.ndarray) -> np.ndarray:
        """Requests/s that ``replicas`` [..., pools] serve, linear in 1 / copies as a table is."""
        x = -1.0 / np.maximum(replicas.sum(-1), 1.0)
        total = np.zeros_like(x)
        for i, column in enumerate(self.each.T):
            total = total + replicas[..., i] * np.interp(x, -1.0 / self.copies, column)
        return total

    def room(self, replicas: np.ndarray) -> np.ndarray:
        """Replicas of each pool alone for which there are GPUs beside these ``replicas``."""
        used = (self.systems[:, None] == self.systems) @ (self.chips * replicas)
        return np.floor((self.gpus - used) / self.chips)

    def alone(self, pool: int, rate: float) -> np.ndarray:
        """Every number of replicas of one pool, up to those that serve ``rate``: [numbers, pools].

        Requests/s, with one replica to spare; or up to those for which there are GPUs.
        """
        numbers = np.arange(len(self.prices))
        most = min(np.ceil(rate / self.each[:, pool].min()) + 1.0, self.room(0.0 * numbers)[pool])
        return np.arange(most + 1.0)[:, None] * (numbers == pool)

    def without(self, pool: int) -> "Supply":
        """The others than the pool of that number."""
        others = np.arange(len(self.prices)) != pool
        return Supply(self.each[:, others], self.copies, *(x[others] for x in self[2:]))


def mixes(supply: Supply, rate: float) -> np.ndarray:
    """Mixes that serve more than any that costs no more, cheapest first: [mixes, pools].

    The last is the first that serves ``rate`` requests/s, where there are the GPUs for one; the
    first has a replica. Exact: system by system, every mix of those before with every mix of its
    pools, of which the best are kept (dominance, as in the knapsack problem: Kellerer, Pferschy and
    Pisinger 2004, 3.4).

    >>> one, many = np.ones(2), np.full(2, 9.0)
    >>> each, price = np.array([[3.0, 1.0]]), np.array([2.0, 1.0])
    >>> mixes(Supply(each, np.ones(1), price, one, one, many), 4.0).tolist()
    [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    none = np.zeros((1, len(supply.prices)))

    def best(some: np.ndarray, more: np.ndarray, gpus: float = np.inf) -> np.ndarray:
        every = (some[:, None] + more).reshape(-1, none.size)
        every = every[every @ supply.chips <= gpus]
        serves = supply.serve(every)
        order = np.lexsort((-serves, every @ supply.prices))
        every, serves = every[order], serves[order]
        before = np.concatenate([[-1.0], np.maximum.accumulate(serves)[:-1]])
        return every[(serves > before) & (before < rate)]

    found = none
    for system in dict.fromkeys(supply.systems.tolist()):
        own = none
        for i in np.flatnonzero(supply.systems == system).tolist():
            own = best(own, supply.alone(i, rate), supply.gpus[i])
        found = best(found, own)
    return found[1:]


def cheapest(rates: Array, serves: Array, found: Array, smoothing: Smoothing = None) -> Array:
    """The first of the mixes ``found`` that serves each rate (requests/s): [rates, pools].

    ``serves``: requests/s of each mix, rising.

    With a smoothing replicas rise from mix to mix in ramps, of one pool as ``ceiling`` does;
    else gradients are 0. Beyond the last mix it is the last.
    """
    at = jnp.clip(jnp.searchsorted(serves, rates), 0, len(found) - 1)
    before = jnp.maximum(at - 1, 0)
    gap = jnp.where(at > 0, serves[at] - serves[before], 1.0)
    part = jnp.clip(ceiling((rates - serves[before]) / gap, smoothing), 0.0, 1.0)
    return found[before] + part[:, None] * (found[at] - found[before])


def base_and_burst(rates: np.ndarray, supply: Supply) -> tuple[np.ndarray, int]:
    """Replicas of one pool that are always there, [pools], and the pool that is scaled above them.

    Those that cost least where the other follows ``rates`` (requests/s) as well as it can, with one
    replica at least: the newsvendor's question (see ``reserve``) for whole replicas of two kinds,
    by trying every number. The second is -1 where no two pools serve all.
    """
    prices = supply.prices
    best, found = np.inf, (0.0 * prices, -1)
    for scaled, pool in np.ndindex(len(prices), len(prices)):
        for base in supply.alone(pool, rates.max()) if pool != scaled else [0.0 * prices]:
            rest = rest_of(rates, base, scaled, supply)
            usd = base @ prices + rest.mean() * prices[scaled]
            if rest.max() <= supply.room(base)[scaled] and usd < best:
                best, found = usd, (base, scaled)
    return found


def rest_of(rates: np.ndarray, base: np.ndarray, scaled: int, supply: Supply) -> np.ndarray:
    """Replicas of pool ``scaled`` above the ``base`` that serve each rate, one at least.

    One more than for which there are GPUs where these serve less.
    """
    more = supply.alone(scaled, rates.max())
    return np.maximum(np.searchsorted(supply.serve(base + more), rates), 1.0)


def by_hour(replicas: Array, cycle: int) -> Array:
    """The most replicas that were needed at the same time of any cycle, for each period.

    ``cycle``: periods of a day or week. Of a time that was seen once it is what that time needed.
    """
    at = jnp.arange(len(replicas)) % cycle
    return jax.ops.segment_max(replicas, at, cycle)[at]


def in_time(replicas: Array, steps: int, ahead: int) -> Array:
    """Replicas wanted in each of ``steps`` of a period, so that they serve when it begins.

    The most of this step's period and of any that begins within ``ahead`` steps, which they take to
    start.

    >>> in_time(jnp.asarray([1.0, 3.0]), 4, 1).tolist()
    [1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    """
    wanted, size = jnp.repeat(replicas, steps), (ahead + 1,)
    return lax.reduce_window(wanted, -jnp.inf, lax.max, size, (1,), [(0, ahead)])
