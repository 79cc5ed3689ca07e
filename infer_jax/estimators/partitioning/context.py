"""The longest context that fits in a share of the memory."""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.partitioning.forward_pass import cache_share
from infer_jax.estimators.partitioning.slices import sharding_of
from infer_jax.physics import attention as att
from infer_jax.physics.decoder import total
from infer_jax.specs import Architecture, Hardware, Plan


def max_context(
    arch: Architecture, hardware: Hardware, plan: Plan, batch: Array, reserved: Array
) -> Array:
    """Tokens of context that fit for each of ``batch`` sequences.

    reserved * memory / (bytes of one token of all sequences on one chip), with ``reserved``
    the share of a chip's memory that is kept for the cache. Layers that cache more with every
    token alone count (no windows). Source: Pope et al. 2022 (arXiv 2211.05102), Table 1.
    """
    sharding, one = sharding_of(plan, arch), jnp.asarray(1.0)
    each = total(
        b.count
        * att.of(b.attention).held_bytes(arch.cache, one)
        * cache_share(sharding, b.attention, batch)
        for b in arch.blocks
        if b.attention is not None
    )
    return reserved * hardware.chip.memory * plan.pp / (batch * each)
