"""How large is a die? Arrays, vector units, registers, SRAM, PHYs and controllers, by node.

The area model of LLMCompass (Zhang et al., ISCA 2024, arXiv 2312.03134, Section III-D), whose
figures it returns; ``sram_area`` is for dies that are mostly SRAM, where that model says too much.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.decoder import total
from infer_jax.physics.numerics import Smoothing
from infer_jax.silicon.interfaces import Interface
from infer_jax.silicon.nodes import Node
from infer_jax.specs import Spec, number, part, spec

KIB = 1024.0
# share of a cache that is bit cells, of 4 KiB to 1 MiB by powers of two, by CACTI (LLMCompass)
EFFICIENCY = (0.076, 0.142, 0.247, 0.393, 0.559, 0.704, 0.526, 0.602, 0.561)
LARGEST = 512 * KIB  # bytes of a unit that larger caches are divided into
NINETY = 1.6e12  # transistors by m2 at 90 nm (AI Chips), where register files were measured
MACRO = 0.70  # share of an SRAM macro that is cells: 31.8 Mib/mm2 of 0.021 um2 (WikiChip on N3E)


@spec
class ComputeCore(Spec):
    """One core: lanes with an array, vector units and registers each, and a buffer they share."""

    lanes: Array = number("lanes", kind="count")
    rows: Array = number("rows of a lane's array", kind="count")
    columns: Array = number("columns of a lane's array", kind="count")
    mantissa: Array = number("mantissa bits of the array", unit="bits", kind="size", default=10)
    products_8: Array = number("products of 8 bits in place of one of 16", kind="size", default=2.0)
    products_4: Array = number("products of 4 bits in place of one of 16", kind="size", default=2.0)
    separate: Array = number(
        "share of narrow products in units of their own, not in halves of the wide ones",
        kind="fraction",
        high=1,
        default=0.0,
    )
    vector: Array = number("width of a lane's vector unit", kind="count")
    int32: Array = number("32-bit integer units of a lane", kind="count")
    fp16: Array = number("16-bit floating-point units of a lane", kind="count", default=0.0)
    fp32: Array = number("32-bit floating-point units of a lane", kind="count", default=0.0)
    fp64: Array = number("64-bit floating-point units of a lane", kind="count", default=0.0)
    files: Array = number("register files of a lane", kind="count", default=1.0)
    registers: Array = number("registers of a file", kind="count")
    width: Array = number("width of a register", unit="bits", kind="size", default=32.0)
    ports: Array = number("ports of a register file", kind="count", default=4.0)
    buffer: Array = number("local buffer", unit="bytes", kind="capacity")
    port: Array = number(
        "bytes of it that are read in a cycle", unit="bytes", kind="size", default=0.0
    )


@spec
class Transistors(Spec):
    """Transistors of the parts that dies are made of (LLMCompass, ``cost_model.py``)."""

    fp64: Array = number("a 64-bit floating-point unit", kind="count", default=685_300.0)
    int32: Array = number("a 32-bit integer unit", kind="count", default=177_690.0)
    # by area at 45 nm, of a float of 32 bits (Horowitz, ISSCC 2014, Figure 1.1.9): a product of 8
    # bits, of which one of 4 takes a quarter, and a sum of 32 bits, over product and sum of a float
    unit_8: Array = number("a product of 8 bits and its sum", kind="count", default=4_727.0)
    unit_4: Array = number("a product of 4 bits and its sum", kind="count", default=2_341.0)
    # the mean of A100 (0.72565e6) and MI210 (1.5345e6), measured on die photographs
    control: Array = number("control of a lane, by vector width", kind="count", default=996_200.0)
    # the mean of A100 (55.0e6) and MI210 (33.6e6)
    crossbar: Array = number("a core's share of the crossbar", kind="count", default=44.3e6)


@spec
class Die(Spec):
    """A die of equal cores: its global buffer, and places for memory and for links."""

    cores: Array = number("cores that are made, also those that are switched off", kind="count")
    core: ComputeCore = part("one of them")
    buffer: Array = number("global buffer", unit="bytes", kind="capacity")
    memories: Array = number("stacks or channels of memory that it has ends of", kind="count")
    links: Array = number("links to other chips", kind="count")
    joints: Array = number("links to other dies of the package", kind="count", default=0.0)
    transistors: Transistors = part("what its parts take", default_factory=Transistors)


@spec
class Base(Spec):
    """Dies of another node that carry those of cores or lie beside them: a buffer and the ends."""

    node: Node = part("of these dies")
    dies: Array = number("of the package", kind="count", low=1)
    buffer: Array = number("global buffer of one", unit="bytes", kind="capacity")
    memories: Array = number("stacks or channels of memory that one has ends of", kind="count")
    links: Array = number("links of one to other chips", kind="count")
    joints: Array = number("links of one to other dies of the package", kind="count", default=0.0)
    carried: Array = number(
        "share of the dies of cores that is stacked on them", kind="fraction", high=1, default=1.0
    )


class DieArea(NamedTuple):
    """Area of a die by part, m2 (Figure 6a of LLMCompass)."""

    cores: Array
    crossbar: Array
    buffer: Array
    memory_phy: Array
    memory_control: Array
    link_phy: Array
    link_control: Array
    other: Array | float = 0.0  # what no part of the law is

    @property
    def total(self) -> Array:
        """All of it."""
        return jnp.asarray(sum(self))


def float_transistors(mantissa: Array | float, double: Array | float = 685_300.0) -> Array:
    """Transistors of a floating-point unit: T_64 (m / 52)^2 for m bits of mantissa.

    Checked at 52, 23 and 10 bits; the square says that multipliers dominate, which fewer bits than
    7 have not been measured for.
    """
    return jnp.asarray(double * (mantissa / 52.0) ** 2)


def array_area(core: ComputeCore, parts: Transistors, node: Node) -> Array:
    """Area of a lane's array in m2: for each element a unit of its mantissa, and narrow ones.

    n (T_m + s (p_8 T_8 + p_4 T_4)): narrow products are made in halves of the wide multipliers, or
    for a share s of them in units of their own.
    """
    narrow = core.products_8 * parts.unit_8 + core.products_4 * parts.unit_4
    each = float_transistors(core.mantissa, parts.fp64) + core.separate * narrow
    return jnp.asarray(core.rows * core.columns * each / node.transistors)


def vector_area(core: ComputeCore, parts: Transistors, node: Node) -> Array:
    """Area of a lane's vector units in m2, by how many there are of each kind."""
    floats = [(core.fp16, 10.0), (core.fp32, 23.0), (core.fp64, 52.0)]
    count = sum(units * float_transistors(bits, parts.fp64) for units, bits in floats)
    return jnp.asarray((count + core.int32 * parts.int32) / node.transistors)


