"""XLA's own executables on a CPU: compiled by options that JAX cannot pass, read, written and run.

What is asked here are JAX's insides. Whatever they refuse is an exception, after which the caller
asks JAX itself.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from infer_jax.typed_jax import Options

# XLA for CPUs copies what several fused loops read into each of them: a program of 5,000
# operations has 16,500 then, and is compiled and read that much more slowly. With loops of several
# outputs it copies nothing. The option is one of a map, to which JAX passes no entries:
# numbers of fields of DebugOptions (xla.proto of OpenXLA), ExecutableBuildOptionsProto and
# CompileOptionsProto (compile_options.proto).
SEVERAL_OUTPUTS = "xla_cpu_use_multi_output_fusion"
EXTRA_OPTIONS, DEBUG_OPTIONS, BUILD_OPTIONS = 500, 3, 3


def compiled(lowered: jax.stages.Lowered, options: Options) -> tuple[Any, list[int]]:
    """The executable of a lowered function, and the places of the arguments that it reads.

    Raises:
        ValueError: a program of more than numbers in and numbers out.
    """
    inner: Any = lowered._lowering  # pyright: ignore[reportPrivateUsage]
    asked = inner.compile_args
    if asked["host_callbacks"] or asked["ordered_effects"] or asked["unordered_effects"]:
        raise ValueError("a program with effects")
    if inner.const_args:
        raise ValueError("constants that are arguments")
    try:
        executable = _with_several_outputs(lowered, options)
    except Exception:  # a release of JAX whose insides are others
        with _not_twice():
            executable = by_jax(lowered, options).runtime_executable()
    return executable, sorted(asked["kept_var_idx"])


def by_jax(lowered: jax.stages.Lowered, options: Options) -> jax.stages.Compiled:
    """As JAX itself compiles it."""
    try:
        return lowered.compile(compiler_options=options)
    except Exception:  # a release of XLA that has dropped one of the options
        return lowered.compile()


def _with_several_outputs(lowered: jax.stages.Lowered, options: Options) -> Any:
    """Compiled with loops of several outputs."""
    from jax._src.compiler import get_compile_options
    from jaxlib import _jax

    build: Any = get_compile_options(1, 1, env_options_overrides=options)
    build = build.ParseFromString(build.SerializeAsString() + _several_outputs())
    device, module = jax.devices()[0], lowered.compiler_ir()
    devices: Any = _jax.DeviceList((device,))  # pyright: ignore[reportAttributeAccessIssue]
    return device.client.compile_and_load(module, devices, build)  # pyright: ignore[reportAttributeAccessIssue]


def _not_twice() -> AbstractContextManager[object]:
    """Within it, JAX's own cache stores nothing: what is kept here need not be written there."""
    try:
        from jax._src.config import persistent_cache_min_compile_time_secs as least

        return least(math.inf)
    except Exception:  # a release of JAX that calls it otherwise
        return nullcontext()


def read(code: bytes) -> Any:
    """The executable of what ``written`` wrote."""
    device = jax.devices()[0]
    return device.client.deserialize_executable(code, (device,))


def written(executable: Any) -> bytes:
    """Its machine code and what XLA needs to run it."""
    return bytes(executable.client.serialize_executable(executable))


def runner(executable: Any, tree: Any, used: Sequence[int]) -> Callable[..., Any]:
    """A function of the arguments that runs it: its answer in a tree, leaves as NumPy arrays."""
    device = jax.devices()[0]

    def run(*args: object) -> object:
        flat = jax.tree.leaves(args)
        given = jax.device_put([flat[i] for i in used], device)
        return jax.tree.unflatten(tree, [np.asarray(x) for x in executable.execute(given)])

    return run


def _several_outputs() -> bytes:
    """The option as it is appended to a CompileOptionsProto: parts of a message are merged."""
    entry = _part(1, SEVERAL_OUTPUTS.encode()) + _part(2, b"true")
    return _part(BUILD_OPTIONS, _part(DEBUG_OPTIONS, _part(EXTRA_OPTIONS, entry)))


def _part(number: int, body: bytes) -> bytes:
    """A field of a message, of less than 128 bytes: number and wire type 2, length, content."""
    head = number << 3 | 2
    tag = bytes([head]) if head < 128 else bytes([head & 127 | 128, head >> 7])
    return tag + bytes([len(body)]) + body
