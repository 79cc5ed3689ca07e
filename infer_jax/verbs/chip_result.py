"""The answer of ``chip``: what silicon holds, costs, draws and does, and what is published."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.catalog import list_systems, load_system
from infer_jax.catalog.published.tables import tables
from infer_jax.compiling import once
from infer_jax.plots.bars import Panel, plot_bars
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Column, Notes, Row, Rows, Section
from infer_jax.silicon import accelerator as laws
from infer_jax.silicon.accelerator import Accelerator
from infer_jax.silicon.chips import LIMITS, SiliconSystem
from infer_jax.silicon.nodes import SOURCE
from infer_jax.silicon.spread import coefficient_deviations, draw_chips, interval
from infer_jax.specs import Hierarchy

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
    "rent_usd_per_hour": ("rent at cost", "USD/h", 1.0, "price"),
}
RENT = "rent_usd_per_hour"  # a provider's, of which the maker's margin is most, is no figure of it
COLUMNS = (
    Column("", "", "title"),
    Column("by law", "", "value"),
    Column(
        "80 %", "", lambda row: f"{row['low']:.4g} to {row['high']:.4g}" if row["low"] else None
    ),
    Column("published", "", "published"),
    Column("within", "", lambda row: {None: None, True: "yes", False: "no"}[row["within"]]),
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
    sheet = chip.hardware()
    assert isinstance(sheet.network, Hierarchy)
    device, base = sheet.chip, laws.base_areas(chip)
    values = (
        laws.areas(chip).total,
        jnp.zeros_like(chip.limit) if base is None else base.total,
        laws.full_power(chip).total,
        laws.chip_bill(chip).total,
        laws.embodied_emissions(chip),
        *(laws.peak_flops(chip, laws.products_of(chip, bits).count) for bits in (16, 8, 4)),
        *(device.flops_16, device.flops_8, device.flops_4),
        *(device.memory, device.memory_bandwidth, sheet.network.domain_bandwidth),
        *(laws.board_power(chip), sheet.price),
    )
    return dict(zip(FIGURES, values, strict=True))


def _parts_of(chip: Accelerator) -> dict[str, dict[str, Array]]:
    """Area of a die, power and bill by part, and need and capacity of each limit, in SI."""
    limits, base = laws.chip_limits(chip), laws.base_areas(chip)
    return {
        "die": laws.areas(chip)._asdict(),
        "base die": {} if base is None else base._asdict(),
        "power": laws.full_power(chip)._asdict(),
        "bill": laws.chip_bill(chip)._asdict(),
        "need": {name: limit.need for name, limit in limits.items()},
        "capacity": {name: limit.capacity for name, limit in limits.items()},
    }


def _answer(chip: Accelerator) -> tuple[dict[str, Array], dict[str, dict[str, Array]]]:
    return figures_of(chip), _parts_of(chip)


# what follows from the parts of cores, which some makers do not publish
OF_AREAS = ("die_mm2", "base_mm2", "bill_usd", "embodied_kg", RENT)
TABLES = {"die": ("mm2", 1e6), "base die": ("mm2", 1e6), "power": ("W", 1.0), "bill": ("USD", 1.0)}


@dataclass(frozen=True, repr=False)
class ChipResult(FigureResult):
    """Figures of a chip by law, with the ends of 80 % of draws and what is published."""

    rows_key = "figures"
    system: SiliconSystem
    figures: dict[str, float] = field(default_factory=dict[str, float])
    ends: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    sizes: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])

    @classmethod
    def of(cls, system: SiliconSystem, seed: int) -> "ChipResult":
        """The figures of a chip, and of draws of its coefficients."""
        with jax.enable_x64(True):
            chip = jax.tree.map(np.asarray, system.chip)
            deviation = coefficient_deviations(chip, system.rows)
            drawn = draw_chips(chip, deviation, jax.random.key(seed))
            found, parts = once(_answer, chip)
            ends = interval(figures_of, drawn)
        sizes = {kind: {k: float(x) for k, x in one.items()} for kind, one in parts.items()}
        figures = {k: float(x) for k, x in found.items()}
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
        row = tables(SOURCE)["accelerators"].get(self.system.name)
        if row is None:
            return {}
        known = self.system.name in list_systems()
        profile = load_system(self.system.name).hardware if known else None
        found: dict[str, float] = {}
        for name, (_, _, factor, path) in FIGURES.items():
            value: object = profile if path and name != RENT else None
            for step in path.split(".") if path else ():
                value = getattr(value, step, None)
            if value is not None and float(np.asarray(value)) > 0:
                found[name] = float(np.asarray(value)) * factor
        return found | row.get("published", {})

    def sections(self) -> Iterator[Section]:
        """Figures beside what is published; area, power and bill by part; limits."""
        system, published = self.system, self.published
        yield f"{system.name}: {system.title}, by the laws of silicon"
        yield {"silicon": system.name}
        rows: list[Row] = []
        for name, (title, unit, factor, _) in FIGURES.items():
            value, (low, high) = self.figures[name] * factor, self.ends[name]
            known = published.get(name)
            if not value > 0 and known is None:
                continue
            spread = high - low > 1e-6 * abs(high)
            rows.append(
                {
                    "figure": name,
                    "title": title,
                    "value": float(f"{value:.4g}") if value > 0 else None,
                    "low": low * factor if spread and value > 0 else None,
                    "high": high * factor if spread and value > 0 else None,
                    "published": None if known is None else float(f"{known:.4g}"),
                    "within": low * factor < known < high * factor
                    if spread and value > 0 and known is not None
                    else None,
                    "unit": unit,
                }
            )
        yield Rows("figures", rows, COLUMNS)
        parts: list[Row] = []
        for kind, (unit, factor) in TABLES.items():
            total = sum(self.sizes[kind].values())
            for part, value in self.sizes[kind].items():
                share = value / total if total else 0.0
                name = part.replace("_", " ")
                size = float(f"{value * factor:.4g}")
                parts.append({"of": f"{kind}, {unit}", "part": name, "value": size, "share": share})
        yield Rows("parts", parts, PARTS)
        limits: list[Row] = []
        for name, (_, unit, _, factor, _) in LIMITS.items():
            if name in ("reticle", "edge") and not self.system.areas:
                continue
            need, most = self.sizes["need"][name] * factor, self.sizes["capacity"][name] * factor
            numbers = {"need": float(f"{need:.4g}"), "capacity": float(f"{most:.4g}")}
            limits.append({"name": name, **numbers, "unit": unit})
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