def register_area(core: ComputeCore, node: Node) -> Array:
    """Area of a lane's register files in m2: a polynomial in D registers, W bits and P ports.

    a(D, W, P) um2 at 90 nm, times the ratio of densities (EMPIRE, as LLMCompass has it). At least
    0: below about 20 registers the polynomial, which was fitted to larger files, is negative.
    """
    d, w, p = core.registers, core.width, core.ports
    linear = 3.29e4 - 1.09e3 * d - 8.83e2 * w - 5.55e3 * p
    pairs = 53.5 * d * w + 142.0 * d * p + 368.0 * w * p
    squares = 1.5e-2 * d**2 + 1.08e-2 * w**2 + 0.586 * p**2
    area = jnp.maximum((linear + pairs + squares) * 1e-12, 0.0)
    return core.files * area * (NINETY / node.transistors)


def cache_efficiency(size: Array | float, smoothing: Smoothing = None) -> Array:
    """Share of a cache of ``size`` bytes that is bit cells, by the next power of two (CACTI).

    ``None`` is the published step, with slope 0; with any ``smoothing`` straight lines in log size
    join the powers of two.
    """
    last = len(EFFICIENCY) - 1
    inside = jnp.clip(jnp.asarray(size), 4 * KIB, 2.0**last * 4 * KIB)
    doublings = jnp.log2(inside) - 12.0
    # a rounding error of log2 must not lift a power of two to the next
    at = jnp.ceil(doublings - 1e-5) if smoothing is None else doublings
    return jnp.interp(at, jnp.arange(last + 1.0), jnp.asarray(EFFICIENCY))


