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
    style,
    subplots,
)

ROWS = 10  # numbers drawn, so that the picture fits on a slide
HEIGHT = 0.24  # inches of a row
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


def plot_tornado(outputs: Mapping[str, Sequence[TornadoBar]], **words: Unpack[Words]) -> Figure:
    """A picture of what each number changes, a row, of each output, a column, on one scale.

    A bar is the change of the output by 10 % more of the number, evaluated; an upright line is
    what the slope at the point says of it, where that differs. The ``ROWS`` numbers that change an
    output most are drawn; the axis says what the others change. ``words``: title and caption.

    Raises:
        InputError: matplotlib is missing.
    """
    longest = dict[str, float]()
    for bar in (bar for bars in outputs.values() for bar in bars):
        longest[bar.label] = max(longest.get(bar.label, 0.0), abs(bar.length))
    order = sorted(longest, key=lambda label: -longest[label])
    rows, rest = order[:ROWS], order[ROWS:]
    with style():
        from matplotlib.lines import Line2D

        look: Options = {"height": HEIGHT * len(rows) + 1.3, "sharex": True, "sharey": True}
        figure, axes = subplots(1, len(outputs), **look, **words)
        drawn = [{bar.label: bar for bar in bars} for bars in outputs.values()]
        sloped = [_draw(ax, rows, bars) for ax, bars in zip(axes, drawn, strict=True)]
        for ax, name in zip(axes, outputs, strict=True):
            ax.set_title(name)
        more = f"; {len(rest)} more change at most {longest[rest[0]]:.1f} %" if rest else ""
        title = f"change in %, by 10 % more of the number{more}"
        kinds = {bar.kind for bars in drawn for x, bar in bars.items() if x in rows}
        keys: list[Any] = [key(kind, look) for kind, look in KINDS.items() if kind in kinds]
        if any(sloped):
            keys.append(Line2D([], [], label=SLOPE, **TICK))
        look = {"ncols": len(keys), "columnspacing": 1.2, "handlelength": 1.4, "alignment": "left"}
        axes[0].figure.legend(handles=keys, title=title, loc="outside lower left", **look)
    return figure


def _draw(axes: Axes, rows: Sequence[str], bars: Mapping[str, TornadoBar]) -> bool:
    """The bars of an output in these rows; whether a slope that differs is among them."""
    drawn = [(y, bars[label]) for y, label in enumerate(rows) if label in bars]
    lengths = dict.fromkeys(rows, 0.0) | {bar.label: bar.length for _, bar in drawn}
    looks = [KINDS[bars[label].kind] if label in bars else KINDS["model"] for label in rows]
    axes.axvline(0.0, color=INK, linewidth=0.8)
    draw_rows(axes, rows, [*lengths.values()], looks)
    least = SAME * max(map(abs, lengths.values()))
    off = [(10.0 * bar.slope, y) for y, bar in drawn if abs(10.0 * bar.slope - bar.length) > least]
    axes.plot([x for x, _ in off], [y for _, y in off], zorder=4, **TICK)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:+g}" if x else "0")
    return bool(off)
