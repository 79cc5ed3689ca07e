"""Draws a tornado: what 10 % more of each number changes, the largest change on top."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack

from infer_jax.plots.style import (
    INK,
    SERIES,
    Axes,
    Figure,
    Look,
    Options,
    Words,
    draw_rows,
    key,
    stacked,
    style,
)

HEIGHT = 0.26  # inches of a bar
SAME = 0.03  # of the longest bar: a slope that is nearer to its bar is not drawn
# colour and hatch of what a number is of: told apart in grey, too
KINDS: dict[str, Look] = {
    "hardware": (SERIES[0], ""),
    "model": (SERIES[1], "...."),
    "load and layout": (SERIES[2], "////"),
    "estimator": ("#9a9a9a", ""),
}
SLOPE = "ten times what 1 % more changes"
TICK: Options = {
    "marker": "|",
    "linestyle": "none",
    "markersize": 11,
    "markeredgewidth": 1.8,
    "markeredgecolor": INK,
}


class TornadoBar(NamedTuple):
    """One number: of which of ``KINDS`` it is, and what it changes, in %.

    ``tenth``: by 10 % more of it, evaluated, NaN where a bound is passed; ``slope``: by 1 %.
    """

    label: str
    kind: str
    slope: float
    tenth: float

    @property
    def length(self) -> float:
        """The length of the bar: the change by 10 % more, or of the slope where there is none."""
        return 10.0 * self.slope if math.isnan(self.tenth) else self.tenth


def plot_tornado(panels: Mapping[str, Sequence[TornadoBar]], **words: Unpack[Words]) -> Figure:
    """A picture of bars by panel; ``words``: title and caption.

    A bar is the change of the output by 10 % more of the number, evaluated; an upright line is
    what the slope at the point says of it, where that differs; longest bars come first.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        from matplotlib.lines import Line2D

        # one below the other: three side by side are too small to read in a page
        heights = [HEIGHT * (len(bars) + 1.0) for bars in panels.values()]
        figure, axes = stacked(heights, 0.8 + (1.1 - HEIGHT) * len(panels), **words)
        sloped = [_draw(ax, *panel) for ax, panel in zip(axes, panels.items(), strict=True)]
        axes[-1].set_xlabel("change in %, by 10 % more of the number")
        kinds = {bar.kind for bars in panels.values() for bar in bars}
        keys: list[Any] = [key(kind, look) for kind, look in KINDS.items() if kind in kinds]
        if any(sloped):
            keys.append(Line2D([], [], label=SLOPE, **TICK))
        look: Options = {"ncols": len(keys), "columnspacing": 1.2, "handlelength": 1.4}
        axes[0].figure.legend(handles=keys, loc="outside lower left", **look)
    return figure


def _draw(axes: Axes, name: str, bars: Sequence[TornadoBar]) -> bool:
    """The bars of a panel; whether a slope that differs is among them."""
    bars = sorted(bars, key=lambda bar: -abs(bar.length))
    lengths = [bar.length for bar in bars]
    axes.axvline(0.0, color=INK, linewidth=0.8)
    draw_rows(axes, [bar.label for bar in bars], lengths, [KINDS[bar.kind] for bar in bars])
    slopes = [(10.0 * bar.slope, y) for y, bar in enumerate(bars)]
    off = [(x, y) for x, y in slopes if abs(x - lengths[y]) > SAME * abs(lengths[0])]
    axes.plot([x for x, _ in off], [y for _, y in off], zorder=4, **TICK)
    axes.set_title(name)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:+g}" if x else "0")
    return bool(off)
