"""How many replicas keep the limits: the bound of any autoscaler, and what schedules want."""

import jax.numpy as jnp
from jax import Array, lax

from infer_jax.fleets.fluid import Lifecycle
from infer_jax.fleets.replica import Replica, ServiceLimits
from infer_jax.physics.numerics import Smoothing, ceiling


def fewest(
    rates: Array,
    replica: Replica,
    life: Lifecycle,
    limits: ServiceLimits,
    smoothing: Smoothing = None,
) -> Array:
    """The fewest replicas, at least one, that keep the limits in each period.

    max(ceil(largest rate of the period / (requests/s of one within limits x share of the time that
    it serves)), 1). ``rates``: [periods, steps]. With a replica that breaks the limits while it is
    idle, as many as for all of its capacity. Gradient 0 without a smoothing.
    """
    within = replica.rate_within(limits)
    each = jnp.where(within > 0.0, within, replica.capacity) * life.serving
    return jnp.maximum(ceiling(jnp.max(rates, axis=1) / each, smoothing), 1.0)


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
