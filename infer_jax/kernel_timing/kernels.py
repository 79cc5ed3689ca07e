"""The shapes of kernels to time on this device, and their times without dispatch and noise.

Products, products grouped by expert, attention of one new token and of a prompt, a copy through
memory and, with several devices, all-reduce and all-to-all. XLA compiles all of them; a serving
engine has kernels of its own, which are faster where they fuse more.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec


class TimingSizes(NamedTuple):
    """The sizes of the timed shapes, the repeats of each, and the shortest run in seconds."""

    widths: tuple[int, ...] = (2048, 4096, 8192)
    rows: tuple[int, ...] = (16, 64, 256, 1024, 4096)
    experts: int = 8
    batches: tuple[int, ...] = (1, 16, 64)
    contexts: tuple[int, ...] = (1024, 4096, 16384)
    prompts: tuple[int, ...] = (512, 1024, 2048, 4096)
    heads: tuple[tuple[int, int], ...] = ((32, 8), (16, 2))
    head_width: int = 128
    copies: tuple[int, ...] = (2**20, 2**24, 2**26, 2**28)
    repeats: int = 5
    min_seconds: float = 2e-2


FULL = TimingSizes()
TOY = TimingSizes(
    widths=(64, 256),
    rows=(8, 64),
    experts=2,
    batches=(1, 2, 4),
    contexts=(64, 512),
    prompts=(32, 64, 128, 256),
    heads=((4, 2),),
    head_width=32,
    copies=(2**16, 2**18, 2**20, 2**21),
    repeats=3,
    min_seconds=1e-3,
)
BYTES = 2.0  # of a bfloat16 number


class Timed(NamedTuple):
    """One measurement: the family, what identifies the shape, and seconds; NaN: out of memory."""

    family: str
    shape: Mapping[str, float]
    seconds: float


Run = Callable[..., Array]
Operands = tuple[Callable[[], Array], ...]  # made as it is timed
Carried = tuple[tuple[Array, ...], Array]  # operands, and the last result
Case = tuple[str, Mapping[str, float], Run, Operands]


def timed(sizes: TimingSizes = FULL) -> Iterator[Timed]:
    """Time every family on the default device, collectives over all devices."""
    for family, shape, run, operands in cases(sizes):
        try:
            arrays = [make() for make in operands]
            result = seconds(run, *arrays, repeats=sizes.repeats, min_seconds=sizes.min_seconds)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            result = float("nan")  # a shape this device has no memory for
        yield Timed(family, shape, result)


def seconds(
    function: Callable[..., Array], *args: Array, repeats: int, min_seconds: float
) -> float:
    """Median seconds of one call, over ``repeats`` runs of enough calls to take ``min_seconds``.

    All calls of a run are one program, a loop, so that a short kernel is not mistaken for the
    time that Python takes to start it; nor, on an accelerator, for a turn of the loop, which waits
    for the device to say whether it goes on: eight calls share one there. One number of each
    result goes into the next call's first operand, or all of it where that is a copy's, and each
    result stands behind a barrier: nothing can be dropped, merged or cut down to that number.
    """
    shared = 1 if jax.default_backend() == "cpu" else 8
    looped = repeat_calls(function, shared)
    once = _run(looped, 1, args)  # compiles
    turns, once = 1, _run(looped, 1, args)
    while once < 0.5 * min_seconds and turns < 2**20:
        turns = max(2 * turns, min(16 * turns, int(turns * min_seconds / max(once, 1e-7))))
        once = _run(looped, turns, args)
    took = float(np.median([_run(looped, turns, args) for _ in range(repeats)]))
    return took / (turns * shared)


def repeat_calls(function: Callable[..., Array], shared: int) -> Callable[..., Array]:
    """A compiled loop of ``turns``, its first argument, of each ``shared`` calls of a function."""

    def call(carried: Carried) -> Carried:
        (first, *rest), last = carried
        if function is increment:
            return carried[0], jax.lax.optimization_barrier(function(last))
        corner = jnp.clip(last[(0,) * last.ndim], -1.0, 1.0).astype(first.dtype)
        operands = (first.at[(0,) * first.ndim].set(corner), *rest)
        return operands, jax.lax.optimization_barrier(function(*operands))

    def turn(_: Array, carried: Carried) -> Carried:
        for _call in range(shared):
            carried = call(carried)
        return carried

    def repeat(turns: Array, operands: tuple[Array, ...]) -> Array:
        shape = jax.eval_shape(function, *operands)
        nothing = jnp.zeros(shape.shape, shape.dtype)
        return jax.lax.fori_loop(0, turns, turn, (operands, nothing))[1]

    return jax.jit(repeat)


def increment(x: Array) -> Array:
    """A copy through memory, which no compiler leaves out."""
    return x + jnp.ones((), x.dtype)


def _run(looped: Callable[..., Array], turns: int, args: tuple[Array, ...]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(looped(turns, args))
    return time.perf_counter() - start


def _random(*shape: int) -> Callable[[], Array]:
    """Random operands, because some devices are faster on zeros."""
    return lambda: jax.random.normal(jax.random.key(0), shape, jnp.bfloat16)


def cases(sizes: TimingSizes) -> Iterator[Case]:
    """All kernels to time; collectives where there are several devices."""
    yield from _products(sizes)
    yield from _attention(sizes)
    for size in sizes.copies:
        source = partial(jnp.zeros, size // 4, jnp.float32)
        yield "copy", {"moved": 2.0 * size}, increment, (source,)
    if jax.device_count() > 1:
        yield from _collectives(sizes)


def _products(sizes: TimingSizes) -> Iterator[Case]:
    """Single products, then one product a group, all groups of equally many rows."""
    for k, n, m in product(sizes.widths, sizes.widths, sizes.rows):
        yield "gemm", {"m": m, "k": k, "n": n}, jnp.matmul, (_random(m, k), _random(k, n))
    count = sizes.experts
    for k, share, m in product(sizes.widths, (2, 1), sizes.rows):
        n = k // share
        shape = {"groups": count, "m": m, "k": k, "n": n}
        yield "grouped", shape, jnp.matmul, (_random(count, m, k), _random(count, k, n))


def _attention(sizes: TimingSizes) -> Iterator[Case]:
    """Grouped-query attention of one new token a sequence, then of prompts."""
    width = sizes.head_width
    decodes = [("gqa_decode", batch, n, 1) for batch, n in product(sizes.batches, sizes.contexts)]
    prompts = [("gqa_prefill", 1, length, length) for length in sizes.prompts]
    for inputs in (decodes, prompts):
        for (heads, kv), (name, batch, length, queries) in product(sizes.heads, inputs):
            shape = {"heads": heads, "kv": kv, "batch": batch, "length": length, "width": width}
            cache = _random(batch, length, kv, width)
            run = partial(jax.nn.dot_product_attention, is_causal=name == "gqa_prefill")
            yield name, shape, run, (_random(batch, queries, heads, width), cache, cache)


def _collectives(sizes: TimingSizes) -> Iterator[Case]:
    """``moved``: bytes that one device sends."""
    count = jax.device_count()
    mesh, along = Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x")
    laws: dict[str, Callable[[Array], Array]] = {
        "all_reduce": lambda x: jax.lax.psum(x, "x"),
        "all_to_all": lambda x: jax.lax.all_to_all(x, "x", 0, 0, tiled=True),
    }
    for name, law in laws.items():
        out = PartitionSpec() if name == "all_reduce" else along
        run = jax.shard_map(law, mesh=mesh, in_specs=along, out_specs=out)
        for size in sizes.copies:
            numbers = max(1, size // (2 * count)) * count
            data = partial(jnp.zeros, count * numbers, jnp.bfloat16)
            moved = numbers * BYTES * (count - 1) / count
            yield name, {"moved": moved * (2.0 if name == "all_reduce" else 1.0)}, run, (data,)
