"""A positive law of one number as a table, where it is needed at many points."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float

from infer_jax.specs import Spec, part, spec, static


@spec
class Tabulated(Spec):
    """Logarithms of a law at 2^(first + i / fine), i = 0, 1, ..., with straight lines between.

    A power law, such as reading or computing alone, is exact at every argument. Beyond the ends
    the law has its value there.
    """

    logs: Float[Array, " points"] = part("natural logarithms of the law")
    first: int = static("power of two of the first point")
    fine: int = static("points to a doubling")

    def __call__(self, x: Array) -> Array:
        """The law at ``x``."""
        last = self.logs.shape[-1] - 1
        ends = 2.0**self.first, 2.0 ** (self.first + last / self.fine)
        at = (jnp.log2(jnp.clip(x, *ends)) - self.first) * self.fine
        low = jnp.minimum(jnp.floor(at), last - 1.0)
        index, share = low.astype(jnp.int32), at - low
        return jnp.exp(self.logs[index] * (1.0 - share) + self.logs[index + 1] * share)


def tabulated(
    law: Callable[[Array], Array], first: int, last: int, fine: int, dtype: DTypeLike
) -> Tabulated:
    """``law`` from 2^first to 2^last, with ``fine`` points to a doubling.

    >>> cube = tabulated(lambda x: x**3, 0, 10, 4, float)
    >>> round(float(cube(jnp.asarray(5.0))), 3)
    125.0
    """
    points = 2.0 ** (np.arange(first * fine, last * fine + 1) / fine)
    logs = jnp.log(jax.vmap(law)(jnp.asarray(points, dtype)))
    return Tabulated(logs=logs, first=first, fine=fine)
