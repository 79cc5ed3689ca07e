"""How many requests in flight run when memory has room for only some of them?"""

import jax.numpy as jnp
from jax import Array


def running(requests: Array, places: Array, sharpness: Array) -> Array:
    """Requests that run when ``places`` is all there is room for: the smaller of both, smoothly.

    C (1 + (C / cap)^s)^(-1/s), written with logarithms because the power overflows float32. At
    C = cap it is 2^(-1/s) of either: where lengths vary, the memory is not always used up.

    >>> round(float(running(*map(jnp.asarray, (100.0, 1e6, 16.0)))), 3)
    100.0
    """
    each = jnp.logaddexp(-sharpness * jnp.log(requests), -sharpness * jnp.log(places))
    return jnp.exp(-each / sharpness)
