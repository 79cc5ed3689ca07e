"""An accelerator from its silicon to its data sheet: what it holds, costs, draws and does.

Every number is a leaf, so that a data sheet has slopes by arrays, clock, stacks and node.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Limit
from infer_jax.physics.numerics import Smoothing
from infer_jax.silicon.area import Die, DieArea, die_area, die_core_area
from infer_jax.silicon.bill import (
    Bill,
    Ownership,
    assembly_yield,
    bill_of_materials,
    rent,
    sale_price,
)
from infer_jax.silicon.carbon import Fab, die_emissions, package_emissions
from infer_jax.silicon.interfaces import (
    RETICLE,
    Interface,
    Stack,
    bandwidth,
    capacity,
    memory_price,
    perimeter,
)
from infer_jax.silicon.nodes import Node, values
from infer_jax.silicon.power import (
    OperationEnergy,
    PowerParts,
    clock_share,
    flop_energy,
    operand_bytes,
    operand_energy,
)
from infer_jax.silicon.rates import flops
from infer_jax.silicon.wafers import DieCost, Wafer, die_cost, dies_per_wafer
from infer_jax.silicon.yields import expected_defects, harvested_yield, poisson_yield
from infer_jax.specs import Chip, Hardware, Hierarchy, Spec, number, part, spec


@spec
class Assembly(Spec):
    """A package as a foundry sells it: by area of the interposer, with what fails in it."""

    price: Array = number("by area of the interposer", unit="USD/m2", kind="price")
    scale: Array = number("area of the interposer over what it carries", kind="size")
    bond: Array = number("chance that a bond holds", kind="fraction", high=1)
    other: Array = number("board, cooling and test", unit="USD", kind="price")


def cowos() -> Assembly:
    """CoWoS, by Epoch AI's bills of H100 and B200 (press)."""
    return Assembly.of(**values("packages", "cowos"))


@spec
class Limits(Spec):
    """What no accelerator may exceed."""

    die: Array = number("largest die", unit="m2", kind="size", default=RETICLE)
    cooled: Array = number("heat that is carried away; 0: any", unit="W", kind="rate", default=0.0)


@spec
class Accelerator(Spec):
    """Equal dies and memory stacks in one package, the limits it runs within, and its owner.

    Without a ``memory`` beside its dies their buffers hold weights and cache.
    """

    node: Node = part("of its dies")
    die: Die = part("one of them")
    dies: Array = number("dies of the package", kind="count", default=1.0)
    active: Array = number("cores of a die that are switched on", kind="count")
    clock: Array = number("clock", unit="1/s", kind="rate")
    memory: Stack | None = part("a stack or channel of memory", default_factory=lambda: None)
    stacks: Array = number("stacks of the package that are used", kind="count", default=0.0)
    link: Interface = part("a link to other chips")
    idle: Array = number("power at rest", unit="W", kind="rate")
    limit: Array = number("power that the package may draw", unit="W", kind="rate")
    voltage: Array = number(
        "voltage at which the clock stands, over that at full clock",
        kind="fraction",
        high=1,
        default=1.0,
    )
    energy: OperationEnergy = part("of operations", default_factory=OperationEnergy)
    wafer: Wafer = part("that dies are made on", default_factory=Wafer)
    assembly: Assembly = part("of the package", default_factory=cowos)
    margin: Array = number("gross margin of its maker", kind="fraction", high=1, default=0.0)
    owner: Ownership = part("terms on which it is owned", default_factory=Ownership)
    fab: Fab = part("where it is made", default_factory=Fab)
    limits: Limits = part("what it may not exceed", default_factory=Limits)
    domain: Array = number("chips that its links join", kind="count", low=1, default=1.0)
    network: Array = number(
        "bandwidth beyond them, one direction", unit="bytes/s", kind="rate", default=0.0
    )
    year: Array = number("in which memory is bought", kind="size", default=2025.0)

    def hardware(self, smoothing: Smoothing = None) -> Hardware:
        """The data sheet, as every estimator takes it."""
        return data_sheet(self, smoothing)

    @property
    def chip(self) -> Chip:
        """Rates and memory of its data sheet."""
        return data_sheet(self, jnp.asarray(1.0)).chip

    @property
    def price(self) -> Array:
        """Rent of an hour in USD."""
        return data_sheet(self, jnp.asarray(1.0)).price

    @property
    def power(self) -> Array:
        """W that it may draw."""
        return self.limit


