"""The hardware: data-sheet facts of a chip, its network, host, price and power.

Only facts: what an estimator fits to a chip (utilisation caps, launch latencies) lives in its
coefficients. No leaf is infinite; an absent tier has capacity and bandwidth zero.
"""

from typing import ClassVar

from jax import Array

from infer_jax.specs.fields import Spec, number, part, spec


@spec
class Chip(Spec):
    """One accelerator: dense matmul rates by class, and its memory."""

    flops_16: Array = number("dense 16-bit matmul rate", unit="FLOP/s", kind="rate")
    flops_8: Array = number("dense 8-bit matmul rate", unit="FLOP/s", kind="rate")
    flops_4: Array = number("dense 4-bit matmul rate", unit="FLOP/s", kind="rate")
    memory: Array = number("memory capacity", unit="bytes", kind="capacity")
    memory_bandwidth: Array = number("memory bandwidth", unit="bytes/s", kind="rate")


@spec
class Hierarchy(Spec):
    """A fast domain (NVLink, Infinity Fabric, a PCIe node) inside a slower network."""

    kind: ClassVar[str] = "hierarchy"  # in profiles
    domain: Array = number("chips in the fast domain", kind="count", low=1)
    domain_bandwidth: Array = number(
        "bandwidth of one chip in the domain, one direction", unit="bytes/s", kind="rate"
    )
    network_bandwidth: Array = number(
        "bandwidth of one chip beyond the domain, one direction", unit="bytes/s", kind="rate"
    )
    pair_bandwidth: Array = number(
        "bandwidth from one chip to one other in a domain without a switch, one direction; 0: all",
        unit="bytes/s",
        kind="rate",
        default=0.0,
    )


@spec
class Torus(Spec):
    """Chips wired to their neighbours, wrapped around."""

    kind: ClassVar[str] = "torus"  # in profiles
    axes: Array = number("dimensions of the torus", kind="count", low=1)
    link_bandwidth: Array = number(
        "bandwidth of one chip over all its links, one direction", unit="bytes/s", kind="rate"
    )


Network = Hierarchy | Torus


@spec
class Host(Spec):
    """What one chip has of its host: memory, the link to it, and a disk."""

    memory: Array = number("host memory per chip", unit="bytes", kind="capacity", default=0.0)
    memory_bandwidth: Array = number(
        "host memory bandwidth", unit="bytes/s", kind="rate", default=0.0
    )
    flops: Array = number("host arithmetic rate", unit="FLOP/s", kind="rate", default=0.0)
    link_bandwidth: Array = number(
        "chip to host, one direction", unit="bytes/s", kind="rate", default=0.0
    )
    disk: Array = number("disk capacity per chip", unit="bytes", kind="capacity", default=0.0)
    disk_read: Array = number("disk read bandwidth", unit="bytes/s", kind="rate", default=0.0)
    disk_write: Array = number("disk write bandwidth", unit="bytes/s", kind="rate", default=0.0)


@spec
class Hardware(Spec):
    """A system to serve on, per chip."""

    chip: Chip = part("the accelerator")
    network: Network = part("how chips talk")
    host: Host = part("what stands behind the chip", default_factory=Host)
    price: Array = number("rent of one chip", unit="USD/h", kind="price")
    power: Array = number("board power of one chip", unit="W", kind="rate", default=0.0)
