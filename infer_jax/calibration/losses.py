"""Robust losses, written as residuals whose squares they are."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Loss(NamedTuple):
    """A loss rho of a standardised residual z, rho(z) = z^2 where z is small.

    ``root`` is sign(z) sqrt(rho(z)), smooth at 0 with slope 1, for least squares; ``weight`` is
    rho'(z) / (2 z), the weight of a row in the equations of the optimum; ``curvature`` is
    rho''(z) / 2, its contribution to the information.
    """

    root: Callable[[Array], Array]
    weight: Callable[[Array], Array]
    curvature: Callable[[Array], Array]


def _soft_l1_root(z: Array) -> Array:
    # sqrt(1 + q) - 1 = q / (sqrt(1 + q) + 1), without cancellation at 0
    return z * jnp.sqrt(2.0 / (jnp.sqrt(1.0 + z**2) + 1.0))


def _cauchy_root(z: Array) -> Array:
    quarter = z**2 / 4.0
    # log1p(q) / q is 0 / 0 at 0, where the series 1 - q / 2 is exact to rounding
    small = quarter < 1e-9
    share = jnp.where(small, 1.0 - quarter / 2.0, jnp.log1p(quarter) / jnp.where(small, 1, quarter))
    return z * jnp.sqrt(share)


# rho = 2 (sqrt(1 + z^2) - 1): a large residual counts by its size
SOFT_L1 = Loss(_soft_l1_root, lambda z: 1.0 / jnp.sqrt(1.0 + z**2), lambda z: (1.0 + z**2) ** -1.5)
# rho = 4 log(1 + z^2 / 4): a large residual hardly counts
CAUCHY = Loss(
    _cauchy_root,
    lambda z: 1.0 / (1.0 + z**2 / 4.0),
    lambda z: (1.0 - z**2 / 4.0) / (1.0 + z**2 / 4.0) ** 2,
)


def robust(residual: Array, scale: float) -> Array:
    """Residuals whose squares are the soft-L1 loss: large ones count by their size only.

    rho(r) = 2 s^2 (sqrt(1 + (r/s)^2) - 1), returned as sign(r) sqrt(rho): near r where it is
    small against the scale s, near sqrt(2 s |r|) where large. Smooth at 0 with slope 1.
    """
    return scale * SOFT_L1.root(residual / scale)
