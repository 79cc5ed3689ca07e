"""Where does an increasing function cross zero, with a derivative in both modes?"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

HALVING = 28  # turns in which every other one halves the bracket, whatever the function is like
TURNS = 46  # and all of them: the last ones are false position alone, to the last digits


def crossing(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """x in [low, high] with function(x) = 0, for an increasing function; else the nearer end.

    False position with halved ends (Illinois; Dowell and Jarratt 1971), at first with halving in
    turn, in a loop of fixed length: the function stands in the program once for the ends and
    once for the loop, for it may be a large one. The derivative is that of the implicit
    function; at an end, the end's.
    """
    left, right = lax.stop_gradient((low, high))

    def solve(value: Callable[[Array], Array], _: Array) -> Array:
        def turn(i: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            a, at_a, b, at_b = state
            apart = at_b != at_a
            share = jnp.where(apart, at_b / jnp.where(apart, at_b - at_a, 1.0), 0.5)
            halves = (i % 2 == 1) & (i < HALVING)
            x = jnp.where(halves, 0.5 * (a + b), b - share * (b - a))
            at_x = value(x)
            done, other = jnp.abs(at_b) <= near, at_x * at_b < 0
            kept = jnp.where(other, b, a), jnp.where(other, at_b, 0.5 * at_a)
            return (
                jnp.where(done, a, kept[0]),
                jnp.where(done, at_a, kept[1]),
                jnp.where(done, b, x),
                jnp.where(done, at_b, at_x),
            )

        a, b = jax.vmap(value)(jnp.stack([left, right]))
        inside = (a < 0) & (b > 0)
        # beyond the last digit halved ends would lead away from the root again
        near = 4.0 * jnp.finfo(a.dtype).eps * jnp.maximum(jnp.abs(a), jnp.abs(b))
        # without a bracket the loop runs between signs of its own, and an end is the answer
        start = (left, jnp.where(inside, a, -1.0), right, jnp.where(inside, b, 1.0))
        root = lax.fori_loop(0, TURNS, turn, start)[2]
        return jnp.where(inside, root, jnp.where(a >= 0, left, right))

    def tangent(slope: Callable[[Array], Array], y: Array) -> Array:
        rise = slope(jnp.ones_like(y))
        return jnp.where(rise > 0, y / jnp.where(rise > 0, rise, 1.0), 0.0)

    root = lax.custom_root(function, left, solve, tangent)
    outside = lax.stop_gradient(root)
    return jnp.where(outside <= left, low, jnp.where(outside >= right, high, root))
