"""How long do activities take that work on the same layers one behind the other, in stages?"""

import jax.numpy as jnp
from jax import Array, lax


def exposed_time(moving: Array, computing: Array, parts: Array) -> Array:
    """Seconds that moving adds to computing when both go part by part, in equal parts.

    max(M - T, 0) + min(M, T) / n: the longer of the two hides the shorter but for one part of it,
    the first to move or the last to compute.

    >>> four, two = jnp.asarray(4.0), jnp.asarray(2.0)
    >>> [float(exposed_time(jnp.asarray(m), four, two)) for m in (0.0, 2.0, 8.0)]
    [0.0, 1.0, 6.0]
    """
    return jnp.maximum(moving - computing, 0.0) + jnp.minimum(moving, computing) / parts


def rounds(stages: tuple[Array, ...], batches: Array) -> Array:
    """Seconds of one round of ``batches`` micro-batches through stages that pass them around.

    max(longest stage x n, sum of the stages): with few micro-batches each waits for its own way
    around, with many the longest stage never rests.

    >>> float(rounds(tuple(map(jnp.asarray, (3.0, 2.0, 1.0))), jnp.asarray(4.0)))
    12.0
    """
    longest = stages[0]
    for stage in stages[1:]:
        longest = jnp.maximum(longest, stage)
    return jnp.maximum(longest * batches, sum(stages[1:], start=stages[0]))


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
