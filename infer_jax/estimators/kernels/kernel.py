"""One kernel: its work, its time and its bound."""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.kernels.efficiency import Rating
from infer_jax.specs import Chip, Spec, number, spec


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