def cache_area(size: Array | float, node: Node, smoothing: Smoothing = None) -> Array:
    """Area of a cache in m2: 8 bits a byte of the node's area, over the share that is cells.

    Larger than 512 KiB it is in units of that size, in whole ones unless ``smoothing``; smaller
    than 4 KiB it is one of 4 KiB (LLMCompass), with slope 0.
    """
    units = size / LARGEST
    whole = jnp.ceil(units) if smoothing is None else units
    large = size > LARGEST
    one = jnp.where(large, LARGEST, jnp.maximum(size, 4 * KIB))
    bits = 8.0 * jnp.where(large, whole, 1.0) * one
    return bits * node.cache_bit / cache_efficiency(one, smoothing)


def sram_area(size: Array | float, node: Node, share: Array | float = MACRO) -> Array:
    """Area of plain SRAM in m2: 8 bits a byte of the node's bit cell, over the share that is cells.

    The caches of GA100 and Aldebaran take six times as much a bit (``cache_bit``): by them WSE-3
    would not fit on its wafer. This is the least that SRAM can take; routing comes on top.
    """
    return jnp.asarray(8.0 * size * node.bitcell / share)


def buffer_area(
    size: Array, memory: Interface | None, node: Node, smoothing: Smoothing = None
) -> Array:
    """Area of a buffer in m2: of a cache; of plain SRAM where no memory is beside the die."""
    return sram_area(size, node) if memory is None else cache_area(size, node, smoothing)


def core_area(die: Die, memory: Interface | None, node: Node, smoothing: Smoothing = None) -> Array:
    """Area of one core of a die in m2: control, vector units, arrays, registers and buffer."""
    core, parts = die.core, die.transistors
    lane = (
        core.vector * (parts.control / node.transistors),
        vector_area(core, parts, node),
        array_area(core, parts, node),
        register_area(core, node),
    )
    buffer = buffer_area(core.buffer, memory, node, smoothing)
    return total([*(core.lanes * x for x in lane), buffer])


def die_area(
    die: Die | Base,
    memory: Interface | None,
    link: Interface,
    joint: Interface,
    node: Node,
    smoothing: Smoothing = None,
) -> DieArea:
    """Area of a die in m2, by part, with ends of memory, of links and of joints to other dies.

    PHYs are the same at every node, controllers are logic (LLMCompass, Section III-D). Without
    memory beside it (``None``) the buffers of a die with cores hold everything, and are plain SRAM.
    With ``smoothing`` buffers have slopes everywhere.
    """
    cores = crossbar = jnp.zeros_like(die.buffer)
    buffer = cache_area(die.buffer, node, smoothing)
    if isinstance(die, Die):
        cores = die.cores * core_area(die, memory, node, smoothing)
        crossbar = die.cores * (die.transistors.crossbar / node.transistors)
        buffer = buffer_area(die.buffer, memory, node, smoothing)
    memories = [] if memory is None else [(memory, die.memories)]
    ends: list[Array] = []
    for own in (memories, [(link, die.links), (joint, die.joints)]):
        ends.append(total(n * end.phy for end, n in own))
        ends.append(total(n * end.controller / node.transistors for end, n in own))
    return DieArea(cores, crossbar, buffer, *ends)
