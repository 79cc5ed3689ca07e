"""``jax.jit`` as a decorator that keeps the types of the function, which JAX's own does not."""

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
T = TypeVar("T")
Options = dict[str, Any]  # of the compiler


def jit(
    *,
    static: tuple[int, ...] = (),
    donate: tuple[int, ...] = (),
    options: Options | None = None,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Compile a function: numbers of its static and of its donated arguments, and XLA's options.

    >>> @jit(static=(0,))
    ... def power(n: int, x: float) -> jax.Array:
    ...     return jax.numpy.asarray(x) ** n
    >>> power(3, 2.0).item()
    8.0
    """
    return partial(jax.jit, static_argnums=static, donate_argnums=donate, compiler_options=options)  # pyright: ignore[reportUnknownMemberType]
