"""What is the fastest instance when only weight reads and all-reduce latency count?"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Fastest(NamedTuple):
    """Chips and time per token of the fastest instance."""

    chips: Array
    time: Array


def fastest_instance(hops: Array, read: Array) -> Fastest:
    """The minimum over N of hops (sqrt(N) - 1) + read / N, in chips and seconds.

    N* = max(1, (2 read / hops)^(2/3)), time = 3 (hops/2)^(2/3) read^(1/3) - hops, with
    ``hops`` = layers x all-reduces x hop latency and ``read`` the seconds one chip needs to
    read all weights, ``hops`` above 0. At N* = 1 the time is ``read``, the gradient that of it.
    Source: Erdil 2025 (arXiv 2506.04645), Section 2.2.3, Eqs. 13 and 14.

    >>> [round(float(x), 3) for x in fastest_instance(jnp.asarray(1.0), jnp.asarray(4.0))]
    [4.0, 2.0]
    """
    many = 2.0 * read > hops
    long = jnp.where(many, read, 1.0)  # the roots below have no gradient at a read of 0
    chips = jnp.where(many, (2.0 * long / hops) ** (2.0 / 3.0), 1.0)
    time = 3.0 * (hops / 2.0) ** (2.0 / 3.0) * long ** (1.0 / 3.0) - hops
    return Fastest(chips, jnp.where(many, time, read))
