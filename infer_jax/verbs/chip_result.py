"""The answer of ``chip``: what silicon holds, costs, draws and does, and what is published."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.catalog import list_systems, load_system
from infer_jax.compiling import once
from infer_jax.plots.bars import Panel, plot_bars
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Column, Notes, Row, Rows, Section
from infer_jax.silicon import accelerator as laws
from infer_jax.silicon.accelerator import Accelerator
from infer_jax.silicon.chips import LIMITS, SiliconSystem, known_chips, published_figures
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
COLUMNS = (
    Column("", "", "title"),
    Column("by law", "", "value"),
    Column(
        "80 %", "", lambda row: f"{row['low']:.4g} to {row['high']:.4g}" if row["low"] else None
    ),
    Column("published", "", "published"),
    Column("within", "", "within"),
    Column("", "", "unit"),
)
PARTS = (
    Column("", "", "part"),
    Column("", "", "of"),
    Column("size", "", "value"),
    Column("share", "%", lambda row: f"{100 * row['share']:.0f}"),
)
LIMIT_COLUMNS = (
    Column("limit", "", "name"),
    Column("needs", "", "need"),
    Column("has", "", "capacity"),
    Column("", "", "unit"),
)


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


def _answer(chip: Accelerator) -> dict[str, dict[str, Array]]:
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


TAILS = [(1.0 - 0.8) / 2.0, (1.0 + 0.8) / 2.0]  # between which 80 % of draws lie
# what follows from the parts of cores, which some makers do not publish
OF_AREAS = ("die_mm2", "base_mm2", "bill_usd", "embodied_kg", "rent_usd_per_hour")
TABLES = {"die": ("mm2", 1e6), "base die": ("mm2", 1e6), "power": ("W", 1.0), "bill": ("USD", 1.0)}


def _four(value: float) -> float:
    """A number with four digits."""
    return float(f"{value:.4g}")


@dataclass(frozen=True, repr=False)
class ChipResult(FigureResult):
    """Figures of a chip by law, with the ends of 80 % of draws and what is published."""

    rows_key = "figures"
    system: SiliconSystem
    figures: dict[str, float]
    ends: dict[str, tuple[float, ...]]
    sizes: dict[str, dict[str, float]]

    @classmethod
    def of(cls, system: SiliconSystem, seed: int) -> "ChipResult":
        """The figures of a chip, and of draws of its coefficients."""
        with jax.enable_x64(True):
            chip = jax.tree.map(np.asarray, system.chip)
            deviation = coefficient_deviations(chip, system.rows)
            drawn = draw_chips(chip, deviation, jax.random.key(seed))
            sizes = {
                kind: {name: float(x) for name, x in one.items()}
                for kind, one in once(_answer, chip).items()
            }
            draws = sample(figures_of, drawn)
        figures = sizes.pop("figures")
        ends = {name: tuple(np.quantile(x, TAILS).tolist()) for name, x in draws.items()}
        if not system.areas:
            figures |= dict.fromkeys(OF_AREAS, float("nan"))
            sizes |= {kind: {} for kind in ("die", "base die", "bill")}
        return cls(system, figures, ends, sizes)

    @property
    def die_mm2(self) -> float:
        """Area of a die in mm2."""
        return self.figures["die_mm2"] * 1e6

    @property
    def bill_usd(self) -> float:
        """USD of its parts."""
        return self.figures["bill_usd"]

    @property
    def published(self) -> dict[str, float]:
        """What is published of a chip that exists, in the units of ``FIGURES``."""
        name, sheet = self.system.name, dict[str, float]()
        if name in known_chips() and name in list_systems():
            sheet = {path: float(x) for path, _, x in leaves(load_system(name).hardware)}
        figures = {name: (path, factor) for name, (*_, factor, path) in FIGURES.items()}
        found = {k: sheet.get(path, 0.0) * factor for k, (path, factor) in figures.items()}
        return {k: x for k, x in found.items() if x > 0} | dict(published_figures(name))

    def sections(self) -> Iterator[Section]:
        """Figures beside what is published; area, power and bill by part; limits."""
        system, published = self.system, self.published
        yield f"{system.name}: {system.title}, by the laws of silicon"
        yield {"silicon": system.name}
        rows: list[Row] = []
        for name, (title, unit, factor, _) in FIGURES.items():
            value, known = self.figures[name] * factor, published.get(name)
            low, high = (x * factor for x in self.ends[name])
            drawn = value > 0 and high - low > 1e-6 * abs(high)
            if value > 0 or known is not None:
                rows.append(
                    {
                        "figure": name,
                        "title": title,
                        "value": _four(value) if value > 0 else None,
                        "low": low if drawn else None,
                        "high": high if drawn else None,
                        "published": None if known is None else _four(known),
                        "within": low < known < high if drawn and known is not None else None,
                        "unit": unit,
                    }
                )
        yield Rows("figures", rows, COLUMNS)
        parts = [
            {
                "of": f"{kind}, {unit}",
                "part": part.replace("_", " "),
                "value": _four(value * factor),
                "share": value / (sum(self.sizes[kind].values()) or 1.0),
            }
            for kind, (unit, factor) in TABLES.items()
            for part, value in self.sizes[kind].items()
        ]
        yield Rows("parts", parts, PARTS)
        limits = [
            {
                "name": name,
                "need": _four(self.sizes["need"][name] * words.factor),
                "capacity": _four(self.sizes["capacity"][name] * words.factor),
                "unit": words.unit,
            }
            for name, words in LIMITS.items()
            if system.areas or name not in ("reticle", "edge")
        ]
        yield Rows("limits", limits, LIMIT_COLUMNS)
        yield Notes(self.notes)

    @property
    def notes(self) -> list[str]:
        """What the figures are of."""
        return [
            *(() if self.system.areas else self.system.filled[1:]),
            "Power: 16-bit products, memory and links at full rates; board power is all of it but "
            "power at rest, of the products that draw the most. Sustained FLOP/s are those within "
            "the limit of the chip.",
            "Between the ends are 80 % of draws of the coefficients, each with the spread of its "
            "sources, and of what the laws leave out: of dies, board power and bills, by the chips "
            "that are published. By law: without it.",
            "Rent at cost: parts paid off over the years of its owner, and electricity; without "
            "its maker's margin, server and network unless a description has them.",
        ]

    def _figure(self) -> Figure:
        """Bars: area, power and bill by part."""
        panels: list[Panel] = []
        for kind, (unit, factor) in TABLES.items():
            whole = {k.replace("_", " "): v * factor for k, v in self.sizes[kind].items()}
            panels.append(Panel(kind, unit, {self.system.name: whole}))
        return plot_bars(panels, title=f"{self.system.name} by the laws of silicon")
