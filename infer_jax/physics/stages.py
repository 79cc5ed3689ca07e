"""How much longer is the longest stage of a pipeline than the mean one?"""

import jax.numpy as jnp
from jax import Array, lax


def longest(layers: Array, stages: Array) -> Array:
    """Layers of the longest stage over those of the mean one: ceil(L / p) p / L.

    Of the nearest whole numbers, and with gradient 0: a stage more is a step, whose slope says
    nothing. A pipeline in steady state goes at the pace of its longest stage, and the chips of that
    stage hold the most. Source: vLLM 0.19, distributed/utils.py, get_pp_indices, which deals out
    ceil(L / p) layers to some stages at least.

    >>> round(float(longest(jnp.asarray(61.0), jnp.asarray(4.0))) * 61 / 4, 3)
    16.0
    """
    whole = jnp.maximum(jnp.round(lax.stop_gradient(layers)), 1.0)
    parts = jnp.maximum(jnp.round(lax.stop_gradient(stages)), 1.0)
    # (L - 1) // p + 1, for a quotient that is whole but for rounding is not one more
    return (jnp.floor((whole - 0.5) / parts) + 1.0) * parts / whole
