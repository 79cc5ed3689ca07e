"""An accelerator from its silicon to its data sheet: what it holds, costs, draws and does.

Every number is a leaf, so that a data sheet has slopes by arrays, clock, stacks and node.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Limit
from infer_jax.physics.decoder import total
from infer_jax.physics.numerics import Smoothing
from infer_jax.silicon.area import Base, Die, DieArea, core_area, die_area
from infer_jax.silicon.bill import (
    Assembly,
    Bill,
    Fab,
    Ownership,
    assembly_yield,
    bill_of_materials,
    die_emissions,
    loss,
    rent,
    sale_price,
)
from infer_jax.silicon.interfaces import (
    RETICLE,
    Interface,
    Stack,
    Switch,
    bandwidth,
    interface,
    memory_price,
    perimeter,
    switch_share,
)
from infer_jax.silicon.nodes import (
    Node,
    Wafer,
    die_cost,
    die_yield,
    dies_per_wafer,
    harvested_yield,
    values,
)
from infer_jax.silicon.power import (
    OperationEnergy,
    PowerParts,
    clock_share,
    element_energy,
    flops,
    operand_energy,
    product_energy,
)
from infer_jax.specs import Chip, Hardware, Hierarchy, Spec, number, part, spec


@spec
class Unlisted(Spec):
    """What no part of the laws is, as ratios of the whole to its parts; 1: the plain laws."""

    area: Array = number("area of a die over that of its parts", kind="size", default=1.0)
    power: Array = number(
        "power limit over what arrays, memory and links draw at full rates",
        kind="size",
        default=1.0,
    )
    bill: Array = number("bill over that of its parts", kind="size", default=1.0)


@spec
class Limits(Spec):
    """What no accelerator may exceed."""

    die: Array = number("largest die", unit="m2", kind="size", default=RETICLE)
    cooled: Array = number("heat that is carried away; 0: any", unit="W", kind="rate", default=0.0)


@spec
class Accelerator(Spec):
    """Dies of cores and memory stacks in one package, the limits it runs within, and its owner.

    With a ``base`` memory and links end on its dies, and not on those of cores. Without a
    ``memory`` beside its dies their buffers hold weights and cache.
    """

    node: Node = part("of its dies")
    die: Die = part("one of them")
    dies: Array = number("dies of the package", kind="count", default=1.0)
    active: Array = number("cores of a die that are switched on", kind="count")
    clock: Array = number("clock", unit="1/s", kind="rate")
    memory: Stack | None = part("a stack or channel of memory", default_factory=lambda: None)
    stacks: Array = number("stacks of the package that are used", kind="count", default=0.0)
    link: Interface = part("a link to other chips")
    base: Base | None = part("dies of another kind in its package", default_factory=lambda: None)
    joint: Interface = part("a link between its dies", default_factory=lambda: interface("ucie"))
    switch: Switch | None = part("between its links", default_factory=lambda: None)
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
    assembly: Assembly = part(
        "of the package", default_factory=lambda: Assembly.of(**values("packages", "cowos"))
    )
    margin: Array = number("gross margin of its maker", kind="fraction", high=1, default=0.0)
    owner: Ownership = part("terms on which it is owned", default_factory=Ownership)
    fab: Fab = part("where it is made", default_factory=Fab)
    limits: Limits = part("what it may not exceed", default_factory=Limits)
    domain: Array = number("chips that its links join", kind="count", low=1, default=1.0)
    network: Array = number(
        "bandwidth beyond them, one direction", unit="bytes/s", kind="rate", default=0.0
    )
    year: Array = number("in which memory is bought", kind="size", default=2025.0)
    unlisted: Unlisted = part("what the laws leave out", default_factory=Unlisted)

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


class DieKind(NamedTuple):
    """Equal dies of a package: how many, one, its node, and which share lies on other dies."""

    count: Array
    die: Die | Base
    node: Node
    carried: Array | float


def die_kinds(chip: Accelerator) -> list[DieKind]:
    """Its dies of cores, then those of the other kind; memory and links end on the last."""
    base = chip.base
    if base is None:
        return [DieKind(chip.dies, chip.die, chip.node, 0.0)]
    cores = DieKind(chip.dies, chip.die, chip.node, base.carried)
    return [cores, DieKind(base.dies, base, base.node, 0.0)]


def die_areas(chip: Accelerator, smoothing: Smoothing = None) -> list[DieArea]:
    """Area of a die of each of its kinds in m2, by part."""
    ends = memory_end(chip), chip.link, chip.joint
    parts = [die_area(x.die, *ends, x.node, smoothing) for x in die_kinds(chip)]
    return [x._replace(other=(chip.unlisted.area - 1.0) * x.total) for x in parts]


def areas(chip: Accelerator, smoothing: Smoothing = None) -> DieArea:
    """Area of one of its dies of cores in m2, by part."""
    return die_areas(chip, smoothing)[0]


def good_die_cost(chip: Accelerator, smoothing: Smoothing = None) -> Array:
    """USD of a die with enough cores that work.

    Defects fall on cores by their share of the area; what is no core has to be whole (Poisson).
    What no law has is of both, by their areas.
    """
    parts, defects = areas(chip, smoothing), chip.node.defects
    one = core_area(chip.die, memory_end(chip), chip.node, smoothing)
    core = jnp.exp(-(chip.unlisted.area * one * defects))
    rest = jnp.exp(-((parts.total - chip.unlisted.area * parts.cores) * defects))
    works = rest * harvested_yield(core, chip.die.cores, chip.die.cores - chip.active)
    return die_cost(dies_per_wafer(parts.total, chip.wafer), works, chip.node)


def interposer_area(chip: Accelerator, smoothing: Smoothing = None) -> Array:
    """Area in m2 under dies and stacks: scale (n A + stacks footprint); stacked dies take none."""
    beside = 0.0 if chip.memory is None else chip.stacks * chip.memory.footprint
    pairs = zip(die_kinds(chip), die_areas(chip, smoothing), strict=True)
    dies = total((1.0 - x.carried) * (x.count * size.total) for x, size in pairs)
    return chip.assembly.scale * (dies + beside)


def logic_price(chip: Accelerator, smoothing: Smoothing = None) -> Array:
    """USD of its good dies. A die that does not hold on its base wastes that base and its others.

    n c + (1 - y^(s n / m)) / y^(s n / m) of what is stacked: m bases of n dies, a share s on them.
    """
    dies, base = chip.dies * good_die_cost(chip, smoothing), chip.base
    if base is None:
        return dies
    area = die_areas(chip, smoothing)[1].total
    works = die_yield(area, base.node, chip.wafer)
    bases = base.dies * die_cost(dies_per_wafer(area, chip.wafer), works, base.node)
    holds = assembly_yield(base.carried * chip.dies / base.dies, chip.assembly.bond)
    return dies + bases + loss(base.carried * dies + bases, holds)


def bonds(chip: Accelerator) -> Array:
    """Dies and stacks that are bonded to the package; those on a base or on the board are not."""
    stacks = chip.stacks
    if chip.memory is not None:
        stacks = jnp.where(chip.memory.footprint > 0, stacks, 0.0)
    return total((1.0 - x.carried) * x.count for x in die_kinds(chip)) + stacks


def chip_bill(chip: Accelerator, smoothing: Smoothing = None) -> Bill:
    """USD of its parts: good dies, stacks, package, what fails with them, and the rest."""
    logic = logic_price(chip, smoothing)
    memory = jnp.zeros_like(logic)
    if chip.memory is not None:
        memory = memory_price(chip.memory, chip.stacks, chip.year)
    package = interposer_area(chip, smoothing) * chip.assembly.price
    works = assembly_yield(bonds(chip), chip.assembly.bond)
    parts = bill_of_materials(logic, memory, package, chip.assembly.other, works)
    return parts._replace(other=parts.other + (chip.unlisted.bill - 1.0) * parts.total)


def peak_flops(chip: Accelerator, bits: int = 16) -> Array:
    """FLOP/s of all its arrays at full clock in products of 16, 8 or 4 bits."""
    core, (count, _) = chip.die.core, products(chip, bits)
    cores = chip.dies * chip.active
    return flops(cores, core.lanes, core.rows, core.columns, chip.clock, count)


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
        return ResidentMemory(chip.stacks * chip.memory.capacity, rate, rate * end.energy)
    held = chip.dies * (chip.active * chip.die.core.buffer + chip.die.buffer)
    rate = chip.dies * chip.active * chip.die.core.port * chip.clock
    return ResidentMemory(held, rate, rate * chip.energy.sram * chip.node.energy)


def link_bandwidth(chip: Accelerator) -> Array:
    """Bytes/s that leave the package for other chips, one direction."""
    last = die_kinds(chip)[-1]
    return last.count * bandwidth(chip.link, last.die.links)


WIDTHS = (16, 8, 4)  # bits of products


def products(chip: Accelerator, bits: int) -> tuple[Array | float, Array | float]:
    """How many products of 16, 8 or 4 bits an element makes in a cycle, and their mantissa.

    Those of 8 are E4M3, those of 4 E2M1.
    """
    core = chip.die.core
    return {16: (1.0, core.mantissa), 8: (core.products_8, 3.0), 4: (core.products_4, 1.0)}[bits]


def full_power(chip: Accelerator, bits: int = 16) -> PowerParts:
    """Watts with arrays at 16, 8 or 4 bits, memory and links all at full rates and full clock.

    Without a memory beside them dies read operands from the buffers that hold everything: they
    count there.
    """
    core, at, (count, mantissa) = chip.die.core, chip.node, products(chip, bits)
    each = product_energy(bits, mantissa, chip.energy)
    cycles = peak_flops(chip) / 2.0  # of all elements, by second
    read = operand_energy(core.rows, core.columns, bits / 8.0, at, chip.energy)
    read = jnp.zeros_like(read) if chip.memory is None else read
    last = die_kinds(chip)[-1]
    inside = last.count * bandwidth(chip.joint, last.die.joints) * chip.joint.energy
    return PowerParts(
        chip.idle,
        cycles * element_energy(each, mantissa, count, at, chip.energy),
        2.0 * cycles * count * read,
        resident_memory(chip).power,
        link_bandwidth(chip) * chip.link.energy + inside,
    )


def board_power(chip: Accelerator) -> Array:
    """Watts for which a board of such a chip is made: ratio times all but its power at rest.

    At the width of products that draws the most; where two draw the same the slope is their mean.
    """
    drawn = [full_power(chip, bits) for bits in WIDTHS]
    most = jnp.max(jnp.stack([x.total - x.static for x in drawn]))
    return chip.unlisted.power * most


LEAST_CLOCK = 0.1  # share of the clock below which no limit pushes it


def sustained_shares(chip: Accelerator) -> Array:
    """Shares of the clock that the limit leaves with everything busy, at 16, 8 and 4 bits.

    Each width draws its own: narrow products are made more often a cycle.
    """
    drawn = [full_power(chip, bits) for bits in WIDTHS]
    fixed = drawn[0].static + drawn[0].memory + drawn[0].links
    logic = jnp.stack([x.compute + x.operands for x in drawn])
    return clock_share(chip.limit, fixed, logic, chip.voltage, LEAST_CLOCK)


def data_sheet(chip: Accelerator, smoothing: Smoothing = None) -> Hardware:
    """What it does, holds, draws and rents for. FLOP/s are those that its power limit sustains."""
    resident = resident_memory(chip)
    rates = {
        f"flops_{bits}": share * peak_flops(chip, bits)
        for bits, share in zip(WIDTHS, sustained_shares(chip), strict=True)
    }
    device = Chip(**rates, memory=resident.capacity, memory_bandwidth=resident.bandwidth)
    links = Hierarchy(
        domain=chip.domain,
        domain_bandwidth=link_bandwidth(chip),
        network_bandwidth=chip.network,
        pair_bandwidth=jnp.zeros_like(chip.network),
    )
    price = sale_price(chip_bill(chip, smoothing).total, chip.margin)
    watts = chip.limit
    if chip.switch is not None:
        share = switch_share(chip.switch, link_bandwidth(chip))
        price, watts = price + share * chip.switch.price, watts + share * chip.switch.power
    hour = rent(price, watts, chip.owner)
    return Hardware(chip=device, network=links, price=hour, power=chip.limit)


def chip_limits(chip: Accelerator, smoothing: Smoothing = None) -> dict[str, Limit]:
    """What it needs of each limit, and has.

    ``reticle``: m2 of the largest die; ``edge``: m of the die of the ends; ``watts``: W at the
    least clock, with memory and links at full rates; ``cooling``: W of the package; ``cores``: of a
    die that are switched on; ``stacks``: that are used, of those that dies have ends of.
    """
    sizes, end = [x.total for x in die_areas(chip, smoothing)], memory_end(chip)
    dies, last, *_ = die_kinds(chip)[-1]
    ends = last.links * chip.link.edge + last.joints * chip.joint.edge
    ends = ends if end is None else ends + last.memories * end.edge
    drawn = full_power(chip)
    logic = LEAST_CLOCK * (drawn.compute + drawn.operands)
    least = drawn.static + drawn.memory + drawn.links + logic
    cooled = jnp.where(chip.limits.cooled > 0, chip.limits.cooled, chip.limit)
    stacks = jnp.zeros_like(sizes[0]) if end is None else chip.stacks
    return {
        "reticle": Limit(need=jnp.maximum(sizes[0], sizes[-1]), capacity=chip.limits.die),
        "edge": Limit(need=ends, capacity=perimeter(sizes[-1])),
        "watts": Limit(need=least, capacity=chip.limit),
        "cooling": Limit(need=chip.limit, capacity=cooled),
        "cores": Limit(need=chip.active, capacity=chip.die.cores),
        "stacks": Limit(need=stacks, capacity=dies * last.memories),
    }


def embodied_emissions(chip: Accelerator, smoothing: Smoothing = None) -> Array:
    """Emissions in kg of making its dies and packages (ACT) and its memory, without the server."""
    pairs = zip(die_kinds(chip), die_areas(chip, smoothing), strict=True)
    made = total(x.count * die_emissions(size.total, x.node, chip.fab) for x, size in pairs)
    if chip.memory is not None:
        made = made + chip.stacks * chip.memory.capacity * chip.memory.emissions
    return made + (1.0 + chip.stacks) * chip.fab.package
