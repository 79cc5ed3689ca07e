"""The answer of ``chip``: what silicon holds, costs, draws and does, and what is published."""

from collections.abc import Iterator
from dataclasses import dataclass

from infer_jax.plots.bars import Panel, plot_bars
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Column, Notes, Row, Rows, Section
from infer_jax.silicon.chips import LIMITS, SiliconSystem
from infer_jax.silicon.figures import FIGURES, published_of

COLUMNS = (
    Column("", "", "title"),
    Column("by law", "", "value"),
    Column("80 %", "", lambda x: f"{x['low']:.4g} to {x['high']:.4g}" if x["low"] else None),
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
        return published_of(self.system.name)

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
            "Power: products, memory and links at full rates; sustained FLOP/s are within it.",
            "Between the ends are 80 % of draws of coefficients and of what the laws leave out.",
            "Rent at cost: parts and electricity, without margin, server and network by default.",
        ]

    def _figure(self) -> Figure:
        """Bars: area, power and bill by part."""
        panels: list[Panel] = []
        for kind, (unit, factor) in TABLES.items():
            whole = {k.replace("_", " "): v * factor for k, v in self.sizes[kind].items()}
            panels.append(Panel(kind, unit, {self.system.name: whole}))
        return plot_bars(panels, title=f"{self.system.name} by the laws of silicon")
