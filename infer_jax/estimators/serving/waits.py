"""What a prompt waits for before its first pass, in a closed loop and with arrivals."""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.workload import ServingWorkload
from infer_jax.physics import pipelining
from infer_jax.physics.memory import tiers
from infer_jax.physics.scheduling.balancing import balance_wait


def admission_passes(ctx: Context) -> Array:
    """Passes between the end of the running one and the first that can feed an arrival.

    Those that an engine has queued, and half of those between two looks at its arrivals.
    """
    return ctx.engine.ahead + (ctx.plan.polling - 1.0) / 2.0


def balance_passes(ctx: Context, arrivals: Array, busy: Array) -> Array:
    """Passes that a prompt waits for prompts of other attention groups (``balance_wait``).

    ``arrivals``: of a group, a pass; ``busy``: chance that a group decodes. Where one does not, no
    prompt waits.
    """
    groups = ctx.plan.attention_dp
    return busy**groups * balance_wait(arrivals, groups, ctx.plan.balance_timeout)


def fetch(ctx: Context, work: ServingWorkload, cached: Array, prefill: Array) -> Array:
    """Seconds that fetching ``cached`` bytes from host and disk adds to ``prefill``, by layers."""
    host = ctx.hardware.host
    near = tiers.seconds(cached * work.from_host, host.link_bandwidth)
    far = tiers.seconds(cached * work.from_disk, host.disk_read)
    layers = jnp.sum(ctx.shape.layers.count, axis=-1)
    return pipelining.exposed_time(near + far, prefill, layers)
