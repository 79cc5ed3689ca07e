"""What a chart of plans shows: how fast a request is against what it costs, on every system.

Pages draw it with Vega-Lite (``pages.charts``), pictures with matplotlib (``plots.plans``).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from infer_jax.catalog.measured_points import latency

BAND = "80 % of measured servers: one that takes longer for a token is dearer by as much"
COPIES = " 2 x TP4 is two instances of four GPUs each."


def in_words(text: str) -> str:
    """A layout or systems of two pools with an arrow, and with words before the pools' layouts.

    >>> in_words("3 x TP1 > 1 x TP2"), in_words("h100_sxm > h200_sxm"), in_words("2 x TP4")
    ('prefill 3 x TP1 → decode 1 x TP2', 'h100_sxm → h200_sxm', '2 x TP4')
    """
    first, pools, second = text.partition(" > ")
    if not pools:
        return text
    layout = " x " in first
    return f"{'prefill ' * layout}{first} → {'decode ' * layout}{second}"


class ChartAxis(NamedTuple):
    """A number of a plan: its name in the data, what it is with its unit, its short name."""

    key: str
    title: str
    short: str
    log: bool = True


ACROSS = (
    ChartAxis("speed", "speed of a request, output tokens/s", "tokens/s per user", log=False),
    ChartAxis("latency", "time of a whole request, s", "s per request"),
    ChartAxis("ttft", "time to first token, ms", "TTFT, ms"),
)
UP = (
    ChartAxis("usd", "USD per million tokens, in and out", "$/Mtok"),
    ChartAxis("usd_out", "USD per million output tokens", "$/Mtok out"),
    ChartAxis("rate", "output tokens/s per GPU", "tokens/s/GPU", log=False),
)


def chart_numbers(
    ttft: float | None,
    tpot: float,
    osl: float,
    usd: float | None,
    rate: float,
    usd_out: float | None = None,
) -> dict[str, float | None]:
    """What the axes show of a plan or a run, by their names; None where it is not known.

    ``ttft``, ``tpot``: seconds; ``usd``, ``usd_out``: per million tokens, in and out, and out
    alone; ``rate``: output tokens per second and GPU.
    """
    return {
        "speed": 1.0 / tpot,
        "latency": None if ttft is None else latency(ttft, tpot, osl),
        "ttft": None if ttft is None else 1e3 * ttft,
        "tpot": 1e3 * tpot,
        "usd": usd,
        "usd_out": usd_out,
        "rate": rate,
    }


class PlanPoint(NamedTuple):
    """A plan: its series, what it is in words, its numbers and the ends of their 80 % bands.

    ``line``: whether it is on the frontier of its series; ``command``: what answers it by itself.
    """

    series: str
    layout: str
    gpus: float
    batch: float
    numbers: Mapping[str, float | None]
    bands: Mapping[str, tuple[float, float]] = {}
    pools: bool = False
    line: bool = True
    command: str = ""


class RunPoint(NamedTuple):
    """A measured run: where it was measured, what it is in words, its numbers."""

    series: str
    what: str
    numbers: Mapping[str, float | None]


class PlanSeries(NamedTuple):
    """The plans of one system and format; ``visible``: from the start; ``tone``: of its system."""

    label: str
    tone: int
    visible: bool = True


class PlanChart(NamedTuple):
    """Plans, which of them is chosen, measured runs, limits in ms."""

    series: Sequence[PlanSeries]
    plans: Sequence[PlanPoint]
    chosen: int | None
    runs: Sequence[RunPoint] = ()
    ttft: float | None = None
    tpot: float | None = None
    label: str = ""
    currency: str = "USD"

    @classmethod
    def of(
        cls,
        plans: Sequence[PlanPoint],
        systems: Mapping[str, str],
        chosen: PlanPoint | None,
        limits: tuple[float, float] = (math.inf, math.inf),
        hidden: Sequence[str] = (),
        **more: Any,
    ) -> "PlanChart":
        """The chart of ``plans`` and the ``chosen`` one, which need not be among them.

        ``systems``: by label, each in a tone of its own; ``limits``: of TTFT and TPOT, seconds;
        ``more``: its runs, label and currency.
        """
        tones = {name: i for i, name in enumerate(dict.fromkeys(systems.values()))}
        series = [PlanSeries(x, tones[name], x not in hidden) for x, name in systems.items()]
        points, number = list(plans), None
        if chosen is not None:
            key = (chosen.series, chosen.layout, chosen.batch, chosen.pools)
            keys = [(x.series, x.layout, x.batch, x.pools) for x in plans]
            number = keys.index(key) if key in keys else len(plans)
            points += [] if key in keys else [chosen._replace(line=False)]
        ttft, tpot = (1e3 * x if math.isfinite(x) else None for x in limits)
        return cls(series, points, number, ttft=ttft, tpot=tpot, **more)

    def up(self) -> list[ChartAxis]:
        """Axes upwards that every plan which is visible has numbers for, the first the first."""
        plans, currency = self.visible(), self.currency
        axes = [a for a in UP if all(p.numbers.get(a.key) is not None for p in plans)]
        if currency == "USD":
            return axes
        return [
            a._replace(
                title=a.title.replace("USD", currency), short=a.short.replace("$", f"{currency} ")
            )
            for a in axes
        ]

    def across(self) -> list[ChartAxis]:
        """Axes to the right that some plan which is visible has numbers for."""
        plans = self.visible()
        axes = [a for a in ACROSS if any(p.numbers.get(a.key) is not None for p in plans)]
        return axes or [*ACROSS]

    def waits(self) -> bool:
        """Whether a time to the first token is known of any plan."""
        return any(plan.numbers.get("ttft") is not None for plan in self.plans)

    def pooled(self) -> bool:
        """Whether any plan has separate pools."""
        return any(plan.pools for plan in self.plans)

    def band(self) -> str:
        """What the bands are, in words; empty where none is drawn."""
        return BAND if any(plan.bands for plan in self.plans) else ""

    def marks(self) -> str:
        """What marks, the grey side and bands of the chart are, in sentences."""
        first = "Every mark is a plan that no other of its system, format and kind beats in both"
        if not any(plan.line for plan in self.plans):
            first = "Marks are the plans that come nearest: none keeps every limit"
        elif self.ttft is not None:
            first += f" within a TTFT of {self.ttft:g} ms"
        slow = "" if self.tpot is None else "grey: slower than the limit"
        parts = [first, slow, f"shaded: {self.band()}" if self.band() else ""]
        copies = any(" x TP" in plan.layout for plan in self.plans)
        return f"{'; '.join(filter(None, parts))}.{COPIES * copies}"

    def visible(self) -> list[PlanPoint]:
        """The visible plans of frontiers; of the others where there are none."""
        labels = {x.label for x in self.series if x.visible}
        plans = [plan for plan in self.plans if plan.series in labels]
        return [plan for plan in plans if plan.line] or plans

    def rows(self) -> list[dict[str, object]]:
        """The plans as the chart's data; the chosen one says so."""
        return [
            {
                "id": i,
                "series": plan.series,
                "group": f"{plan.series}, two pools" if plan.pools else plan.series,
                "layout": plan.layout,
                "plan": in_words(plan.layout),
                "gpus": float(plan.gpus),
                "batch": float(plan.batch),
                **plan.numbers,
                **{f"{key}_fast": fast for key, (fast, _) in plan.bands.items()},
                **{f"{key}_slow": slow for key, (_, slow) in plan.bands.items()},
                "banded": bool(plan.bands),
                "pools": plan.pools,
                "line": plan.line,
                "command": plan.command,
                "chosen": i == self.chosen,
            }
            for i, plan in enumerate(self.plans)
        ]
