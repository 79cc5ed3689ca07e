"""Evaluates a function of specs once, by a program kept from an earlier process if any.

Tracing, lowering and compiling take most of a command. They are done once for a structure of
arguments: this process remembers the program, and the next reads it from a folder.

A structure is plain data, to compare and rebuild elsewhere: specs, named tuples, tuples, lists and
dictionaries of numbers; what is static in a spec must be plain or have a name in this package. Data
names classes and functions and holds no code.
"""

import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial, wraps
from importlib import import_module
from threading import RLock
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from infer_jax.compiling import jax_internals, store
from infer_jax.typed_jax import Options

LEAF = "leaf"
PLAIN = (bool, int, float, str, type(None))


class UndescribableError(ValueError):
    """A tree holds what has no name in this package: a lambda, a closure, a user's class."""


def described(tree: object, *, static: bool = False) -> object:
    """A tree as data: types in full, of every number its shape and dtype.

    ``static`` values are written in full: plain ones, functions of this package, and tuples and
    records of them.
    """
    if tree is None or (static and isinstance(tree, PLAIN)):
        return tree
    if isinstance(tree, dict):
        if not all(isinstance(name, str) for name in tree):
            raise UndescribableError("a key that is no text")
        return {"dict": {name: described(tree[name], static=static) for name in sorted(tree)}}
    if isinstance(tree, tuple | list):
        items = [described(x, static=static) for x in tree]
        if type(tree) in (tuple, list):
            return {type(tree).__name__: items}
        return {"named": name_of(type(tree)), "items": items}
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields: dict[str, object] = {}
        for f in dataclasses.fields(tree):
            in_full = static or f.metadata.get("kind") == "static"
            fields[f.name] = described(getattr(tree, f.name), static=in_full)
        return {"record": name_of(type(tree)), "fields": fields}
    if static:
        return {"name": name_of(tree)}
    if isinstance(tree, type):
        raise UndescribableError(repr(tree))
    aval = jax.typeof(tree)  # TypeError where it is no number
    return {LEAF: [list(aval.shape), str(aval.dtype), aval.weak_type]}


def rebuilt(data: Any) -> Any:
    """The tree of ``described`` with 0.0 for every number."""
    if not isinstance(data, dict):  # None, and what is static
        return data
    if LEAF in data:
        return 0.0
    if "name" in data:
        return _resolve(data["name"])
    if "dict" in data:
        return {name: rebuilt(x) for name, x in data["dict"].items()}
    if "tuple" in data:
        return tuple(rebuilt(x) for x in data["tuple"])
    if "list" in data:
        return [rebuilt(x) for x in data["list"]]
    if "named" in data:
        return _class(data["named"], tuple)(*(rebuilt(x) for x in data["items"]))
    record = _class(data["record"], object)
    return record(**{name: rebuilt(x) for name, x in data["fields"].items()})


def name_of(thing: object) -> str:
    """``module:name`` of a class or function of this package."""
    module, name = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    if not name or not str(module).startswith("infer_jax."):
        raise UndescribableError(f"{thing!r} is not of this package")
    if _resolve(f"{module}:{name}") is not thing:
        raise UndescribableError(f"{thing!r} has no name")
    return f"{module}:{name}"


def _resolve(text: str) -> object:
    module, name = text.split(":")
    if not module.startswith("infer_jax."):
        raise UndescribableError(f"{text!r} is not of this package")
    here: object = import_module(module)
    for part in name.split("."):
        here = getattr(here, part, None)
    return here


def _class(text: str, base: type) -> Any:
    kind = _resolve(text)
    if not isinstance(kind, type) or not issubclass(kind, base):
        raise UndescribableError(f"{text!r} is no {base.__name__}")
    if not dataclasses.is_dataclass(kind) and not hasattr(kind, "_fields"):
        raise UndescribableError(f"{text!r} is neither a spec nor a named tuple")
    return kind


# Unoptimised, without the costly passes, by the older of XLA's two writers of fused loops, which
# takes a third of the time of the newer one, and as one module: options of ``jax.jit`` on a CPU.
# Fusion stays on: unfused, the programs of ``estimate`` take two to six times as long to compile.
QUICK: Options = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}

