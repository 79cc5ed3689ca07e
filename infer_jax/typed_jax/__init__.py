"""JAX's own functions with the types of their arguments, which its signatures lack."""

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

import jax
from jax import Array, lax

P = ParamSpec("P")
T = TypeVar("T")
Tree = TypeVar("Tree")  # of arrays
Options = dict[str, Any]  # of the compiler
Collective = Callable[[Array, str], Array]


def jit(
    *,
    static: tuple[int, ...] = (),
    donate: tuple[int, ...] = (),
    options: Options | None = None,
    inline: bool = False,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Compile a function: numbers of its static and of its donated arguments, and XLA's options.

    ``inline``: within another function that is compiled its operations stand there by themselves,
    from the one trace of its structure.

    >>> @jit(static=(0,))
    ... def power(n: int, x: float) -> jax.Array:
    ...     return jax.numpy.asarray(x) ** n
    >>> power(3, 2.0).item()
    8.0
    """
    return partial(  # pyright: ignore[reportUnknownMemberType]
        jax.jit,  # pyright: ignore[reportUnknownMemberType]
        static_argnums=static,
        donate_argnums=donate,
        compiler_options=options,
        inline=inline,
    )


def fori_loop(
    low: int | Array, high: int | Array, body: Callable[[Array, Tree], Tree], begin: Tree
) -> Tree:
    """``begin`` after ``body(i, state)`` for every i from ``low`` to below ``high``."""
    return cast(Tree, lax.fori_loop(low, high, body, begin))  # pyright: ignore[reportUnknownMemberType]


def cond(
    condition: Array, yes: Callable[..., Tree], no: Callable[..., Tree], *operands: object
) -> Tree:
    """What one of two functions of the operands returns."""
    return cast(Tree, lax.cond(condition, yes, no, *operands))  # pyright: ignore[reportUnknownMemberType]


# over the devices of an axis of the mesh: the sum, the least, the largest, and all of them stacked
psum, pmin = cast(Collective, lax.psum), cast(Collective, lax.pmin)  # pyright: ignore[reportUnknownMemberType]
pmax = cast(Collective, lax.pmax)  # pyright: ignore[reportUnknownMemberType]
all_gather = cast(Collective, lax.all_gather)  # pyright: ignore[reportUnknownMemberType]
