"""Chips of one machine, and which instances fill machines without a remainder.

An instance of 6 GPUs on machines of 8 leaves 2 that no other of its kind can use, or shares a
machine with another and crosses the slower network inside a tensor-parallel group.
"""

from typing import TypeVar

import numpy as np
from jaxtyping import Shaped

from infer_jax.specs import Hardware, Hierarchy

TRAY = 4  # GPUs of a machine of an NVL72 rack: 18 compute trays of 4 (nvidia.com, GB200 NVL72)
MACHINE = 8  # GPUs of a machine where the profile does not say
TRAINIUM = 16  # chips of a trn2.48xlarge (aws.amazon.com/ec2/instance-types/trn2)
# TPU slices are powers of two, as of v5e: 1, 4, 8 ... 256 chips (cloud.google.com/tpu/docs/v5e);
# every slice that is tried divides this one
SLICE = 1024
Chips = TypeVar("Chips", float, Shaped[np.ndarray, " rows"])
MAX_GPUS = 1e6  # GPUs of a machine that a profile may give


def machine(hardware: Hardware, title: str) -> tuple[int, str]:
    """GPUs of one machine, and their vendor; "" if the profile's title does not name it.

    For a TPU ``SLICE``, whose divisors are the powers of two.
    """
    network = hardware.network
    if title.startswith("AWS"):
        return TRAINIUM, "other"
    if not isinstance(network, Hierarchy):
        return SLICE, "other"
    if title.startswith("Groq"):
        return MACHINE, "other"
    maker = next((name for name in ("NVIDIA", "AMD") if title.startswith(name)), "")
    return (TRAY if "NVL72" in title else int(min(max(network.domain, 1.0), MAX_GPUS))), maker


def fills_machines(chips: Chips, size: int) -> bool | Shaped[np.ndarray, " rows"]:
    """Whether instances of ``chips`` divide a machine of ``size``, or are whole machines.

    >>> [n for n in range(1, 25) if fills_machines(n, 8)]
    [1, 2, 4, 8, 16, 24]
    """
    return (size % chips == 0) | (chips % size == 0)


def machine_rule(size: int) -> str:
    """``fills_machines`` in words."""
    if size == SLICE:
        return "an instance's chips are a power of two, as slices are"
    return f"an instance's GPUs divide a machine of {size}, or are whole machines"