# Of a large program over some hundred rows: twice as long to compile, a sixth of the time to run.
BRISK: Options = {**QUICK, "xla_backend_optimization_level": 1}
# Of slopes over some dozen rows the newer writer takes two thirds of the older one's time.
SLOPES: Options = {**BRISK, "xla_cpu_use_fusion_emitters": True}
# What runs for long is optimised, also where XLA_FLAGS ask for programs that compile quickly: the
# older writer of fused loops computes parts of a scan anew in every step.
FULL: Options = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}


def quick(platform: str) -> Options | None:
    """``QUICK`` on a CPU; other compilers know no such options."""
    return accepted_options(QUICK) if platform == "cpu" else None


def full(platform: str) -> Options | None:
    """``FULL`` on a CPU."""
    return accepted_options(FULL) if platform == "cpu" else None


def wide(platform: str) -> Options | None:
    """For programs over many points, on a CPU: the widest vectors there are.

    A quarter to a half faster than the compiler's 256 bits.
    """
    return accepted_options({"xla_cpu_prefer_vector_width": 512}) if platform == "cpu" else None


def of_gradients(platform: str) -> Options | None:
    """For gradients in reverse mode of large programs, on a CPU: the older writer of fused loops.

    The gradient of the kernels model compiles in a quarter of the time (7 s, not 29 s, of
    processor), that of the serving model by an architecture in a third (2.2 s, not 6.5 s).
    """
    return accepted_options({"xla_cpu_use_fusion_emitters": False}) if platform == "cpu" else None


def of_rows(platform: str) -> Options | None:
    """For slopes of large programs over many rows, on a CPU: the newer writer of fused loops.

    The older one, where loops have several outputs, compiles the slopes of the serving model at 63
    loads in 20 s of processor, the newer one in 10 s.
    """
    return accepted_options({"xla_cpu_use_fusion_emitters": True}) if platform == "cpu" else None


def accepted_options(options: Options) -> Options:
    """Those of the options that this release of XLA takes on a CPU.

    Releases drop options (jaxlib 0.11.2 has no ``xla_cpu_use_fusion_emitters``), and then refuse a
    program that asks for one. So XLA is asked first, with an empty program.
    """
    if _is_accepted(tuple(options.items())):
        return options
    return {name: value for name, value in options.items() if _is_accepted(((name, value),))}


@cache
def _is_accepted(options: tuple[tuple[str, Any], ...]) -> bool:
    """Whether an empty program compiles with these options: 10 ms, once a process."""
    try:
        with jax.default_device(host_device()):
            jax.jit(lambda: 0.0, compiler_options=dict(options)).lower().compile()
    except Exception:  # XLA's errors have no common class
        return False
    return True


def host_device() -> jax.Device:
    """The CPU, where small programs run sooner and float64 is cheap, beside any accelerator.

    The first device where ``JAX_PLATFORMS`` leaves no CPU.
    """
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]


# points from which code that is optimised a little, and fully, wins its compilation back
SOME, MANY = 10_000, 50_000
# signals whose handlers may raise: of Ctrl-C, of the system, of timers
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2")
P = ParamSpec("P")
T = TypeVar("T")
Program = Callable[..., Any]  # from the arguments to the answer, leaves as NumPy arrays

_programs: dict[str, Program] = {}
_locks: dict[str, RLock] = {}


def once(
    function: Callable[..., T],
    *args: object,
    points: int = 1,
    fixed: tuple[object, ...] = (),
    options: Options | None = None,
) -> T:
    """``jax.jit(function)(*fixed, *args)`` for a program that runs once, leaves as NumPy arrays.

    On a CPU one of fewer ``points`` than ``SOME`` is compiled quickly, and from ``MANY`` on fully
    optimised. If ``function`` has a name in this package its program is kept where JAX keeps what
    it compiles, and the next process neither traces nor compiles it. New numbers need no new
    program. ``fixed`` are arguments of structure: plain values and functions; ``options``: those of
    a CPU's compiler, in place of those by ``points``.
    """
    static = tuple(range(len(fixed)))
    if jax.default_backend() != "cpu":
        return jax.device_get(jax.jit(function, static_argnums=static)(*fixed, *args))
    options = options or (QUICK if points < SOME else BRISK if points < MANY else FULL)
    args = strengthen(args)
    try:  # a part may have no name; the first device may be another process's
        description = [name_of(function), described(fixed, static=True), described(args), options]
    except (UndescribableError, TypeError):
        description = None
    if description is None or jax.process_count() > 1:
        taken = accepted_options(options)
        traced = jax.jit(function, static_argnums=static, compiler_options=taken)
        return jax.device_get(traced(*fixed, *args))
    key = store.key(description)
    with _locks.setdefault(key, RLock()):  # of threads that need the same program one compiles it
        program = _programs.get(key)
        if program is None:
            if len(_programs) >= store.MAX_FILES:
                _programs.clear()
            loaded = _load(key)
            try:
                if loaded is not None:
                    answer = loaded(*args)
                    _programs[key] = loaded
                    return answer
            except Exception:  # XLA's errors have no common class; compile it again
                pass
            program = _compile(key, partial(function, *fixed), args, options)
            _programs[key] = program
    return program(*args)


