"""The shapes of kernels to time on this device, and their times.

Products, products grouped by expert, attention of one new token and of a prompt, a copy through
memory and, with several devices, all-reduce and all-to-all. XLA compiles all of them; a serving
engine has kernels of its own, which are faster where they fuse more.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from infer_jax.kernel_timing.timing import seconds


class TimingSizes(NamedTuple):
    """The sizes of the timed shapes, the repeats of each, and the least seconds of a run."""

    widths: tuple[int, ...]
    rows: tuple[int, ...]
    experts: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    prompts: tuple[int, ...]
    heads: tuple[tuple[int, int], ...]
    head_width: int
    copies: tuple[int, ...]
    repeats: int
    least: float


FULL = TimingSizes(
    widths=(2048, 4096, 8192),
    rows=(16, 64, 256, 1024, 4096),
    experts=8,
    batches=(1, 16, 64),
    contexts=(1024, 4096, 16384),
    prompts=(512, 1024, 2048, 4096),
    heads=((32, 8), (16, 2)),
    head_width=128,
    copies=(2**20, 2**24, 2**26, 2**28),
    repeats=5,
    least=2e-2,
)
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
    least=1e-3,
)
BYTES = 2.0  # of a bfloat16 number


class Timed(NamedTuple):
    """One measurement: the family, what identifies the shape, and seconds; NaN: out of memory."""

    family: str
    given: Mapping[str, float]
    seconds: float


Run = Callable[..., Array]
Operands = tuple[Callable[[], Array], ...]  # each drawn as it is timed
Case = tuple[str, Mapping[str, float], Run, Operands]


def timed(sizes: TimingSizes = FULL) -> Iterator[Timed]:
    """Time every family on the default device, collectives over all devices."""
    cases = [_products, _grouped, _decodes, _prompts, _copies]
    if jax.device_count() > 1:
        cases.append(_collectives)
    for case in cases:
        for family, given, run, operands in case(sizes):
            yield Timed(family, given, _spent(run, operands, sizes))


def _spent(run: Run, operands: Operands, sizes: TimingSizes) -> float:
    try:
        drawn = [draw() for draw in operands]
        return seconds(run, *drawn, repeats=sizes.repeats, least=sizes.least)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):  # a shape this device has no memory for
            return float("nan")
        raise


def _drawn(*shape: int) -> Callable[[], Array]:
    """Random operands, because some devices are faster on zeros."""
    return lambda: jax.random.normal(jax.random.key(0), shape, jnp.bfloat16)


def _products(sizes: TimingSizes) -> Iterator[Case]:
    for k in sizes.widths:
        for n in sizes.widths:
            for m in sizes.rows:
                yield "gemm", {"m": m, "k": k, "n": n}, jnp.matmul, (_drawn(m, k), _drawn(k, n))


def _grouped(sizes: TimingSizes) -> Iterator[Case]:
    """One product a group, all groups of equally many rows."""
    count = sizes.experts
    for k in sizes.widths:
        for n in (k // 2, k):
            for m in sizes.rows:
                given = {"groups": count, "m": m, "k": k, "n": n}
                yield "grouped", given, jnp.matmul, (_drawn(count, m, k), _drawn(count, k, n))


def attention(queries: Array, keys: Array, values: Array, *, causal: bool) -> Array:
    """Grouped-query attention as XLA compiles it."""
    return jax.nn.dot_product_attention(queries, keys, values, is_causal=causal)


def _decodes(sizes: TimingSizes) -> Iterator[Case]:
    width = sizes.head_width
    for heads, kv in sizes.heads:
        for batch in sizes.batches:
            for context in sizes.contexts:
                held = _drawn(batch, context, kv, width)
                given = {"heads": heads, "kv": kv, "batch": batch, "length": context}
                operands = (_drawn(batch, 1, heads, width), held, held)
                yield "gqa_decode", given | {"width": width}, _seen, operands


def _prompts(sizes: TimingSizes) -> Iterator[Case]:
    width = sizes.head_width
    for heads, kv in sizes.heads:
        for length in sizes.prompts:
            held = _drawn(1, length, kv, width)
            given = {"heads": heads, "kv": kv, "batch": 1, "length": length, "width": width}
            yield "gqa_prefill", given, _causal, (_drawn(1, length, heads, width), held, held)


_seen, _causal = partial(attention, causal=False), partial(attention, causal=True)


def _copies(sizes: TimingSizes) -> Iterator[Case]:
    for size in sizes.copies:
        source = partial(jnp.zeros, size // 4, jnp.float32)
        yield "copy", {"moved": 2.0 * size}, lambda x: x + jnp.float32(1.0), (source,)


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
            each = max(1, size // (2 * count)) * count
            data = partial(jnp.zeros, count * each, jnp.bfloat16)
            moved = each * BYTES * (count - 1) / count
            yield name, {"moved": moved * (2.0 if name == "all_reduce" else 1.0)}, run, (data,)
