"""Is a gradient right, and is it finite where it may not be?"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# programs here run once: what makes them shorter takes longer than it saves
PROGRAM = {"xla_backend_optimization_level": 0, "xla_disable_hlo_passes": "algsimp"}


def numbers(*values: Any) -> tuple[jax.Array, ...]:
    """As arrays of the default precision, whatever they were."""
    return tuple(jnp.asarray(x, float) for x in values)


def agrees_with_differences(function: Callable[..., Any], *args: Any, tolerance=1e-6) -> None:
    """Every leaf's gradient equals the central difference, to a share of the value's scale.

    The step is 1e-5 of the leaf, in float64: about 1e-10 of truncation and 1e-11 of rounding
    relative to the value, far below the tolerance. A leaf at 0, the edge of its domain, has
    no central difference and is passed over. Forward mode agrees along one direction.
    """
    leaves, shape = jax.tree.flatten(args)
    point = np.array([float(leaf) for leaf in leaves])
    steps = np.where(point == 0.0, 1.0, 1e-5 * np.abs(point))
    direction = np.abs(point) + 1.0

    def flat(x):
        return function(*jax.tree.unflatten(shape, list(x)))

    def at_point(x):
        value, slopes = jax.value_and_grad(flat)(x)
        return value, slopes, jax.jvp(flat, (x,), (direction,))[1]

    moved = jnp.asarray(point + np.concatenate([np.diag(steps), -np.diag(steps)]))
    value, slopes, along = jax.jit(at_point, compiler_options=PROGRAM)(jnp.asarray(point))
    up, down = np.split(jax.jit(jax.vmap(flat), compiler_options=PROGRAM)(moved), 2)
    expected, slopes = (up - down) / (2.0 * steps), np.asarray(slopes)
    scale = np.abs(slopes) + abs(float(value)) / np.where(point == 0.0, 1.0, np.abs(point))
    inside = point != 0.0
    wrong = inside & ~(np.abs(slopes - expected) <= tolerance * scale)
    assert not wrong.any(), (np.flatnonzero(wrong), slopes[wrong], expected[wrong])
    np.testing.assert_allclose(along, slopes @ direction, rtol=1e-10)


def finite(function: Callable[..., Any], *args: Any) -> None:
    """Value and gradient at every leaf are finite, in float64 and in float32."""
    for wide in (True, False):
        with jax.enable_x64(wide):
            given = jax.tree.map(lambda x: jnp.asarray(x, float), args)
            value, slopes = _with_slopes(function, len(args), wide)(*given)
            assert np.isfinite(value), (wide, value)
            assert np.all(np.isfinite(jax.tree.leaves(slopes))), (wide, slopes)


@cache
def _with_slopes(function: Callable[..., Any], arguments: int, wide: bool) -> Callable[..., Any]:
    """Compiled once for points of the same structure; each width is a program of its own."""

    def law(*args):
        return function(*args)

    slopes = jax.value_and_grad(law, tuple(range(arguments)))
    return jax.jit(slopes, compiler_options=PROGRAM)
