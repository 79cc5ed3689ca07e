"""The inputs of the offloading laws: the mean layer, the block and the system.

Bytes and FLOP of the mean layer of a model.

A block's time is a sum over layers of largest terms; layers that differ are taken as their
mean, which is exact for a model of equal layers. Buffers are those of the largest layer.
"""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.offloading.plan import Offload
from infer_jax.physics import attention as att, layers as table
from infer_jax.physics.decoder import total
from infer_jax.physics.memory.tiers import Placement, diagonal_tokens, padding_ratio
from infer_jax.specs import (
    Architecture,
    Experts,
    Hardware,
    Spec,
    number,
    spec,
)


class Buffers(NamedTuple):
    """Bytes that one token of the largest layer needs while it is computed.

    ``inner``: input, queries, keys and values; ``hidden``: one hidden state; ``query``: all
    heads' queries; ``cache``: a token's keys; ``score``: one score of every head; ``mlp``:
    input and hidden layer of the feedforward.
    """

    inner: Array
    hidden: Array
    query: Array
    cache: Array
    score: Array
    mlp: Array


class MeanLayer(NamedTuple):
    """The mean layer of a model; bytes of its weights as ``bits`` say, the cache likewise."""

    count: Array  # pyright: ignore[reportIncompatibleMethodOverride]
    width: Array
    weights: Array  # bytes as stored
    loaded: Array  # bytes as multiplied, in the format of activations
    flops: Array  # per token
    buffers: Buffers
    cache: Callable[[Array], Array]  # stored bytes of one sequence's context, by its tokens
    decompressed: Callable[[Array], Array]  # the same, decompressed for attention
    attend: Callable[[Array, Array], Array]  # FLOP by the numbers of queries and keys


def buffers(arch: Architecture) -> Buffers:
    """Bytes a token needs in the largest of the layers."""
    size, zero = arch.activations.bytes, jnp.asarray(0.0)
    inner, query, cache, score, mlp = arch.width, zero, zero, zero, zero
    for block in arch.blocks:
        if block.attention is not None:
            heads, queries, keys = att.of(block.attention).operands
            inner = jnp.maximum(inner, arch.width + att.of(block.attention).output_width)
            query, cache = jnp.maximum(query, queries), jnp.maximum(cache, keys)
            score = jnp.maximum(score, heads)
        if (layer := block.feedforward) is not None:
            wide = layer.width
            if isinstance(layer, Experts):
                wide = layer.active * layer.width + layer.shared.width
            mlp = jnp.maximum(mlp, arch.width + wide)
    return Buffers(*(size * x for x in (inner, arch.width, query, cache, score, mlp)))


def mean_layer(
    arch: Architecture, weight_bytes: Array, cache_bytes: Array, group: Array
) -> MeanLayer:
    """The mean layer. ``weight_bytes``, ``cache_bytes``: stored bytes per element, 0: the
    model's own format; cache is compressed in groups of ``group`` elements, which pad a head.

    Embedding and head are left out, as FlexGen (arXiv 2303.06865, Section 4.1) leaves them.
    """
    rows = table.rows(arch)
    count = total(row.count for row in rows)
    mixing = [
        (att.of(b.attention), row)
        for b, row in zip(arch.blocks, rows, strict=True)
        if b.attention is not None
    ]
    elements = total(row.count * row.elements for row in rows) / count

    def decompressed(context: Array) -> Array:
        each = (row.count * layer.held_bytes(arch.cache, context) for layer, row in mixing)
        return total(each) / count

    def cache(context: Array) -> Array:
        squeezed = total(
            row.count
            * padding_ratio(layer.grouped_width, group)
            * layer.held_bytes(arch.cache, context)
            for layer, row in mixing
        )
        squeezed = squeezed * cache_bytes / arch.cache.bytes / count
        return jnp.where(cache_bytes > 0, squeezed, decompressed(context))

    def attend(queries: Array, keys: Array) -> Array:
        each = (row.count * layer.absorbed_flops(queries, keys) for layer, row in mixing)
        return total(each) / count

    own = total(row.count * row.matrix_bytes for row in rows) / count
    return MeanLayer(
        count=count,
        width=arch.width,
        weights=jnp.where(weight_bytes > 0, elements * weight_bytes, own),
        loaded=elements * arch.activations.bytes,
        flops=2.0 * total(row.count * row.used for row in rows) / count,
        buffers=buffers(arch),
        cache=cache,
        decompressed=decompressed,
        attend=attend,
    )


@spec
class Terms(Spec):
    """Seconds of one layer in one phase, by link and kind of work."""

    to_gpu: Array = number("CPU to GPU", unit="s", kind="time")
    to_cpu: Array = number("GPU to CPU", unit="s", kind="time")
    read: Array = number("disk to CPU", unit="s", kind="time")
    written: Array = number("CPU to disk", unit="s", kind="time")
    compute: Array = number("arithmetic of the GPU", unit="s", kind="time")
    attend: Array = number("attention on the CPU", unit="s", kind="time")


class Peak(NamedTuple):
    """Bytes of one memory in one phase: tensors stored there, working buffers, and the largest
    intermediate result."""

    home: Array
    work: Array
    inter: tuple[Array, ...] = ()

    @property
    def needs(self) -> tuple[Array, ...]:
        """Bytes needed at each step of a layer; all must fit."""
        held = self.home + self.work
        return tuple(held + x for x in self.inter) or (held,)

    @property
    def largest(self) -> Array:
        """The largest intermediate result."""
        return reduce(jnp.maximum, self.inter) if self.inter else jnp.asarray(0.0)

    @property
    def need(self) -> Array:
        """The peak."""
        return self.home + self.work + self.largest


class Peaks(NamedTuple):
    """The three memories in prefill and in decode; the disk holds the same in both."""

    gpu_prefill: Peak
    gpu_decode: Peak
    cpu_prefill: Peak
    cpu_decode: Peak
    disk: Peak


class Job(NamedTuple):
    """A block of samples on a system, without the placement of its tensors."""

    layer: MeanLayer
    hardware: Hardware
    plan: Offload
    gpu_batch: Array  # g
    batches: Array  # k, 1 where the schedule is row-by-row
    prompt: Array  # s
    tokens: Array  # n

    @property
    def block(self) -> Array:
        """Samples of a block: b = g k."""
        return self.gpu_batch * self.batches

    @property
    def end(self) -> Array:
        """Tokens of a sample at its end: S = s + n."""
        return self.prompt + self.tokens

    @property
    def middle(self) -> Array:
        """Tokens of a sample half way through its output: s + n / 2."""
        return self.prompt + self.tokens / 2.0

    @property
    def resident(self) -> Array:
        """Tokens of cache a sample of the block keeps: s + n, or the diagonal schedule's mean."""
        mean = diagonal_tokens(self.prompt, self.tokens)
        return jnp.where(self.plan.schedule > 1.5, mean, self.end)


Phases = tuple[Terms, Terms]
TermLaw = Callable[..., Phases]  # (coefficients, job, placement) -> prefill, decode
MemoryLaw = Callable[[Job, Placement], Peaks]
