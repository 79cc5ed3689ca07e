"""Evaluates a function of specs once, by a program kept from an earlier process if any.

Tracing, lowering and compiling take most of a command. They are done once for a structure of
arguments: this process remembers the program, and the next reads it from a folder.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import RLock
from typing import Any, TypeVar

import jax
import numpy as np

from infer_jax.compiling import kept
from infer_jax.compiling.options import QUICK, Options
from infer_jax.compiling.structure import UndescribableError, described, name_of, plain, rebuilt

MANY = 50_000  # points from which optimised code wins its compilation back
T = TypeVar("T")
Program = Callable[..., Any]  # from the arguments to the answer, leaves as NumPy arrays

_programs: dict[str, Program] = {}
_making: dict[str, RLock] = {}


def once(
    function: Callable[..., T], *args: object, points: int = 1, fixed: tuple[object, ...] = ()
) -> T:
    """``jax.jit(function)(*fixed, *args)`` for a program that runs once, leaves as NumPy arrays.

    On a CPU one of fewer ``points`` than ``MANY`` is compiled quickly. If ``function`` has a name
    in this package its program is kept where JAX keeps what it compiles, and the next process
    neither traces nor compiles it. New numbers need no new program. ``fixed`` are arguments of
    structure: plain values and functions.
    """
    static = tuple(range(len(fixed)))
    if jax.default_backend() != "cpu":
        return jax.device_get(jax.jit(function, static_argnums=static)(*fixed, *args))
    options: Options = QUICK if points < MANY else {}
    try:
        asked = [name_of(function), plain(fixed), described(args), options]
    except (UndescribableError, TypeError):
        traced = jax.jit(function, static_argnums=static, compiler_options=options)
        return jax.device_get(traced(*fixed, *args))
    key = kept.key(asked)
    with _making.setdefault(key, RLock()):  # threads that ask for one program make it once
        if key not in _programs:
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
            _programs[key] = _compiled(key, partial(function, *fixed), args, options)
        program = _programs[key]
    return program(*args)


def _loaded(key: str) -> Program | None:
    """The program of that name from the folder, where it is there and can be read."""
    stored = kept.load(key)
    if stored is None:
        return None
    (answer, used), code = stored
    try:
        tree = jax.tree.structure(rebuilt(answer))
        device = jax.devices()[0]
        executable = device.client.deserialize_executable(code, (device,))
    except Exception:  # XLA's errors have no common class; treat the file as absent
        return None

    def run(*args: object) -> object:
        flat = jax.tree.leaves(args)
        given = [jax.device_put(flat[i], device) for i in used]
        return jax.tree.unflatten(tree, [np.asarray(x) for x in executable.execute(given)])

    return run


def _compiled(
    key: str, function: Callable[..., object], args: tuple[object, ...], options: Options
) -> Program:
    """The program, traced and compiled, and kept under that name.

    What no answer depends on is neither lowered nor compiled, and so not an argument of it.
    """

    def kept_program(*given: object) -> object:
        # a name of its own in JAX's cache, since XLA cannot serialize what it loaded from there
        return function(*given)

    lowered = jax.jit(kept_program).lower(*args)
    with _not_twice():
        try:
            program = lowered.compile(compiler_options=options)
        except Exception:  # a release of XLA that has dropped one of the options
            program = lowered.compile()
    tree = program.out_tree
    try:
        answer = described(jax.tree.unflatten(tree, [0.0] * tree.num_leaves))
        placed: list[object] = program.in_tree.flatten_up_to(program.input_shardings)  # pyright: ignore
        used = [i for i, place in enumerate(placed) if place is not None]
        executable = program.runtime_executable()
        code = executable.client.serialize_executable(executable)  # pyright: ignore
    except Exception:  # an answer without a name, or a release of JAX with another interface
        pass
    else:
        kept.store(key, (answer, used), bytes(code))
    return lambda *given: jax.device_get(program(*given))


def _not_twice() -> AbstractContextManager[object]:
    """Within it, JAX's own cache stores nothing: what is kept here need not be written there."""
    try:
        from jax._src.config import persistent_cache_min_compile_time_secs as least

        return least(math.inf)
    except Exception:  # a release of JAX with another name for it
        return nullcontext()
