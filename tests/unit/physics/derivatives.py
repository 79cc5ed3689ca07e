"""Is a gradient right, and is it finite where it may not be?"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# programs here run once: what makes them shorter takes longer than it saves, and the passes that
# XLA_FLAGS leave out stay out
LEFT_OUT = re.findall(r"--xla_disable_hlo_passes=(\S+)", os.environ.get("XLA_FLAGS", ""))
PROGRAM = {
    "xla_backend_optimization_level": 0,
    "xla_disable_hlo_passes": ",".join(["algsimp", *LEFT_OUT]),
}


def numbers(*values: Any) -> tuple[jax.Array, ...]:
    """As arrays of the default precision, whatever they were."""
    return tuple(jnp.asarray(x, float) for x in values)


def agree_at(function: Callable[..., Any], *points: Sequence[Any], tolerance=1e-6) -> None:
    """Every leaf's gradient equals the central difference, to a share of the value's scale.

    The step is 1e-5 of the leaf, in float64: about 1e-10 of truncation and 1e-11 of rounding
    relative to the value, far below the tolerance. A leaf at 0, the edge of its domain, has
    no central difference and is passed over. Forward mode agrees along one direction. Points,
    each all arguments, that are of one structure are one program.
    """
    for shape, point in _of_one_structure(points):
        steps = np.where(point == 0.0, 1.0, 1e-5 * np.abs(point))
        direction = np.abs(point) + 1.0
        one = np.eye(point.shape[1])
        moved = point[:, None] + np.concatenate([one, -one]) * steps[:, None]
        both, law = _with_slopes(function, shape, True), _law(function, shape)
        found = [both(list(x), list(d)) for x, d in zip(point, direction, strict=True)]
        value, slopes, along = (np.array(x, float) for x in zip(*found, strict=True))
        values = jax.jit(jax.vmap(law), compiler_options=PROGRAM)(*moved.reshape(-1, len(one)).T)
        up, down = np.split(np.reshape(values, moved.shape[:2]), 2, axis=1)
        expected = (up - down) / (2.0 * steps)
        scale = np.abs(slopes) + np.abs(value)[:, None] / np.where(point == 0.0, 1.0, np.abs(point))
        wrong = (point != 0.0) & ~(np.abs(slopes - expected) <= tolerance * scale)
        assert not wrong.any(), (np.argwhere(wrong), slopes[wrong], expected[wrong])
        np.testing.assert_allclose(along, np.sum(slopes * direction, axis=1), rtol=1e-10)


def finite_at(function: Callable[..., Any], *points: Sequence[Any]) -> None:
    """Value and gradient at every leaf are finite, in float64 and in float32, at every point."""
    for shape, point in _of_one_structure(points):
        for kind in (np.float64, np.float32):
            with jax.enable_x64(kind is np.float64):
                law = _with_slopes(function, shape, kind is np.float64)
                for x in point.astype(kind):
                    found = law(list(x), list(np.ones_like(x)))
                    assert all(np.all(np.isfinite(y)) for y in jax.tree.leaves(found)), (kind, x)


def _of_one_structure(points: Iterable[Sequence[Any]]) -> Iterator[tuple[Any, np.ndarray]]:
    """(structure, numbers: points x leaves) of all points that have it."""
    groups: dict[Any, list[list[float]]] = {}
    for point in points:
        leaves, shape = jax.tree.flatten(tuple(point))
        groups.setdefault(shape, []).append([float(leaf) for leaf in leaves])
    for shape, rows in groups.items():
        yield shape, np.array(rows)


def _law(function: Callable[..., Any], shape: Any) -> Callable[..., Any]:
    """The function of the leaves of its arguments."""
    return lambda *leaves: function(*jax.tree.unflatten(shape, leaves))


@cache
def _with_slopes(function: Callable[..., Any], shape: Any, forward: bool) -> Callable[..., Any]:
    """(value, slopes[, slope along a direction]) at a point: one program of all its tests."""
    law = _law(function, shape)

    def at_point(x, direction):
        value, slope = jax.linearize(lambda x: law(*x), x)
        (slopes,) = jax.linear_transpose(slope, x)(jnp.ones_like(value))
        return (value, slopes, slope(direction)) if forward else (value, slopes)

    return jax.jit(at_point, compiler_options=PROGRAM)
