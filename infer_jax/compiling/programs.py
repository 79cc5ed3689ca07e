"""Evaluates a function of specs once, by a program kept from an earlier process if any.

Tracing, lowering and compiling take most of a command. They are done once for a structure of
arguments: this process remembers the program, and the next reads it from a folder.
"""

from collections.abc import Callable
from functools import partial
from threading import RLock
from typing import Any, TypeVar

import jax

from infer_jax.compiling import executables, kept
from infer_jax.compiling.options import BRISK, QUICK, Options
from infer_jax.compiling.structure import UndescribableError, described, name_of, plain, rebuilt

# points from which code that is optimised a little, and fully, wins its compilation back
SOME, MANY = 10_000, 50_000
T = TypeVar("T")
Program = Callable[..., Any]  # from the arguments to the answer, leaves as NumPy arrays

_programs: dict[str, Program] = {}
_making: dict[str, RLock] = {}


def once(
    function: Callable[..., T], *args: object, points: int = 1, fixed: tuple[object, ...] = ()
) -> T:
    """``jax.jit(function)(*fixed, *args)`` for a program that runs once, leaves as NumPy arrays.

    On a CPU one of fewer ``points`` than ``SOME`` is compiled quickly, and from ``MANY`` on fully
    optimised. If ``function`` has a name in this package its program is kept where JAX keeps what
    it compiles, and the next process neither traces nor compiles it. New numbers need no new
    program. ``fixed`` are arguments of structure: plain values and functions.
    """
    static = tuple(range(len(fixed)))
    if jax.default_backend() != "cpu":
        return jax.device_get(jax.jit(function, static_argnums=static)(*fixed, *args))
    options: Options = QUICK if points < SOME else BRISK if points < MANY else {}
    asked = _asked(function, fixed, args, options)
    if asked is None:
        traced = jax.jit(function, static_argnums=static, compiler_options=options)
        return jax.device_get(traced(*fixed, *args))
    key = kept.key(asked)
    with _making.setdefault(key, RLock()):  # threads that ask for one program make it once
        program = _programs.get(key)
        if program is None:
            if len(_programs) >= kept.MOST:
                _programs.clear()
            loaded = _loaded(key)
            try:
                if loaded is not None:
                    answer = loaded(*args)
                    _programs[key] = loaded
                    return answer
            except Exception:  # XLA's errors have no common class; compile it again
                pass
            program = _compiled(key, partial(function, *fixed), args, options)
            _programs[key] = program
    return program(*args)


def _asked(
    function: Callable[..., object],
    fixed: tuple[object, ...],
    args: tuple[object, ...],
    options: Options,
) -> list[object] | None:
    """What a program is kept by; None where that has no name.

    None also in one of several processes, where the first device may be another one's.
    """
    if jax.process_count() > 1:
        return None
    try:
        return [name_of(function), plain(fixed), described(args), options]
    except (UndescribableError, TypeError):
        return None


def _loaded(key: str) -> Program | None:
    """The program of that name from the folder, where it is there and can be read."""
    stored = kept.load(key)
    if stored is None:
        return None
    (answer, used), code = stored
    try:
        return executables.runner(executables.read(code), jax.tree.structure(rebuilt(answer)), used)
    except Exception:  # XLA's own errors have no common class: as one that is absent
        return None


def _compiled(
    key: str, function: Callable[..., object], args: tuple[object, ...], options: Options
) -> Program:
    """The program, traced and compiled, and kept under that name.

    What no answer depends on is neither lowered nor compiled, and so not an argument of it.
    """

    def kept_program(*given: object) -> object:
        # under this name no other's is in JAX's cache: XLA cannot write what it read from there
        return function(*given)

    lowered = jax.jit(kept_program).lower(*args)
    tree = lowered.out_tree
    try:
        executable, used = executables.compiled(lowered, options)
    except Exception:  # a release of JAX that is asked otherwise
        program = executables.by_jax(lowered, options)
        return lambda *given: jax.device_get(program(*given))
    try:
        answer = described(jax.tree.unflatten(tree, [0.0] * tree.num_leaves))
        kept.store(key, (answer, used), executables.written(executable))
    except Exception:  # an answer without a name
        pass
    return executables.runner(executable, tree, used)
