"""Checks the devices of a long sweep by computing stored answers first."""

from collections.abc import Sequence

from infer_jax.doctor import examine
from infer_jax.errors import InputError
from infer_jax.sweeps.keeping import Device

LONG = 600.0  # seconds still to run above which the check, a minute a device, is worth it
EARLY = 60.0  # seconds at the start in which compilation makes the pace unreliable


def check(devices: Sequence[Device], dtype: str) -> None:
    """Compare stored answers on each device.

    Raises:
        InputError: a device disagrees by more than rounding explains.
    """
    cores = [d for d in devices if d.platform == "cpu"][:1]  # all CPU devices are one processor
    others = [d for d in devices if d.platform != "cpu"]
    for verdict in examine([*cores, *others]):
        if verdict.dtype == dtype and not verdict.agrees:
            raise InputError(
                "sweep", f"device {verdict.device}",
                f"off by {verdict.worst:.2g} at {verdict.row} in {dtype}",
                "a device that agrees with the stored answers (infer-jax doctor)",
            )  # fmt: skip
