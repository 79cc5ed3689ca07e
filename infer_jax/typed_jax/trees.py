"""Trees of arrays leaf by leaf, as ``jax.tree.map`` does, typed as what they are given."""

from collections.abc import Callable
from operator import itemgetter
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool

Tree = TypeVar("Tree")
Answer = TypeVar("Answer")
Rows = int | slice | list[int] | Array | np.ndarray


def where(condition: Bool[Array, "..."], one: Tree, other: Tree) -> Tree:
    """``one`` where the condition holds, else ``other``.

    >>> where(jnp.array(True), (jnp.array(1.0),), (jnp.array(2.0),))[0].item()
    1.0
    """

    def chosen(a: Array, b: Array) -> Array:
        return jnp.where(condition, a, b)

    return jax.tree.map(chosen, one, other)


def stack(*trees: Tree) -> Tree:
    """One tree of several, which become the rows of its arrays.

    >>> stack((jnp.array(1.0),), (jnp.array(2.0),))[0].tolist()
    [1.0, 2.0]
    """

    def stacked(*leaves: Array) -> Array:
        return jnp.stack(leaves)

    return jax.tree.map(stacked, *trees)


def take(tree: Tree, rows: Rows) -> Tree:
    """The chosen row, or rows, of every array.

    >>> take((jnp.array([1.0, 2.0]),), 1)[0].item()
    2.0
    """
    return jax.tree.map(itemgetter(rows), tree)


def one_by_one(function: Callable[[Tree], Answer], rows: Tree) -> Answer:
    """The answers to all rows, computed one after the other: ``jax.lax.map``.

    >>> one_by_one(jnp.exp, jnp.array([0.0, 0.0])).tolist()
    [1.0, 1.0]
    """
    return jax.lax.map(function, rows)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
