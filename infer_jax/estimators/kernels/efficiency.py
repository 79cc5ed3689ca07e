"""The efficiency of a kernel: the interface of look-up tables and curves.

A source of efficiency is a pytree with five methods, one a family of kernels; each returns a
``Rating``. Shapes are what one rank computes: heads and widths are already divided.
"""

from typing import NamedTuple, Protocol as Interface

import jax.numpy as jnp
from jax import Array

from infer_jax.specs import Attention, Chip, Experts, Format, Spec, number, spec

MEASURED, NO_TABLE, NO_ROW, NO_DTYPE, ZERO, HEADLESS = range(6)
REFUSED = NO_DTYPE  # from this code on the authors' tool crashes, or its file is damaged


class Rating(NamedTuple):
    """Model FLOP utilisation of the peak rate; whether it was measured, and in which row."""

    mfu: Array
    lack: Array  # MEASURED, or why a default was taken
    row: Array


class Gemm(NamedTuple):
    """A matrix product: (m x k) times (k x n)."""

    m: Array
    k: Array
    n: Array

    @property
    def flops(self) -> Array:
        """FLOP: 2 m k n."""
        return 2.0 * self.m * self.k * self.n


class Routed(NamedTuple):
    """A layer of routed experts: ``tokens`` a GPU, on ``gpus`` GPUs, experts over ``spread``."""

    experts: Experts
    width: Array
    tokens: Array
    gpus: Array
    spread: Array


class Source(Interface):
    """Where efficiencies come from."""

    def product(self, chip: Chip, shape: Gemm, weights: Format) -> Rating:
        """A projection."""
        ...

    def routed(self, chip: Chip, routed: Routed, stage: str) -> Rating:
        """The three products of all routed experts of a layer."""
        ...

    def decode(
        self, chip: Chip, core: Attention, sequences: Array, context: Array, cache: Format
    ) -> Rating:
        """The attention core where each sequence has one new token, over the 16-bit peak."""
        ...

    def prefill(self, chip: Chip, core: Attention, length: Array) -> Rating:
        """The causal attention core of a prompt, half of its pairs counted, 16-bit peak."""
        ...

    def linear(
        self, chip: Chip, core: Attention, count: Array, stage: str, state: Array
    ) -> tuple[Array, Rating]:
        """Seconds of linear attention for ``count`` sequences (decode) or tokens (prefill).

        ``state`` is the bytes of state of one sequence.
        """
        ...


def measured(mfu: Array) -> Rating:
    """A measured rating of this MFU."""
    none = jnp.zeros_like(mfu)
    return Rating(mfu, none, none)


@spec
class Kernel(Spec):
    """One kernel of one layer on one rank; ``seconds`` is what the assembly charges for it."""

    seconds: Array = number("time charged", unit="s", kind="time")
    flops: Array = number("arithmetic", unit="FLOP", kind="size")
    bytes: Array = number("bytes through memory", unit="bytes", kind="size")
    peak: Array = number("data-sheet rate of its arithmetic", unit="FLOP/s", kind="rate")
    mfu: Array = number("model FLOP utilisation of that rate", kind="fraction")
    lack: Array = number("0: measured or fitted; else why a default was taken", kind="size")
    row: Array = number("row of the table, -1: none", kind="size")

    @property
    def intensity(self) -> Array:
        """Arithmetic intensity, FLOP per byte through memory; 0 where nothing is moved."""
        moves = self.bytes > 0
        return jnp.where(moves, self.flops / jnp.where(moves, self.bytes, 1.0), 0.0)

    def compute_bound(self, chip: Chip) -> Array:
        """True where the intensity exceeds the chip's balance of peak over bandwidth.

        Source: InferSim technical report (2025), Section 3.2.
        """
        return self.intensity * chip.memory_bandwidth > self.peak


def kernel_at_efficiency(
    flops: Array, moved: Array, peak: Array, rating: Rating, scale: Array | float = 1.0
) -> Kernel:
    """A kernel at its efficiency: FLOP / (peak mfu scale), 0 for none."""
    return Kernel(
        seconds=flops / (peak * scale * rating.mfu),
        flops=flops,
        bytes=moved,
        peak=peak,
        mfu=rating.mfu,
        lack=rating.lack,
        row=rating.row,
    )
