"""Replays many servers at once: other seeds, rates, sizes or coefficients in each lane."""

from collections.abc import Callable
from typing import TypeVar

import jax
from jax import lax

T = TypeVar("T")


def lanes(one: Callable[..., T], *many: object) -> T:
    """``one`` of each lane, all arguments with a leading axis, alike in structure.

    On a processor lane after lane, each in the core's own cache; on an accelerator side by side
    (``side_by_side`` is the faster way there).
    What ``one`` does not return (the path of a log, say) is not kept.

    >>> import jax.numpy as jnp
    >>> lanes(lambda a, b: a + b, jnp.arange(3), jnp.ones(3)).tolist()
    [1.0, 2.0, 3.0]
    """
    if jax.default_backend() == "cpu":
        return lax.map(lambda each: one(*each), many)
    return jax.vmap(one)(*many)
