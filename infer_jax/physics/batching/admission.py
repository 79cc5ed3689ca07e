"""How many requests run at once, and how many must wait for a slot or for cache?"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.physics.batching.kinds import Kinds, Server
from infer_jax.physics.numerics import square_root

# squared variation of requests at which half of the gap counts: a guard, for requests that are all
# alike leave none, and the law of the gap is that of unlike ones
ALIKE = 0.01
FAR = 12.0  # standard deviations beyond which nothing is left of a normal distribution


class Memory(NamedTuple):
    """How many requests a cache holds, as real numbers: their mean, and how that varies."""

    limit: Array  # requests that run when others wait for the cache
    varied: Array  # squared coefficient of variation of what one holds
    work: Array  # E[w^2] / E[w]^2 of what one holds times how long


def memory(kinds: Kinds, server: Server) -> Memory:
    """The requests that the cache holds at once: (cache - gap) / h.

    h is what a request holds, weighted in its mean by how long it runs. Where requests differ,
    the first that waits leaves half of what it needs unused, E[h^2] / (2 E[h]) on average, for
    no later one passes it.
    """
    tokens = kinds.cached + kinds.fresh + server.reserved * kinds.output
    here = kinds.weight * kinds.output
    mean = jnp.sum(here * tokens) / jnp.sum(here)
    varied = jnp.sum(here * (tokens / mean - 1.0) ** 2) / jnp.sum(here)
    gap = 0.5 * kinds.mean(tokens**2) / kinds.mean(tokens) * varied / (varied + ALIKE)
    work = kinds.mean((kinds.output * tokens) ** 2) / kinds.mean(kinds.output * tokens) ** 2
    return Memory(jnp.maximum(server.cache - gap, server.cache / 2.0) / mean, varied, work)


class Admitted(NamedTuple):
    """Requests that run and those that wait, on average; ``varied`` the variance of the latter."""

    run: Array
    wait: Array
    varied: Array


def admitted(concurrency: Array, server: Server, held: Memory) -> Admitted:
    """Who runs of ``concurrency`` requests in flight: all but those beyond slots and cache.

    Those that wait for the cache are E[max(n - N, 0)] with N, what it holds, normal.
    """
    wanted = jnp.minimum(concurrency, server.slots)
    spread = square_root(held.varied * jnp.minimum(wanted, held.limit)) + 1e-3
    over = wanted - held.limit
    x = jnp.clip(over / spread, -FAR, FAR)
    short, density = jax.scipy.stats.norm.cdf(x), jax.scipy.stats.norm.pdf(x)
    excess = jnp.maximum(over * short + spread * density, 0.0)
    second = (over**2 + spread**2) * short + over * spread * density
    # not as concurrency - run: the difference of equals has no digits left in a derivative
    wait = jnp.maximum(concurrency - server.slots, 0.0) + excess
    return Admitted(wanted - excess, wait, jnp.maximum(second - excess**2, 0.0))
