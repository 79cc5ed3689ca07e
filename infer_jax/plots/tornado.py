"""Draws a tornado: elasticities as bars to both sides, the largest on top."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from infer_jax.plots.style import INK, TONES, WIDE, blank, save, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 0.26  # inches of a bar


class TornadoBar(NamedTuple):
    """One number: the change by 10 % more of it at its slope, and the evaluated change, in %."""

    label: str
    slope: float
    tenth: float
    kinked: bool


def plot_tornado(
    panels: Mapping[str, Sequence[TornadoBar]],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of bars by panel; written to ``path`` if given, in the format of its suffix.

    A bar is the change of the output that 10 % more of the number would make at the point's
    slope; a mark shows what it makes when evaluated; numbers at a kink are hatched.

    Raises:
        InputError: matplotlib is missing, or the path cannot be written.
    """
    with style():
        rows, gaps = sum(len(bars) for bars in panels.values()), 1.1 * len(panels)
        figure, _ = blank(WIDE, 0.5 + gaps + HEIGHT * rows, title, caption)
        shares = [len(bars) + 1.0 for bars in panels.values()]
        # one below the other: three side by side are too small to read in a page
        every = figure.subplots(len(panels), 1, squeeze=False, height_ratios=shares)[:, 0]
        for axes, (name, bars) in zip(every, panels.items(), strict=True):
            at = range(len(bars), 0, -1)
            axes.axvline(0.0, color=INK, linewidth=0.8)
            for y, bar in zip(at, bars, strict=True):
                tone = TONES[2] if bar.slope > 0 else TONES[0]
                look = {"hatch": "////"} if bar.kinked else {}
                axes.barh(y, 10 * bar.slope, height=0.62, color=tone, edgecolor="white", **look)
            axes.plot([b.tenth for b in bars], list(at), "D", color=TONES[3], markersize=4)
            axes.set_yticks(list(at), [b.label for b in bars])
            axes.set_axisbelow(True)
            axes.grid(axis="y", visible=False)
            axes.set_title(name)
        every[-1].set_xlabel("change in %, for 10 % more of the number")
        if path is not None:
            save(figure, path)
    return figure
