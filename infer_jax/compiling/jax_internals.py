"""JAX's private names, all of them: XLA's executables on a CPU, compiled, read and written.

Whatever another release of JAX refuses here is an exception, after which the caller compiles by
JAX's public functions.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jaxlib import version as jaxlib_version

from infer_jax.typed_jax import Options

JAXLIB_VERSION = jaxlib_version.__version__
# XLA for CPUs copies what several fused loops read into each of them: a program of 5,000
# operations has 16,500 then, and is compiled and read that much more slowly. With loops of several
# outputs it copies nothing. The option is an entry of a map, of which JAX's own options take none,
# so it is appended to the serialised options: fields 3 (build options), 3 (debug options) and 500
# (extra options) of compile_options.proto and xla.proto of OpenXLA.
SEVERAL_OUTPUTS = b"\x1a\x2c\x1a\x2a\xa2\x1f\x27\x0a\x1fxla_cpu_use_multi_output_fusion\x12\x04true"


def compile_lowered(
    lowered: jax.stages.Lowered, options: Options, extra: bytes = SEVERAL_OUTPUTS
) -> tuple[Any, list[int]]:
    """The executable of a lowered function, and the indices of the arguments that it reads.

    Raises:
        ValueError: a program of more than numbers in and numbers out.
    """
    inner: Any = lowered._lowering  # pyright: ignore[reportPrivateUsage]
    properties = inner.compile_args
    effects = ("host_callbacks", "ordered_effects", "unordered_effects")
    if any(properties[name] for name in effects):
        raise ValueError("a program with effects")
    if inner.const_args:
        raise ValueError("constants that are arguments")
    try:
        executable = _compile_with(lowered, options, extra)
    except Exception:  # a release of JAX or XLA that takes other options
        with _without_jax_cache():
            executable = compile_publicly(lowered, options).runtime_executable()
    return executable, sorted(properties["kept_var_idx"])


def compile_publicly(lowered: jax.stages.Lowered, options: Options) -> jax.stages.Compiled:
    """As JAX itself compiles it."""
    try:
        return lowered.compile(compiler_options=options)
    except Exception:  # a release of XLA that has dropped one of the options
        return lowered.compile()


def _compile_with(lowered: jax.stages.Lowered, options: Options, extra: bytes) -> Any:
    """Compiled by these options and by serialised ones."""
    from jax._src.compiler import get_compile_options
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

    build: Any = get_compile_options(1, 1, env_options_overrides=options)
    build = build.ParseFromString(build.SerializeAsString() + extra)
    device, module = jax.devices()[0], lowered.compiler_ir()
    devices: Any = _jax.DeviceList((device,))  # pyright: ignore[reportAttributeAccessIssue]
    return device.client.compile_and_load(module, devices, build)  # pyright: ignore[reportAttributeAccessIssue]


def _without_jax_cache() -> AbstractContextManager[object]:
    """Within it, JAX's own cache stores nothing: a program is kept in one folder."""
    try:
        from jax._src.config import persistent_cache_min_compile_time_secs as min_seconds

        return min_seconds(math.inf)
    except Exception:  # a release of JAX that names it otherwise
        return nullcontext()


def deserialize(code: bytes) -> Any:
    """The executable of serialised code."""
    device = jax.devices()[0]
    return device.client.deserialize_executable(code, (device,))


def serialize(executable: Any) -> bytes:
    """Its machine code and what XLA needs to run it."""
    return bytes(executable.client.serialize_executable(executable))