def memory_end(chip: Accelerator) -> Interface | None:
    """The end of its memory on a die; None without memory beside it."""
    return None if chip.memory is None else chip.memory.interface


def areas(chip: Accelerator, smoothing: Smoothing = None) -> DieArea:
    """Area of one of its dies in m2, by part."""
    return die_area(chip.die, memory_end(chip), chip.link, chip.node, smoothing)


def good_die_cost(chip: Accelerator, smoothing: Smoothing = None) -> DieCost:
    """USD of a die, and of one with enough cores that work.

    Defects fall on cores by their share of the area; what is no core has to be whole (Poisson).
    """
    parts = areas(chip, smoothing)
    one = die_core_area(chip.die, memory_end(chip), chip.node, smoothing).total
    core = poisson_yield(expected_defects(one, chip.node.defects))
    rest = poisson_yield(expected_defects(parts.total - parts.cores, chip.node.defects))
    works = rest * harvested_yield(core, chip.die.cores, chip.die.cores - chip.active)
    return die_cost(dies_per_wafer(parts.total, chip.wafer), works, chip.node)


def interposer_area(chip: Accelerator, smoothing: Smoothing = None) -> Array:
    """Area in m2 under dies and stacks: scale (n A + stacks footprint)."""
    beside = 0.0 if chip.memory is None else chip.stacks * chip.memory.footprint
    return chip.assembly.scale * (chip.dies * areas(chip, smoothing).total + beside)


def chip_bill(chip: Accelerator, smoothing: Smoothing = None) -> Bill:
    """USD of its parts: good dies, stacks, package, what fails with them, and the rest."""
    logic = chip.dies * good_die_cost(chip, smoothing).good
    memory = jnp.zeros_like(logic)
    if chip.memory is not None:
        memory = memory_price(chip.memory, chip.stacks, chip.year)
    package = interposer_area(chip, smoothing) * chip.assembly.price
    works = assembly_yield(chip.dies + chip.stacks, chip.assembly.bond)
    return bill_of_materials(logic, memory, package, chip.assembly.other, works)


def peak_flops(chip: Accelerator, products: Array | float = 1.0) -> Array:
    """FLOP/s of all its arrays at full clock; ``products`` that an element makes in a cycle."""
    core = chip.die.core
    cores = chip.dies * chip.active
    return flops(cores, core.lanes, core.rows, core.columns, chip.clock, products)


class ResidentMemory(NamedTuple):
    """Where weights and cache are: bytes, bytes/s, and watts of reading at that rate."""

    capacity: Array
    bandwidth: Array
    power: Array


def resident_memory(chip: Accelerator) -> ResidentMemory:
    """Capacity, bandwidth and power of its stacks; without them of the buffers of its dies.

    Buffers are read at cores x port x clock, at the energy of a byte of SRAM.
    """
    if chip.memory is not None:
        end = chip.memory.interface
        rate = bandwidth(end, chip.stacks)
        return ResidentMemory(capacity(chip.memory, chip.stacks), rate, rate * end.energy)
    held = chip.dies * (chip.active * chip.die.core.buffer + chip.die.buffer)
    rate = chip.dies * chip.active * chip.die.core.port * chip.clock
    return ResidentMemory(held, rate, rate * chip.energy.sram * chip.node.energy)


def link_bandwidth(chip: Accelerator) -> Array:
    """Bytes/s that leave the package for other chips, one direction."""
    return chip.dies * bandwidth(chip.link, chip.die.links)


