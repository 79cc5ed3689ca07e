"""Draws a tornado: what 10 % more of each number changes, the largest change on top."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from infer_jax.plots.style import INK, legend_below, name_bars, stacked, style
from infer_jax.plots.tones import SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 0.26  # inches of a bar
SAME = 0.03  # of the longest bar: a slope that is nearer to its bar is not drawn
# colour and hatch of what a number is of: told apart in grey, too
KINDS = {
    "hardware": (SERIES[0], ""),
    "model": (SERIES[1], "...."),
    "load and layout": (SERIES[2], "////"),
    "estimator": ("#9a9a9a", ""),
}
SLOPE = "ten times what 1 % more changes"


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


def plot_tornado(
    panels: Mapping[str, Sequence[TornadoBar]], *, title: str = "", caption: str = ""
) -> "Figure":
    """A picture of bars by panel.

    A bar is the change of the output by 10 % more of the number, evaluated; an upright line is
    what the slope at the point says of it, where that differs; longest bars come first.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        # one below the other: three side by side are too small to read in a page
        shares = [HEIGHT * (len(bars) + 1.0) for bars in panels.values()]
        more = 0.5 + (1.1 - HEIGHT) * len(panels)
        figure, low, every = stacked(shares, more, title, caption, below=0.3)
        sloped = [
            _draw(axes, name, bars)
            for axes, (name, bars) in zip(every, panels.items(), strict=True)
        ]
        every[-1].set_xlabel("change in %, by 10 % more of the number")
        kinds = [k for k in KINDS if any(b.kind == k for bars in panels.values() for b in bars)]
        keys: list[Any] = [Patch(label=kind, **_look(kind)) for kind in kinds]
        if any(sloped):
            keys.append(Line2D([], [], label=SLOPE, **_tick()))
        legend_below(figure, low, keys, ncols=len(keys), columnspacing=1.2, borderpad=0.2)
    return figure


def _draw(axes: "Axes", name: str, bars: Sequence[TornadoBar]) -> bool:
    """The bars of a panel; whether a slope that differs is among them."""
    ordered = sorted(bars, key=lambda bar: -abs(bar.length))
    at = range(len(ordered), 0, -1)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    for y, bar in zip(at, ordered, strict=True):
        axes.barh(y, bar.length, height=0.62, **_look(bar.kind))
    near = SAME * max((abs(bar.length) for bar in bars), default=0.0)
    off = [
        (10.0 * bar.slope, y)
        for y, bar in zip(at, ordered, strict=True)
        if abs(10.0 * bar.slope - bar.length) > near
    ]
    axes.plot([x for x, _ in off], [y for _, y in off], zorder=4, **_tick())
    name_bars(axes, list(at), [bar.label for bar in ordered], name)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:+g}" if x else "0")
    return bool(off)


def _look(kind: str) -> dict[str, Any]:
    tone, hatch = KINDS[kind]
    return {"facecolor": tone, "hatch": hatch, "edgecolor": "white", "linewidth": 0.6}


def _tick() -> dict[str, Any]:
    look = {"markersize": 11, "markeredgewidth": 1.8, "markeredgecolor": INK}
    return {"marker": "|", "linestyle": "none", **look}
