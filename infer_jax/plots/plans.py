"""Draws plans: speed of a request against money per million tokens.

Speed is to the right and money is up, so that the better plan lies below and to the right.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from infer_jax.estimators import Estimate
from infer_jax.plots.plan_chart import PlanChart, PlanPoint, in_words
from infer_jax.plots.style import (
    DIAMOND,
    INK,
    QUIET,
    Axes,
    Figure,
    Words,
    is_slide,
    line,
    readable,
    style,
    subplots,
    words,
    write_below,
)
from infer_jax.results.numbers import digits
from infer_jax.specs import output

SPEED = output(Estimate, "speed").doc
BANDS = 2  # on a slide
KEYS = 0.62  # inches of the keys above the axes
Look = dict[str, Any]  # how matplotlib draws a mark or a line
DOT: Look = {"marker": "o", "color": INK, "linestyle": "none", "markersize": 6}
DASHED: Look = {"color": QUIET, "linestyle": (0, (4, 2))}
RING: Look = {"marker": "o", "color": INK, "linestyle": "none", "markersize": 15,
                        "markerfacecolor": "none", "markeredgewidth": 1.6}  # fmt: skip


def plot_plans(chart: PlanChart, **heading: Unpack[Words]) -> Figure:
    """A picture of a chart of plans, one series a system or format.

    The plan to take has a ring and its numbers, plans that break the limit of TPOT are on grey,
    hollow marks have two pools, diamonds are measured runs. ``heading``: title and caption.

    Raises:
        InputError: matplotlib is missing.
    """
    key, series = chart.up()[0].key, [x for x in chart.series if x.visible]
    visible = chart.visible() if chart.chosen is None else [p for p in chart.plans if p.line]
    looks = {s.label: line(i) | {"color": line(s.tone)["color"]} for i, s in enumerate(series)}
    runs = [(run.numbers.get("speed"), run.numbers.get(key)) for run in chart.runs]
    measured: list[Any] = [(x, y) for x, y in runs if x is not None and y is not None]
    with style():
        figure, (axes,) = subplots(height=4.6 + KEYS, **heading)
        banded = _banded(chart, [*looks])
        for label, look in looks.items():
            own = [p for p in visible if p.series == label]
            _draw(axes, own, key, look, [pools for one, pools in banded if one == label])
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
        axes.set_ylabel(chart.up()[0].title)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        readable(axes, 200.0)
        plans = [p for p in visible if p.series in looks]
        handles = _handles(chart, looks, plans, bool(measured), bool(axes.collections))
        place: Look = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
        axes.legend(handles=handles, ncols=3, handlelength=2.4, columnspacing=1.4, **place)
    return figure


def _position(plan: PlanPoint, key: str) -> tuple[float, float]:
    return plan.numbers["speed"] or 0.0, plan.numbers[key] or 0.0


def _banded(chart: PlanChart, labels: Sequence[str]) -> list[tuple[str, bool]]:
    """Series, and whether of two pools, that have a band: on a slide two, the plan's the first."""
    every = [(label, pools) for label in labels for pools in (False, True)]
    if not is_slide():
        return every
    plan = None if chart.chosen is None else chart.plans[chart.chosen]
    pools = plan is not None and plan.pools
    of_kind = [x for x in every if x[1] == pools]
    return sorted(of_kind, key=lambda x: plan is not None and x[0] != plan.series)[:BANDS]


def _draw(
    axes: Axes, plans: Sequence[PlanPoint], key: str, look: Look, banded: Sequence[bool]
) -> None:
    """The plans of a series: filled marks of one pool, hollow ones of two; ``banded``: of which."""
    for pools, face in ((False, look["color"]), (True, "white")):
        points = sorted((p for p in plans if p.pools == pools), key=lambda p: _position(p, key))
        if not points:
            continue
        mark = {**look, "markersize": 5, "markerfacecolor": face, "linewidth": 1.2}
        if not any(p.line for p in points):
            mark["linestyle"] = "none"
        axes.plot(*zip(*(_position(p, key) for p in points), strict=True), **mark)
        bands = [p for p in points if {"speed", key} <= set(p.bands)]
        if bands and pools in banded:
            _draw_band(axes, bands, key, look["color"])


def _draw_band(axes: Axes, plans: Sequence[PlanPoint], key: str, colour: str) -> None:
    """Costs of a speed on fast and on slow servers, up to the highest speed of slow ones.

    A fast server's cheapest plan also serves whoever asks for less speed.
    """
    ends = [
        np.asarray(sorted((p.bands["speed"][i], p.bands[key][i]) for p in plans)).T for i in (0, 1)
    ]
    low, high = _position(plans[0], key)[0], ends[1][0, -1]
    speeds = np.concatenate([[low], ends[0][0], ends[1][0]])
    speeds = np.unique(np.clip(speeds, low, max(low, high)))
    costs = [np.exp(np.interp(speeds, x, np.log(y))) for x, y in ends]
    if len(speeds) > 1:
        axes.fill_between(speeds, *costs, color=colour, alpha=0.14, linewidth=0, zorder=1)


def _draw_chosen(axes: Axes, chart: PlanChart, *, several: bool) -> None:
    """The ring around the plan to take, and below it what it is, and its numbers."""
    assert chart.chosen is not None
    plan, axis = chart.plans[chart.chosen], chart.up()[0]
    speed, cost = _position(plan, axis.key)
    axes.plot(speed, cost, zorder=4, **RING)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 2.2, high)  # space for the words below it
    where = f"{in_words(plan.series)}: " if several else ""
    tail, wait = plan.numbers.get("p99_ttft"), plan.numbers.get("ttft")
    first = "" if wait is None else f", TTFT {digits(wait)} ms"
    first = first if tail is None else f", p99 of TTFT {digits(tail)} ms"
    price = f"{digits(cost)} {axis.short}"
    if axis.short.startswith("$"):
        price = f"${digits(cost)}{axis.short.removeprefix('$')}"
    text = (
        f"{where}{in_words(plan.layout)}, {plan.gpus:g} GPUs\n"
        f"{digits(speed)} tokens/s{first}, {price}"
    )
    write_below(axes, (speed, cost), words(text), left=speed > 0.5 * axes.get_xlim()[1])


def _handles(
    chart: PlanChart,
    looks: Mapping[str, Look],
    plans: Sequence[PlanPoint],
    measured: bool,
    shaded: bool,
) -> list[Any]:
    """The legend: the series, one pool and two, the band, the limit, runs and the plan."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def key(label: str, look: Look) -> Line2D:
        return Line2D([], [], label=label, **look)

    handles: list[Any] = [
        key(words(in_words(label)), {**look, "markersize": 6}) for label, look in looks.items()
    ]
    if len({plan.pools for plan in plans}) > 1:
        handles.append(key("one pool", {**DOT, "markerfacecolor": INK}))
        hollow = {**DOT, "markerfacecolor": "white"}
        handles.append(key("pools that prefill and decode", hollow))
    if shaded:
        band: Look = {"color": QUIET, "alpha": 0.3, "linewidth": 0}
        handles.append(Patch(label="80 % of measured servers", **band))
    if chart.tpot is not None:
        handles.append(key(f"limit: TPOT {chart.tpot:g} ms", DASHED))
    if measured:
        handles.append(key("measured run", DIAMOND))
    if chart.chosen is not None:
        handles.append(key("the plan to take", {**RING, "markersize": 11}))
    return handles