def full_power(chip: Accelerator) -> PowerParts:
    """Watts with arrays at 16 bits, memory and links all at full rates and full clock."""
    core, at = chip.die.core, chip.node
    work = peak_flops(chip)
    read = operand_energy(operand_bytes(core.rows, core.columns, 2.0), at, chip.energy)
    return PowerParts(
        chip.idle,
        work * flop_energy(core.mantissa, at, chip.energy),
        work * read,
        resident_memory(chip).power,
        link_bandwidth(chip) * chip.link.energy,
    )


LEAST_CLOCK = 0.1  # share of the clock below which no limit pushes it


def sustained_share(chip: Accelerator) -> Array:
    """Share of the clock that the package's limit leaves with everything busy at 16 bits."""
    drawn = full_power(chip)
    fixed = drawn.static + drawn.memory + drawn.links
    logic = drawn.compute + drawn.operands
    return clock_share(chip.limit, fixed, logic, chip.voltage, jnp.asarray(LEAST_CLOCK))


def data_sheet(chip: Accelerator, smoothing: Smoothing = None) -> Hardware:
    """What it does, holds, draws and rents for. FLOP/s are those that its power limit sustains."""
    share, resident = sustained_share(chip), resident_memory(chip)
    device = Chip(
        flops_16=share * peak_flops(chip),
        flops_8=share * peak_flops(chip, chip.die.core.products_8),
        flops_4=share * peak_flops(chip, chip.die.core.products_4),
        memory=resident.capacity,
        memory_bandwidth=resident.bandwidth,
    )
    links = Hierarchy(
        domain=chip.domain,
        domain_bandwidth=link_bandwidth(chip),
        network_bandwidth=chip.network,
        pair_bandwidth=jnp.zeros_like(chip.network),
    )
    price = sale_price(chip_bill(chip, smoothing).total, chip.margin)
    hour = rent(price, chip.limit, chip.owner)
    return Hardware(chip=device, network=links, price=hour, power=chip.limit)


def chip_limits(chip: Accelerator, smoothing: Smoothing = None) -> dict[str, Limit]:
    """What it needs of each limit, and has.

    ``reticle``: m2 of a die; ``edge``: m of a die; ``watts``: W at the least clock, with memory and
    links at full rates; ``cooling``: W of the package; ``cores``: of a die that are switched on;
    ``stacks``: that are used, of those that dies have ends of.
    """
    size, end = areas(chip, smoothing).total, memory_end(chip)
    ends = chip.die.links * chip.link.edge
    ends = ends if end is None else ends + chip.die.memories * end.edge
    drawn = full_power(chip)
    logic = LEAST_CLOCK * (drawn.compute + drawn.operands)
    least = drawn.static + drawn.memory + drawn.links + logic
    cooled = jnp.where(chip.limits.cooled > 0, chip.limits.cooled, chip.limit)
    stacks = jnp.zeros_like(size) if end is None else chip.stacks
    return {
        "reticle": Limit(need=size, capacity=chip.limits.die),
        "edge": Limit(need=ends, capacity=perimeter(size)),
        "watts": Limit(need=least, capacity=chip.limit),
        "cooling": Limit(need=chip.limit, capacity=cooled),
        "cores": Limit(need=chip.active, capacity=chip.die.cores),
        "stacks": Limit(need=stacks, capacity=chip.dies * chip.die.memories),
    }


def embodied_emissions(chip: Accelerator, smoothing: Smoothing = None) -> Array:
    """Emissions in kg of making its dies and packages (ACT) and its memory, without the server."""
    size = areas(chip, smoothing).total
    made = chip.dies * die_emissions(size, chip.node, chip.fab)
    if chip.memory is not None:
        made = made + capacity(chip.memory, chip.stacks) * chip.memory.emissions
    return made + package_emissions(1.0 + chip.stacks, chip.fab)
