"""Functions for other threads: JAX's precision is set per thread, and a new one has the default."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def as_wide_here(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` for another thread, in the precision (64 bits or 32) of this one."""
    wide = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]

    @wraps(function)
    def as_wide(*args: P.args, **options: P.kwargs) -> R:
        with jax.enable_x64(wide):
            return function(*args, **options)

    return as_wide
