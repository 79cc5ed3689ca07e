"""How long do prompts wait until every attention group has one?

With attention data parallelism a pass is as long as that of its slowest group, so that TensorRT-LLM
can hold prompts back until each group has one to feed (``attention_dp_config.enable_balance``).
"""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

NODES = 10  # the wait to 0.2 %
LATEST = 8.0  # arrivals of a group, of which it has one but for a chance of exp(-8)
TINY = 1e-12  # arrivals, of which the logarithm is finite


def balance_wait(arrivals: ArrayLike, groups: ArrayLike, timeout: ArrayLike) -> Array:
    """Passes that a prompt waits on average until each of ``groups`` groups has one to feed.

    Prompts reach each group at random, ``arrivals`` a pass. All that wait are let through when no
    group is without one, or when ``timeout`` = T passes have gone by since prompts were last let
    through, whether any waited or none. With F_n(t) = (1 - exp(-a t))^n, the chance that n groups
    have one within t passes, and by renewal,

        w = int_0^T t (1 - F_{G-1}(t)) dt / int_0^T (1 - F_G(t)) dt:

    T / 2 where prompts are rare, 0 for a single group.
    Source: TensorRT-LLM, _torch/pyexecutor/py_executor.py, _balance_adp_requests, without its
    ``batching_wait_iters``.

    >>> round(float(balance_wait(0.0, 8, 60.0)), 9), float(balance_wait(0.1, 1, 60.0))
    (30.0, 0.0)
    """
    points, weights = np.polynomial.legendre.leggauss(NODES)
    arrivals, groups, timeout = (
        (1.0 * jnp.asarray(x))[..., None] for x in (arrivals, groups, timeout)
    )
    share, weights = (jnp.asarray(0.5 * x, timeout.dtype) for x in (points + 1.0, weights))
    # where prompts come fast, all groups have one long before the timeout
    end = timeout / jnp.maximum(1.0, arrivals * timeout / (LATEST + jnp.log(groups)))
    one = jnp.log(-jnp.expm1(-(arrivals * end * share + TINY)))  # log F_1
    # not expm1, whose slope is its value and 1: of a chance near 0 few digits would be left
    others = jnp.exp((groups - 1.0) * one)
    waited = jnp.sum(weights * share * (1.0 - others), axis=-1)
    return end[..., 0] * waited / jnp.sum(weights * (1.0 - others * jnp.exp(one)), axis=-1)
