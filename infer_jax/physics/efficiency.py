"""Seconds of a kernel as a smooth function of its shape: work, traffic and a fixed latency.

Each law is t = t0 + compute combined with memory. ``P`` is the peak rate, ``W`` the memory
bandwidth; x (+)_q y = (x^q + y^q)^(1/q) is the larger of two for large q and their sum at 1.
Coefficients are per chip and family of kernels, fitted to measurements; they do not transfer.
"""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import maximum
from infer_jax.specs import Spec, number, spec

TILE = 8.0  # sharpness with which a product's rows are rounded up to a tile
GEMM, GROUPED = 2.0, 4.0  # sharpness between computing and moving


@spec
class Product(Spec):
    """Coefficients of a matrix product, single or grouped."""

    compute: Array = number("share of the peak rate at large sizes", kind="fraction", high=1)
    memory: Array = number("share of memory bandwidth", kind="fraction", high=1, default=1.0)
    fixed: Array = number("launch and drain", unit="s", kind="time")
    rows: Array = number("rows below which the time of a tile is spent", kind="size")
    depth: Array = number("inner dimension that filling the pipeline is worth", kind="size")
    tail: Array = number("output elements that the last wave is worth", kind="size")
    halo: Array = number("rows added to each expert's", kind="size", default=0.0)


@spec
class Attending(Spec):
    """Coefficients of an attention core in decode."""

    compute: Array = number("share of the peak rate", kind="fraction", high=1)
    memory: Array = number("share of memory bandwidth", kind="fraction", high=1)
    fixed: Array = number("launch and merge", unit="s", kind="time")
    sharpness: Array = number("of compute against memory", kind="size", low=1.0)
    alone: Array = number(
        "batch at which computing costs twice: few sequences leave it idle",
        kind="size",
        default=0.0,
    )


@spec
class Prompting(Spec):
    """Coefficients of an attention core in prefill."""

    compute: Array = number("share of the peak rate", kind="fraction", high=1)
    fixed: Array = number("launch", unit="s", kind="time")
    ramp: Array = number("length at which it costs twice", unit="tokens", kind="size")


@spec
class Recurring(Spec):
    """Coefficients of a recurrent update of linear attention."""

    memory: Array = number("share of memory bandwidth", kind="fraction", high=1)
    fixed: Array = number("launch", unit="s", kind="time")
    sharpness: Array = number("of the floor against moving state", kind="size", low=1.0)


@spec
class Unsplit(Spec):
    """Coefficients of a decode kernel that gives each sequence and KV head to one SM."""

    memory: Array = number("share of memory bandwidth", kind="fraction", high=1)
    fixed: Array = number("launch", unit="s", kind="time")
    slots: Array = number("sequences times KV heads that fill the chip", kind="size")
    sharpness: Array = number("of filling it", kind="size", low=1.0)


def power_sum(x: Array, y: Array, sharpness: Array | float) -> Array:
    """x (+)_q y = (x^q + y^q)^(1/q), finite in value and gradient at zero."""
    return maximum(x, y, jnp.asarray(1.0 / sharpness))


def product(m: Array, k: Array, n: Array, moved: Array, P: Array, W: Array, c: Product) -> Array:
    """Seconds of an (m x k)(k x n) product that moves ``moved`` bytes.

    t0 + [2 (k + k0) (n (m (+)_8 m0) + tail) / (P e_c)] (+)_2 [moved / (W e_m)].
    """
    area = n * power_sum(m, c.rows, TILE) + c.tail
    compute = 2.0 * (k + c.depth) * area / (P * c.compute)
    return c.fixed + power_sum(compute, moved / (W * c.memory), GEMM)


def grouped_product_time(
    groups: Array, m: Array, k: Array, n: Array, moved: Array, P: Array, W: Array, c: Product
) -> Array:
    """Seconds of ``groups`` products of m rows each in one kernel.

    t0 + [2 (k + k0) (G n ((m + h) (+)_8 m0) + tail) / (P e_c)] (+)_4 [moved / (W e_m)].
    """
    area = groups * n * power_sum(m + c.halo, c.rows, TILE) + c.tail
    compute = 2.0 * (k + c.depth) * area / (P * c.compute)
    return c.fixed + power_sum(compute, moved / (W * c.memory), GROUPED)


def decode_attention_time(
    flops: Array, moved: Array, sequences: Array, P: Array, W: Array, c: Attending
) -> Array:
    """Seconds of attention over a cache: t0 + FLOP (1 + b0/b) / (P e_c) (+)_p bytes / (W e_m)."""
    compute = flops * (1.0 + c.alone / sequences) / (P * c.compute)
    return c.fixed + power_sum(compute, moved / (W * c.memory), c.sharpness)


def unsplit(item: Array, items: Array, W: Array, c: Unsplit) -> Array:
    """Seconds of ``items`` pairs of sequence and KV head of ``item`` bytes, each on one SM.

    t0 + item slots ((items / slots) (+)_q 1) / (W e_m).
    """
    full = power_sum(items / c.slots, items / items, c.sharpness)
    return c.fixed + item * c.slots * full / (W * c.memory)


def prefill_attention_time(flops: Array, length: Array, P: Array, c: Prompting) -> Array:
    """Seconds of causal attention over a prompt: t0 + FLOP (1 + s0/s) / (P e_c)."""
    return c.fixed + flops * (1.0 + c.ramp / length) / (P * c.compute)


def state_update_time(moved: Array, W: Array, c: Recurring) -> Array:
    """Seconds of updating recurrent states of ``moved`` bytes: t0 (+)_p bytes / (W e_m)."""
    return power_sum(c.fixed, moved / (W * c.memory), c.sharpness)
