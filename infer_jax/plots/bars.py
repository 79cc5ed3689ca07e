"""Draws horizontal bars in parts: times by term, a chip's memory, kernels, layouts.

A panel has one scale. Parts have the same tone in every panel and bar, small ones are drawn as one,
and every bar ends in its number.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Unpack

import numpy as np

from infer_jax.estimators import Estimate, Phase
from infer_jax.plots.style import (
    DIAMOND,
    INK,
    QUIET,
    REST,
    SLIDE,
    TONE_ORDER,
    TONES,
    WIDE,
    Axes,
    Figure,
    Look,
    Options,
    Words,
    draw_limit,
    is_slide,
    key,
    name_rows,
    part,
    stacked_axes,
    style,
    write,
)
from infer_jax.results.numbers import digits
from infer_jax.specs import outputs
from infer_jax.specs.words import term

Numbers = Mapping[str, float]
HEIGHT, GAP, ROW = 0.36, 0.72, 0.21  # inches: bar, between panels, legend
MANY, THIN = 6, 0.25  # from this many bars of a panel on they are this thin, in inches
LONG = 10e3  # ms from which times are drawn in s
SLIDE_LINES = 10  # lines of names of a panel's bars on a slide
SMALL, SLIDE_SMALL = 0.012, 0.05  # share of the longest bar below which a part joins the small ones
VISIBLE = 0.002  # the same share of the small parts together, below which the legend omits them
OTHER = "all else"
MEASURED, OVERLAP = "measured", "the time; pale: hidden behind others"
OVERLAPPING = 1e-3  # terms overlap where their sum exceeds the time by this share
FREE: Look = ("#e9e9e9", "")
NONE: Numbers = MappingProxyType({})
PASSES = {"ttft": "prefill", "tpot": "decode"}  # an output, and the pass whose terms it has


class Panel(NamedTuple):
    """Bars on one scale: each is its parts by name, in ``unit``.

    ``marks``: by bar, what was measured, a diamond; ``ends``: by bar, a number with a line at it,
    such as its time where parts overlap; ``limits``: lines across all bars, by their words.
    """

    title: str
    unit: str
    bars: Mapping[str, Numbers]
    marks: Numbers = NONE
    ends: Numbers = NONE
    limits: Numbers = NONE

    @property
    def longest(self) -> float:
        """The sum of the parts of the longest bar; 0 without bars."""
        return max((sum(bar.values()) for bar in self.bars.values()), default=0.0)

    def largest(self, name: str) -> float:
        """The largest part of that name, as a share of the longest bar."""
        return max(bar.get(name, 0.0) for bar in self.bars.values()) / (self.longest or 1.0)


def time_panels(
    estimates: Mapping[str, Estimate],
    marks: Mapping[str, Numbers] = MappingProxyType({}),
    limits: Numbers = NONE,
) -> list[Panel]:
    """Both times of estimates by their labels, in ms, as bars of their terms.

    ``marks``: what was measured, ms, by output and label; ``limits``: seconds, by output.
    """
    panels: list[Panel] = []
    for output in outputs(type(next(iter(estimates.values())))):
        if (stage := PASSES.get(output.name)) is not None:
            phases: dict[str, Phase] = {k: getattr(x, stage) for k, x in estimates.items()}
            bars: dict[str, Numbers] = {
                label: {term(name): 1e3 * float(x) for name, x in phase.terms.items()}
                for label, phase in phases.items()
            }
            ends = overlapping(bars, {k: 1e3 * float(phase.time) for k, phase in phases.items()})
            most = [1e3 * x for name, x in limits.items() if name == output.name]
            lines = {f"limit, {digits(x, 4)} ms": x for x in most}
            measured = marks.get(output.name, NONE)
            panels.append(Panel(output.title, "ms", bars, measured, ends, lines))
    return panels


def overlapping(bars: Mapping[str, Numbers], times: Numbers) -> Numbers:
    """The times of those bars whose parts overlap, so that they add up to more than the time."""
    return {
        label: times[label]
        for label, parts in bars.items()
        if sum(parts.values()) > (1.0 + OVERLAPPING) * times[label]
    }


def plot_bars(
    panels: Sequence[Panel],
    *,
    end: str = OVERLAP,
    free: str = "",
    **words: Unpack[Words],
) -> Figure:
    """A picture of panels one below the other; ``words``: title and caption.

    ``end``: what a line within a bar is; ``free``: a part that is not used, drawn pale. Parts come
    in the given order where there is such a part, the largest first otherwise. A bar is labelled
    with its line, or else with the sum of its parts, and with its diamond.

    Raises:
        InputError: matplotlib is missing.
    """
    small = SLIDE_SMALL if is_slide() and len(panels) > 1 else SMALL
    panels = [_merge_small(_first_bars(_in_seconds(panel)), small) for panel in panels]
    looks = _looks(panels, free)
    with style():
        keys = _keys(panels, looks, end)
        columns = _columns([x.get_label() for x in keys])
        thin = [len(p.bars) >= MANY and not any("\n" in name for name in p.bars) for p in panels]
        heights = [
            (THIN if x else HEIGHT) * len(p.bars) + 0.1 for p, x in zip(panels, thin, strict=True)
        ]
        more = GAP * len(panels) + ROW * math.ceil(len(keys) / columns) + 0.43
        figure, axes = stacked_axes(heights, more, **words)
        for ax, panel in zip(axes, panels, strict=True):
            _draw(ax, panel, looks)
        if keys:
            axes[0].figure.legend(
                handles=keys, loc="outside lower left", ncols=columns, handlelength=1.4
            )
        figure.draw_without_rendering()  # lays out the axes, whose sizes decide which labels fit
        for ax, panel in zip(axes, panels, strict=True):
            if any(len(bar) > 1 for bar in panel.bars.values()):
                _number_parts(ax)
    return figure


def _keys(panels: Sequence[Panel], looks: Mapping[str, Look], end: str) -> list[Any]:
    """The keys of the legend; none where one thing alone is drawn."""
    from matplotlib.lines import Line2D

    visible = max((panel.largest(OTHER) for panel in panels), default=0.0) > VISIBLE
    bars = [bar for panel in panels for bar in panel.bars.values()]
    alone = bars[0] if len(bars) == 1 else {}  # of one bar the legend has the numbers, too
    keys: list[Any] = [
        key(f"{name}, {digits(alone[name])}" if name in alone else name, look)
        for name, look in looks.items()
        if name != OTHER or visible
    ]
    if any(panel.ends for panel in panels):
        look = {"color": INK, "markersize": 13, "markeredgewidth": 2.6, "linestyle": "none"}
        keys.append(Line2D([], [], label=end, marker="|", **look))
    if any(panel.marks for panel in panels):
        keys.append(Line2D([], [], label=MEASURED, **DIAMOND))
    return keys if len(keys) > 1 else []


def _columns(labels: Sequence[str]) -> int:
    """Columns of a legend: as many as fit, each as wide as its longest label."""
    width = SLIDE[0] if is_slide() else WIDE
    for columns in range(len(labels), 1, -1):
        longest = sum(max(map(len, column)) for column in np.array_split(labels, columns))
        if 0.068 * longest + 0.5 * columns <= width:
            return columns
    return 1


def _first_bars(panel: Panel) -> Panel:
    """A panel; on a slide with its first bars alone, as its axis says."""
    bars = [*panel.bars.items()]
    most = SLIDE_LINES // (1 + any("\n" in name for name in panel.bars))
    if not is_slide() or len(bars) <= most:
        return panel
    unit = f"{panel.unit}, the first {most} of {len(bars)}"
    first = dict(bars[:most])
    marks = {name: x for name, x in panel.marks.items() if name in first}
    return panel._replace(unit=unit, bars=first, marks=marks)


def _in_seconds(panel: Panel) -> Panel:
    """A panel of long times in s in place of ms."""
    if panel.unit != "ms" or panel.longest < LONG:
        return panel

    def seconds(numbers: Numbers) -> Numbers:
        return {name: 1e-3 * x for name, x in numbers.items()}

    bars = {label: seconds(bar) for label, bar in panel.bars.items()}
    return Panel(panel.title, "s", bars, *map(seconds, panel[3:]))


def _merge_small(panel: Panel, most: float) -> Panel:
    """A panel whose parts below ``most`` of the longest bar in every bar are one, the last."""
    names = dict.fromkeys(name for bar in panel.bars.values() for name in bar)
    small = {name for name in names if panel.largest(name) <= most}
    bars: dict[str, dict[str, float]] = {}
    for label, bar in panel.bars.items():
        rest = sum(x for name, x in bar.items() if name in small)
        large = {name: x for name, x in bar.items() if name not in small and x > 0.0}
        bars[label] = {**large, OTHER: rest} if rest > 0.0 else large
    return panel._replace(bars=bars)


def _looks(panels: Sequence[Panel], free: str) -> dict[str, Look]:
    """Tone and hatch of each part, its own or one that is left, in the order of drawing."""
    names = dict.fromkeys(n for panel in panels for bar in panel.bars.values() for n in bar)
    shares = {name: max(panel.largest(name) for panel in panels) for name in names}
    others = [(TONES[i], hatch) for hatch in ("", "////", "....") for i in TONE_ORDER]
    looks: dict[str, Look] = {free: FREE, OTHER: REST}
    for name in sorted(shares, key=lambda name: -shares[name]):
        if name not in looks:
            looks[name] = part(name) or (others.pop(0) if len(others) > 1 else others[0])
    order = [name for name in (names if free in names else looks) if name != OTHER]
    return {name: looks[name] for name in (*order, OTHER) if name in names}


def _draw(axes: Axes, panel: Panel, looks: Mapping[str, Look]) -> None:
    """The bars of a panel."""
    reach = [1e-30, *panel.limits.values(), *panel.marks.values(), *panel.ends.values()]
    for y, (label, parts) in enumerate(panel.bars.items()):
        left, end = 0.0, panel.ends.get(label)
        order = [name for name in looks if name in parts]
        if end is not None:  # what others hide comes last, beyond the time
            order.sort(key=lambda name: -parts[name])
        for name in order:
            tone, hatch = looks[name]
            look: Options = {"facecolor": tone, "hatch": hatch, "edgecolor": "white"}
            axes.barh(y, parts[name], left=left, height=0.72, linewidth=0.8, **look)
            left += parts[name]
        if end is not None:
            if end < left:
                sides = (y - 0.36, y + 0.36)
                axes.fill_betweenx(sides, end, left, color="white", alpha=0.6, linewidth=0)
            axes.plot([end, end], [y - 0.44, y + 0.44], color=INK, linewidth=2.6, zorder=4)
        text = digits(left if end is None else end)
        if not panel.marks:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
            at = max(left, end or 0.0), y
            write(axes, text, at, (5, 0), weight="bold", bbox=box, zorder=5)
        else:  # two columns of numbers right of the bars
            look = {"xycoords": ("axes fraction", "data"), "ha": "right"}
            write(axes, text, (1.0, y), (42, 0), weight="bold", **look)
            if (marked := panel.marks.get(label)) is not None:
                axes.plot([marked], [y], zorder=4, **DIAMOND)
                write(axes, f"\N{WHITE DIAMOND} {digits(marked)}", (1.0, y), (92, 0), **look)
        reach.append(left)
    name_rows(axes, [*panel.bars])
    for i, (text, x) in enumerate(panel.limits.items()):
        draw_limit(axes, x, text, right=i > 0)  # two of them side by side
    axes.set_xlim(0.0, (1.05 if panel.marks else 1.15) * max(reach))  # the numbers at the ends
    if any("\n" in label for label in panel.bars):
        axes.tick_params(axis="y", labelsize=8.5)
    axes.set_title(panel.title, pad=16 if panel.limits or (panel.marks and is_slide()) else 6)
    axes.set_xlabel(panel.unit, labelpad=1)
    if panel.marks:
        look = {"xycoords": "axes fraction", "ha": "right", "va": "bottom", "fontsize": 8.5}
        write(axes, "in all", (1.0, 1.0), (42, 3), **look | {"color": QUIET})
        write(axes, MEASURED, (1.0, 1.0), (92, 3), **look | {"color": QUIET})


def _number_parts(axes: Axes) -> None:
    """Write the number of each part into it, where it fits."""
    bars: Any = axes.containers
    for bar in (bar for container in bars for bar in container):
        ends: Any = axes.transData.transform([[0.0, 0.0], [bar.get_width(), 0.0]])
        text, tone = digits(bar.get_width()), bar.get_facecolor()
        # a digit of 8 points is about 5 points wide
        if (ends[1][0] - ends[0][0]) * 72.0 / axes.figure.dpi < 5.2 * len(text) + 6.0:
            continue
        dark = 0.3 * tone[0] + 0.59 * tone[1] + 0.11 * tone[2] < 0.5
        box = {"facecolor": tone, "edgecolor": "none", "pad": 1.6} if bar.get_hatch() else None
        middle = bar.get_x() + bar.get_width() / 2.0, bar.get_y() + bar.get_height() / 2.0
        look: Options = {"color": "white" if dark else INK, "fontsize": 8, "bbox": box}
        axes.text(*middle, text, ha="center", va="center", **look)