def strengthen(tree: T) -> T:
    """The same with NumPy's numbers for Python's and JAX's weak ones, which are other programs.

    As it is where numbers of other precision stand beside them, to which weak ones adapt.

    >>> strengthen((2.0, np.ones(1)))
    (array(2.), array([1.]))
    """

    def strong(x: Any) -> Any:
        weak = getattr(x, "weak_type", False) and x.dtype == np.float64
        return np.asarray(x) if weak or isinstance(x, float) else x

    kinds = {x.dtype for x in jax.tree.leaves(tree) if hasattr(x, "dtype")} - {np.dtype(float)}
    return jax.tree.map(strong, tree) if all(x.kind in "biu" for x in kinds) else tree


def in_same_precision(function: Callable[P, T]) -> Callable[P, T]:
    """``function`` for another thread, in the precision (64 bits or 32) of this one.

    JAX's precision is set per thread, and a new one has the default.
    """
    x64 = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]

    @wraps(function)
    def in_precision(*args: P.args, **options: P.kwargs) -> T:
        with jax.enable_x64(x64):
            return function(*args, **options)

    return in_precision


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Signals that arrive within are handled at its end, in the main thread.

    XLA is given a module or machine code and returns an executable. A handler that raises between
    the two (Ctrl-C, a timer) would free what XLA has just made before anything refers to it.
    """
    arrived: list[int] = []
    handlers: dict[int, Any] = {}
    main = threading.current_thread() is threading.main_thread()
    try:
        for number in (getattr(signal, name, None) for name in SIGNALS if main):
            handler = None if number is None else signal.getsignal(number)
            if number is not None and callable(handler):
                handlers[number] = handler
                signal.signal(number, lambda number, _: arrived.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in arrived:
            signal.raise_signal(number)


def _load(key: str) -> Program | None:
    """The program of that name from the folder, where it is there and can be read."""
    stored = store.load(key)
    if stored is None:
        return None
    (answer, used), code = stored
    with interrupts_deferred():
        try:
            executable = jax_internals.deserialize(code)
            tree = jax.tree.structure(rebuilt(answer))
        except Exception:  # XLA's own errors have no common class: as one that is absent
            return None
    return _runner(executable, tree, used)


def _compile(
    key: str, function: Callable[..., object], args: tuple[object, ...], options: Options
) -> Program:
    """The program, traced, compiled, and stored under that name.

    What no answer depends on is neither lowered nor compiled, and so not an argument of it.
    """

    def stored_program(*args: object) -> object:
        # under this name no other's is in JAX's cache: XLA cannot write what it read from there
        return function(*args)

    lowered = jax.jit(stored_program).lower(*args)
    tree, taken = lowered.out_tree, accepted_options(options)
    with interrupts_deferred():
        try:
            executable, used = jax_internals.compile_lowered(lowered, taken)
        except Exception:  # a release of JAX whose insides are others
            program = jax_internals.compile_publicly(lowered, taken)
            return lambda *args: jax.device_get(program(*args))
        with suppress(Exception):  # an answer without a name, code that XLA cannot write
            answer = described(jax.tree.unflatten(tree, [0.0] * tree.num_leaves))
            store.store(key, (answer, used), jax_internals.serialize(executable))
    return _runner(executable, tree, used)


def _runner(executable: Any, tree: Any, used: Sequence[int]) -> Program:
    """A function of the arguments that runs it: its answer in a tree, leaves as NumPy arrays."""
    device = jax.devices()[0]

    def run(*args: object) -> object:
        flat = jax.tree.leaves(args)
        arrays = jax.device_put([flat[i] for i in used], device)
        return jax.tree.unflatten(tree, [np.asarray(x) for x in executable.execute(arrays)])

    return run
