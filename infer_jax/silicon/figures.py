"""Figures of a chip by the laws of silicon, with their spread, and what is published of it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.catalog import list_systems, load_system
from infer_jax.compiling import once
from infer_jax.silicon import accelerator as laws
from infer_jax.silicon.accelerator import Accelerator
from infer_jax.silicon.chips import SiliconSystem, known_chips, published_figures
from infer_jax.silicon.spread import coefficient_deviations, draw_chips, sample
from infer_jax.specs import Hierarchy, leaves

# name -> title, unit, factor from SI, field of a profile
FIGURES = {
    "die_mm2": ("die", "mm2", 1e6, ""),
    "base_mm2": ("base die", "mm2", 1e6, ""),
    "full_power_w": ("power, everything busy", "W", 1.0, ""),
    "bill_usd": ("bill of materials", "USD", 1.0, ""),
    "embodied_kg": ("embodied emissions", "kg CO2e", 1.0, ""),
    "peak_16_tflops": ("peak, 16 bits", "TFLOP/s", 1e-12, "chip.flops_16"),
    "peak_8_tflops": ("peak, 8 bits", "TFLOP/s", 1e-12, "chip.flops_8"),
    "peak_4_tflops": ("peak, 4 bits", "TFLOP/s", 1e-12, "chip.flops_4"),
    "flops_16_tflops": ("sustained, 16 bits", "TFLOP/s", 1e-12, ""),
    "flops_8_tflops": ("sustained, 8 bits", "TFLOP/s", 1e-12, ""),
    "flops_4_tflops": ("sustained, 4 bits", "TFLOP/s", 1e-12, ""),
    "memory_gb": ("memory", "GB", 1e-9, "chip.memory"),
    "bandwidth_tb_per_s": ("memory bandwidth", "TB/s", 1e-12, "chip.memory_bandwidth"),
    "link_gb_per_s": ("links, one direction", "GB/s", 1e-9, "network.domain_bandwidth"),
    "limit_w": ("board power", "W", 1.0, "power"),
    # a provider's rent, of which the maker's margin is most, is no figure of it
    "rent_usd_per_hour": ("rent at cost", "USD/h", 1.0, ""),
}
TAILS = [(1.0 - 0.8) / 2.0, (1.0 + 0.8) / 2.0]  # between which 80 % of draws lie
# what follows from the parts of cores, which some makers do not publish
OF_AREAS = ("die_mm2", "base_mm2", "bill_usd", "embodied_kg", "rent_usd_per_hour")


class ChipFigures(NamedTuple):
    """Figures of a chip in SI by name, the ends of 80 % of draws, and its parts by kind.

    ``sizes``: area of each die, power and bill by part; ``need`` and ``capacity`` of each limit.
    """

    figures: dict[str, float]
    ends: dict[str, tuple[float, ...]]
    sizes: dict[str, dict[str, float]]


def figures_of(chip: Accelerator) -> dict[str, Array]:
    """Every figure of a chip in SI, by the names of ``FIGURES``."""
    sheet, (cores, *base) = chip.hardware(), laws.die_areas(chip)
    assert isinstance(sheet.network, Hierarchy)
    device = sheet.chip
    values = (
        cores.total,
        base[0].total if base else jnp.zeros_like(chip.limit),
        laws.full_power(chip).total,
        laws.chip_bill(chip).total,
        laws.embodied_emissions(chip),
        *(laws.peak_flops(chip, bits) for bits in laws.WIDTHS),
        *(device.flops_16, device.flops_8, device.flops_4),
        *(device.memory, device.memory_bandwidth, sheet.network.domain_bandwidth),
        *(laws.board_power(chip), sheet.price),
    )
    return dict(zip(FIGURES, values, strict=True))


def _parts(chip: Accelerator) -> dict[str, dict[str, Array]]:
    """Figures; area of a die, power and bill by part; need and capacity of each limit, in SI."""
    limits, (cores, *base) = laws.chip_limits(chip), laws.die_areas(chip)
    return {
        "figures": figures_of(chip),
        "die": cores._asdict(),
        "base die": base[0]._asdict() if base else {},
        "power": laws.full_power(chip)._asdict(),
        "bill": laws.chip_bill(chip)._asdict(),
        "need": {name: limit.need for name, limit in limits.items()},
        "capacity": {name: limit.capacity for name, limit in limits.items()},
    }


def chip_figures(system: SiliconSystem, seed: int) -> ChipFigures:
    """The figures of a chip, and of draws of its coefficients; NaN where no area is published."""
    with jax.enable_x64(True):
        chip = jax.tree.map(np.asarray, system.chip)
        deviation = coefficient_deviations(chip, system.rows)
        drawn = draw_chips(chip, deviation, jax.random.key(seed))
        sizes = {
            kind: {name: float(x) for name, x in one.items()}
            for kind, one in once(_parts, chip).items()
        }
        draws = sample(figures_of, drawn)
    figures = sizes.pop("figures")
    ends = {name: tuple(np.quantile(x, TAILS).tolist()) for name, x in draws.items()}
    if not system.areas:
        figures |= dict.fromkeys(OF_AREAS, float("nan"))
        sizes |= {kind: {} for kind in ("die", "base die", "bill")}
    return ChipFigures(figures, ends, sizes)


def published_of(name: str) -> dict[str, float]:
    """What is published of a chip that exists, in the units of ``FIGURES``."""
    sheet = dict[str, float]()
    if name in known_chips() and name in list_systems():
        sheet = {path: float(x) for path, _, x in leaves(load_system(name).hardware)}
    figures = {name: (path, factor) for name, (*_, factor, path) in FIGURES.items()}
    found = {k: sheet.get(path, 0.0) * factor for k, (path, factor) in figures.items()}
    return {k: x for k, x in found.items() if x > 0} | dict(published_figures(name))
