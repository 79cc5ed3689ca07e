"""Draws horizontal bars in parts: times by term, a chip's memory, kernels, layouts.

A panel has one scale. Parts have the same tone in every panel and bar, small ones are drawn as one,
and every bar ends in its number.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from infer_jax.estimators import Phase
from infer_jax.plots.style import (
    DIAMOND,
    INK,
    QUIET,
    TONE_ORDER,
    TONES,
    WIDE,
    draw_limit,
    legend_below,
    name_bars,
    stacked,
    style,
)
from infer_jax.plots.tones import REST, part
from infer_jax.results.numbers import digits
from infer_jax.results.terms import term

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = Mapping[str, float]
HEIGHT, GAP, ROW = 0.36, 0.72, 0.21  # inches: bar, between panels, legend
MANY, THIN = 6, 0.25  # from this many bars of a panel on they are this thin, in inches
LONG = 10e3  # ms from which times are drawn in s
SMALL = 0.012  # share of a panel's longest bar below which a part joins the small ones
VISIBLE = 0.002  # the same share of the small parts together, below which the legend omits them
OTHER = "all else"
OVERLAP = "the time; pale: hidden behind others"
OVERLAPPING = 1e-3  # terms overlap where their sum exceeds the time by this share
NONE: Numbers = MappingProxyType({})


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


def milliseconds(passes: Mapping[str, Phase]) -> tuple[dict[str, Numbers], Numbers]:
    """Bars of passes by their labels: terms in ms, and the time of those whose terms overlap."""
    bars: dict[str, Numbers] = {
        label: {term(name): 1e3 * float(x) for name, x in phase.terms.items()}
        for label, phase in passes.items()
    }
    return bars, overlapping(bars, {k: 1e3 * float(phase.time) for k, phase in passes.items()})


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
    mark: str = "",
    end: str = "",
    free: str = "",
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of panels one below the other.

    ``mark``: what a diamond is, in words; ``end``: what a line within a bar is; ``free``: a part
    that is room, drawn pale. Parts come in the given order where there is such a part, the largest
    first otherwise. A bar is labelled with its line, or else with the sum of its parts, and with
    its diamond.

    Raises:
        InputError: matplotlib is missing.
    """
    panels = [_merge_small(_in_seconds(panel)) for panel in panels]
    looks = _looks(panels, free)
    with style():
        keys = _keys(panels, looks, mark, end)
        longest = max((len(key.get_label()) for key in keys), default=1)
        columns = max(1, min(int(WIDE / (0.075 * longest + 0.62)), len(keys)))
        shares = [_height(panel.bars) for panel in panels]
        below = ROW * math.ceil(len(keys) / columns) + 0.08
        more = GAP * len(panels) + 0.35
        figure, low, every = stacked(shares, more, title, caption, below=below)
        for axes, panel in zip(every, panels, strict=True):
            _draw(axes, panel, looks, mark)
        if keys:
            legend_below(figure, low, keys, ncols=columns, borderpad=0.0)
        figure.draw_without_rendering()  # lays out the axes, whose sizes decide which labels fit
        for axes, panel in zip(every, panels, strict=True):
            if any(len(bar) > 1 for bar in panel.bars.values()):
                _number_parts(axes)
    return figure


