"""Which replicas keep the limits at least cost: the bound of any autoscaler, what schedules want.

A mix has a number of replicas of each pool, whose requests/s within limits are ``each``.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from infer_jax.physics.numerics import Smoothing, ceiling


def mixes(each: np.ndarray, prices: np.ndarray, most: np.ndarray, rate: float) -> np.ndarray:
    """Mixes that serve more than any that costs no more, cheapest first: [mixes, pools].

    The last is the first that serves ``rate`` requests/s, where ``most`` replicas of each pool do;
    the first has a replica. Exact: pool by pool, every mix of those before with every number of
    replicas, of which the best are kept (dominance, as in the knapsack problem: Kellerer, Pferschy
    and Pisinger 2004, 3.4).

    >>> mixes(np.array([3.0, 1.0]), np.array([2.0, 1.0]), np.array([9.0, 9.0]), 4.0).tolist()
    [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    found = np.zeros((1, len(each)))
    for i, (own, at_most) in enumerate(zip(each, most, strict=True)):
        count = np.arange(min(np.ceil(rate / own) + 1.0, at_most) + 1.0)
        every = np.repeat(found, len(count), axis=0)
        every[:, i] = np.tile(count, len(found))
        order = np.lexsort((-(every @ each), every @ prices))
        every, serves = every[order], (every @ each)[order]
        before = np.concatenate([[-1.0], np.maximum.accumulate(serves)[:-1]])
        found = every[(serves > before) & (before < rate)]
    return found[1:]


def cheapest(rates: Array, each: Array, found: Array, smoothing: Smoothing = None) -> Array:
    """The first of the mixes ``found`` that serves each rate (requests/s): [rates, pools].

    With a smoothing replicas rise from mix to mix in ramps, of one pool as ``ceiling`` does;
    else gradients are 0. Beyond the last mix it is the last.
    """
    serves = found @ each
    at = jnp.clip(jnp.searchsorted(serves, rates), 0, len(found) - 1)
    before = jnp.maximum(at - 1, 0)
    gap = jnp.where(at > 0, serves[at] - serves[before], 1.0)
    part = jnp.clip(ceiling((rates - serves[before]) / gap, smoothing), 0.0, 1.0)
    return found[before] + part[:, None] * (found[at] - found[before])


def base_and_burst(
    rates: np.ndarray, each: np.ndarray, prices: np.ndarray, most: np.ndarray
) -> tuple[np.ndarray, int]:
    """Replicas of one pool that are always there, [pools], and the pool that is scaled above them.

    Those that cost least where the other follows ``rates`` (requests/s) as well as it can, with one
    replica at least: the newsvendor's question (see ``reserve``) for whole replicas of two kinds,
    by trying every number. The second is -1 where no two pools serve all.
    """
    best, found = np.inf, (np.zeros(len(each)), -1)
    for scaled in range(len(each)):
        for base in range(len(each)):
            full = min(np.ceil(rates.max() / each[base]), most[base]) if base != scaled else 0.0
            for count in np.arange(full + 1.0):
                rest = np.maximum(np.ceil((rates - count * each[base]) / each[scaled]), 1.0)
                usd = count * prices[base] + rest.mean() * prices[scaled]
                if rest.max() <= most[scaled] and usd < best:
                    best, found = usd, (count * (np.arange(len(each)) == base), scaled)
    return found


def by_hour(replicas: Array, cycle: int) -> Array:
    """The most replicas that were needed at the same time of any cycle, for each period.

    ``cycle``: periods of a day or week. Of a time that was seen once it is what that time needed.
    """
    missing = -len(replicas) % cycle
    padded = jnp.concatenate([replicas, jnp.zeros(missing, replicas.dtype)])
    most = jnp.max(padded.reshape(-1, cycle), axis=0)
    return jnp.tile(most, len(padded) // cycle)[: len(replicas)]


def in_time(replicas: Array, steps: int, ahead: int) -> Array:
    """Replicas wanted in each of ``steps`` of a period, so that they serve when it begins.

    The most of this step's period and of any that begins within ``ahead`` steps, which they take to
    start.

    >>> in_time(jnp.asarray([1.0, 3.0]), 4, 1).tolist()
    [1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    """
    wanted, size = jnp.repeat(replicas, steps), (ahead + 1,)
    return lax.reduce_window(wanted, -jnp.inf, lax.max, size, (1,), [(0, ahead)])
