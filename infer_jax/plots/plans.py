"""Draws plans: speed of a request against money per million tokens.

Speed is to the right and money is up, so that the better plan lies below and to the right.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from infer_jax.estimators import Estimate
from infer_jax.plots.plan_chart import PlanChart, PlanPoint, in_words
from infer_jax.plots.style import (
    DIAMOND,
    INK,
    QUIET,
    WIDE,
    beside,
    blank,
    line,
    readable,
    save,
    style,
    words,
)
from infer_jax.results.numbers import digits
from infer_jax.specs import output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPEED = output(Estimate, "speed").doc
ONE_POOL, TWO_POOLS = "one pool", "pools that prefill and decode"
BAND, PLAN, MEASURED = "80 % of measured servers", "the plan to take", "measured run"
KEYS = 0.62  # inches of the keys above the axes
Look = dict[str, Any]  # how matplotlib draws a mark or a line
COPIES = " 2 x TP4 is two instances of four GPUs each."
DASHED: Look = {"color": QUIET, "linestyle": (0, (4, 2))}
RING: Look = {"marker": "o", "color": INK, "linestyle": "none", "markersize": 15,
                        "markerfacecolor": "none", "markeredgewidth": 1.6}  # fmt: skip


def plot_plans(
    chart: PlanChart,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of a chart of plans, one series a system or format.

    The plan to take has a ring and its numbers, plans that break the limit of TPOT are on grey,
    hollow marks have two pools, diamonds are measured runs. With a path the format is that of its
    suffix (png, svg, pdf).

    Raises:
        InputError: matplotlib is missing, or the path cannot be written.
    """
    axis, series = chart.up()[0], [x for x in chart.series if x.visible]
    visible = chart.visible() if chart.chosen is None else [p for p in chart.plans if p.line]
    plans = {s.label: [p for p in visible if p.series == s.label] for s in series}
    looks = {s.label: line(i) | {"color": line(s.tone)["color"]} for i, s in enumerate(series)}
    runs = [(run.numbers.get("speed"), run.numbers.get(axis.key)) for run in chart.runs]
    measured: list[Any] = [(x, y) for x, y in runs if x is not None and y is not None]
    with style():
        figure, _ = blank(WIDE, 4.6 + KEYS, words(title), words(caption))
        axes = figure.subplots()
        for label, points in plans.items():
            _draw(axes, points, axis.key, **looks[label])
        axes.set_yscale("log")
        axes.set_xlim(left=0)
        if chart.tpot is not None:
            axes.axvspan(0, 1e3 / chart.tpot, color="#eeeeee", zorder=0, linewidth=0)
            axes.axvline(1e3 / chart.tpot, linewidth=1.2, **DASHED)
        if measured:
            axes.plot(*zip(*measured, strict=True), zorder=4, **DIAMOND)
        if chart.chosen is not None:
            _draw_chosen(axes, chart, several=len(series) > 1)
        axes.set_xlabel(SPEED)
        axes.set_ylabel(axis.title)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        readable(axes, 200.0)
        keys = _keys(chart, looks, [p for points in plans.values() for p in points], axis.key)
        keys += [(MEASURED, DIAMOND)] * bool(measured)
        keys += [(PLAN, {**RING, "markersize": 11})] * (chart.chosen is not None)
        place: Look = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
        handles = [_handle(label, look) for label, look in keys]
        axes.legend(handles=handles, ncols=3, handlelength=2.4, columnspacing=1.4, **place)
        if path is not None:
            save(figure, path)
    return figure


def marks(chart: PlanChart) -> str:
    """What marks, the grey side and bands of the picture are, in sentences."""
    first = "Every mark is a plan that no other of its system, format and kind beats in both"
    if not any(plan.line for plan in chart.plans):
        first = "Marks are the plans that come nearest: none keeps every limit"
    elif chart.ttft is not None:
        first += f" within a TTFT of {chart.ttft:g} ms"
    slow = "" if chart.tpot is None else "grey: slower than the limit"
    parts = [first, slow, f"shaded: {chart.band()}" if chart.band() else ""]
    copies = any(" x TP" in plan.layout for plan in chart.plans)
    return f"{'; '.join(filter(None, parts))}.{COPIES * copies}"


def _position(plan: PlanPoint, key: str) -> tuple[float, float]:
    return plan.numbers["speed"] or 0.0, plan.numbers[key] or 0.0


def _draw(axes: "Axes", plans: Sequence[PlanPoint], key: str, marker: str, **look: Any) -> None:
    """The plans of a series: filled marks of one pool with their band, hollow ones of two."""
    tone = look["color"]
    for pools, face in ((False, tone), (True, "white")):
        points = sorted((p for p in plans if p.pools == pools), key=lambda p: _position(p, key))
        where = [[_position(p, key)[axis] for p in points] for axis in (0, 1)]
        if any(p.line for p in points):
            axes.plot(*where, **{**look, "linewidth": 1.2})
        axes.plot(*where, marker, color=tone, markerfacecolor=face, markersize=5)
        banded = [p.bands for p in points if _has_band(p, key)]
        if banded:
            fast, slow = ([(b["speed"][i], b[key][i]) for b in banded] for i in (0, 1))
            around = zip(*(fast + slow[::-1]), strict=True)
            axes.fill(*around, color=tone, alpha=0.14, linewidth=0, zorder=1)


def _has_band(plan: PlanPoint, key: str) -> bool:
    return "speed" in plan.bands and key in plan.bands


def _draw_chosen(axes: "Axes", chart: PlanChart, *, several: bool) -> None:
    """The ring around the plan to take, and below it what it is, and its numbers."""
    assert chart.chosen is not None
    plan, axis = chart.plans[chart.chosen], chart.up()[0]
    speed, cost = _position(plan, axis.key)
    axes.plot(speed, cost, zorder=4, **RING)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 2.2, high)  # space for the words below it
    where = f"{in_words(plan.series)}: " if several else ""
    wait = plan.numbers.get("ttft")
    first = "" if wait is None else f", TTFT {digits(wait)} ms"
    paid = f"{digits(cost)} {axis.short}"
    if axis.short.startswith("$"):
        paid = f"${digits(cost)}{axis.short.removeprefix('$')}"
    text = (
        f"{where}{in_words(plan.layout)}, {plan.gpus:g} GPUs\n"
        f"{digits(speed)} tokens/s{first}, {paid}"
    )
    beside(axes, (speed, cost), words(text), left=speed > 0.5 * axes.get_xlim()[1])


def _keys(
    chart: PlanChart, looks: Mapping[str, Look], plans: Sequence[PlanPoint], key: str
) -> list[tuple[str, Look]]:
    """Labels and looks of the series, of one pool and two, of the band and the limit."""
    keys: list[tuple[str, Look]] = [
        (words(in_words(label)), {"markersize": 6, **look}) for label, look in looks.items()
    ]
    look: Look = {"marker": "o", "color": INK, "linestyle": "none", "markersize": 6}
    if len({plan.pools for plan in plans}) > 1:
        keys += [(ONE_POOL, {**look, "markerfacecolor": INK})]
        keys += [(TWO_POOLS, {**look, "markerfacecolor": "white"})]
    if any(_has_band(plan, key) for plan in plans):
        keys += [(BAND, {"color": QUIET, "alpha": 0.3, "linewidth": 0})]
    if chart.tpot is not None:
        keys += [(f"limit: TPOT {chart.tpot:g} ms", DASHED)]
    return keys


def _handle(label: str, look: Look) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if "alpha" in look:
        return Patch(label=label, **look)
    return Line2D([], [], label=label, **look)