def _keys(
    panels: Sequence[Panel], looks: Mapping[str, dict[str, Any]], mark: str, end: str
) -> list[Any]:
    """The keys of the legend; none where one thing alone is drawn."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    keys: list[Any] = [
        Patch(label=name, edgecolor="white", **look)
        for name, look in looks.items()
        if name != OTHER
        or any(
            bar.get(OTHER, 0.0) > VISIBLE * panel.longest
            for panel in panels
            for bar in panel.bars.values()
        )
    ]
    if end and any(panel.ends for panel in panels):
        look = {"color": INK, "markersize": 13, "markeredgewidth": 2.6, "linestyle": "none"}
        keys.append(Line2D([], [], label=end, marker="|", **look))
    if mark and any(panel.marks for panel in panels):
        keys.append(Line2D([], [], label=mark, **DIAMOND))
    return keys if len(keys) > 1 else []


def _height(bars: Mapping[str, Numbers]) -> float:
    """Height of the axes of these bars, inches; labels of two lines have room."""
    thin = len(bars) >= MANY and not any("\n" in label for label in bars)
    return (THIN if thin else HEIGHT) * len(bars) + 0.1


def _in_seconds(panel: Panel) -> Panel:
    """A panel of long times in s in place of ms."""
    if panel.unit != "ms" or panel.longest < LONG:
        return panel

    def seconds(numbers: Numbers) -> Numbers:
        return {name: 1e-3 * x for name, x in numbers.items()}

    bars = {label: seconds(bar) for label, bar in panel.bars.items()}
    others = (panel.marks, panel.ends, panel.limits)
    return Panel(panel.title, "s", bars, *(seconds(numbers) for numbers in others))


def _merge_small(panel: Panel) -> Panel:
    """A panel with parts that are small in every bar as one, the last."""
    names = dict.fromkeys(name for bar in panel.bars.values() for name in bar)
    small = {
        name
        for name in names
        if max(bar.get(name, 0.0) for bar in panel.bars.values()) <= SMALL * panel.longest
    }
    bars: dict[str, dict[str, float]] = {}
    for label, bar in panel.bars.items():
        rest = sum(x for name, x in bar.items() if name in small)
        large = {name: x for name, x in bar.items() if name not in small and x > 0.0}
        bars[label] = {**large, OTHER: rest} if rest > 0.0 else large
    return panel._replace(bars=bars)


def _looks(panels: Sequence[Panel], free: str) -> dict[str, dict[str, Any]]:
    """Tone and hatch of each part, its own or one that is left; the small ones are grey."""
    shares: dict[str, float] = {}
    for panel in panels:
        longest = panel.longest or 1.0
        for bar in panel.bars.values():
            for name, x in bar.items():
                shares[name] = max(shares.get(name, 0.0), x / longest)
    last = shares.pop(OTHER, None)
    names = sorted((name for name in shares if name != free), key=lambda name: -shares[name])
    looks: dict[str, dict[str, Any]] = {}
    others = 0
    for name in names:
        own = part(name)
        if own is None:
            turn, tone = divmod(others, len(TONES))
            own = TONES[TONE_ORDER[tone]], ("", "////", "....")[min(turn, 2)]
            others += 1
        looks[name] = dict(zip(("facecolor", "hatch"), own, strict=True))
    if free in shares:
        looks[free] = {"facecolor": "#e9e9e9", "hatch": ""}
    if last is not None:
        looks[OTHER] = dict(zip(("facecolor", "hatch"), REST, strict=True))
    return {name: looks[name] for name in (*shares, OTHER) if name in looks} if free else looks


def _draw(axes: "Axes", panel: Panel, looks: Mapping[str, dict[str, Any]], mark: str) -> None:
    """The bars of a panel; ``mark``: what its diamonds are, in words."""
    at = range(len(panel.bars), 0, -1)
    lasts: list[float] = []
    for y, (label, parts) in zip(at, panel.bars.items(), strict=True):
        left, marked, ends = 0.0, panel.marks.get(label), panel.ends.get(label)
        order = sorted(parts.items(), key=lambda part: [*looks].index(part[0]))
        if ends is not None:  # what others hide comes last, beyond the time
            order.sort(key=lambda part: -part[1])
        for name, x in order:
            axes.barh(y, x, left=left, height=0.72, edgecolor="white", linewidth=0.8, **looks[name])
            left += x
        if ends is not None:
            side = y - 0.36, y + 0.36
            if ends < left:
                axes.fill_betweenx(side, ends, left, color="white", alpha=0.6, linewidth=0)
            axes.plot([ends, ends], [y - 0.44, y + 0.44], color=INK, linewidth=2.6, zorder=4)
        text, last = digits(left if ends is None else ends), max(left, ends or 0.0)
        if marked is not None:
            axes.plot([marked], [y], zorder=4, **DIAMOND)
        if panel.marks:  # two columns of numbers beside the bars
            _column(axes, text, "" if marked is None else digits(marked), y)
        else:
            _number(axes, text, last, y)
        lasts.append(max(last, marked or 0.0))
    for i, (text, x) in enumerate(panel.limits.items()):
        draw_limit(axes, x, text, right=i > 0)  # two of them side by side
    margin = 1.05 if panel.marks else 1.15  # for the numbers at the ends
    axes.set_xlim(0.0, margin * max([*lasts, *panel.limits.values(), 1e-30]))
    axes.set_ylim(0.5, len(panel.bars) + 0.5)
    named = [*panel.bars] != [""]
    name_bars(axes, list(at) if named else [], [*panel.bars] if named else [], panel.title)
    if any("\n" in label for label in panel.bars):
        axes.tick_params(axis="y", labelsize=8.5)
    axes.set_title(panel.title, pad=16 if panel.limits else 6)
    if panel.marks:
        look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8.5, "color": QUIET}
        look |= {"xycoords": "axes fraction", "ha": "right", "va": "bottom"}
        axes.annotate("in all", (1.0, 1.0), (42, 3), **look)
        axes.annotate(mark, (1.0, 1.0), (92, 3), **look)
    axes.set_xlabel(panel.unit, labelpad=1)


def _number(axes: "Axes", text: str, x: float, y: float) -> None:
    """A number right of the end of a bar."""
    look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 9}
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    axes.annotate(text, (x, y), (5, 0), weight="bold", color=INK, bbox=box, zorder=5, **look)


def _column(axes: "Axes", bar: str, mark: str, y: float) -> None:
    """The numbers of a bar and of its mark, in two columns right of the axes."""
    look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9, "color": INK}
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "ha": "right"}
    axes.annotate(bar, (1.0, y), (42, 0), weight="bold", **place, **look)
    if mark:
        axes.annotate(f"\N{WHITE DIAMOND} {mark}", (1.0, y), (92, 0), **place, **look)


def _number_parts(axes: "Axes") -> None:
    """Write the number of each part into it, where there is room."""
    bars: Any = list(axes.patches)
    for bar in bars:
        ends: Any = axes.transData.transform([[0.0, 0.0], [bar.get_width(), 0.0]])
        text, tone = digits(bar.get_width()), bar.get_facecolor()
        # a digit of 8 points is about 5 points wide
        if (ends[1][0] - ends[0][0]) * 72.0 / axes.figure.dpi < 5.2 * len(text) + 6.0:
            continue
        dark = 0.3 * tone[0] + 0.59 * tone[1] + 0.11 * tone[2] < 0.5
        box = {"facecolor": tone, "edgecolor": "none", "pad": 1.6} if bar.get_hatch() else None
        where = bar.get_x() + bar.get_width() / 2.0, bar.get_y() + bar.get_height() / 2.0
        axes.text(
            *where, text, ha="center", va="center", fontsize=8, bbox=box,
            color="white" if dark else INK,
        )  # fmt: skip
