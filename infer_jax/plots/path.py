"""Draws a co-design search: what changed, what it brings, and the objective by step."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Unpack

import numpy as np

from infer_jax.plots.style import (
    INK,
    QUIET,
    SERIES,
    TONES,
    Axes,
    Figure,
    Look,
    Options,
    Words,
    draw_rows,
    is_slide,
    key,
    readable,
    stacked_axes,
    style,
    write,
)
from infer_jax.results.numbers import digits

FAINT = 60  # restarts drawn at most besides the winner
ROW = 0.27  # inches of a bar
BILLION = 1e9  # from which on a number is written as so many billions
# colour and hatch of what is better and what is worse: told apart in grey, too
COLOURS: dict[str, Look] = {
    "better": (SERIES[2], ""),
    "worse": (SERIES[1], "////"),
    "neither": ("#9a9a9a", ""),
}


class Change(NamedTuple):
    """A number of the start and of the design, and the unit in which both are given.

    ``sense``: 1 where more is better, -1 where less is, 0 where neither; ``bound``: the bound of
    the search that the design lies on, in words, or "".
    """

    name: str
    start: float
    design: float
    unit: str = ""
    sense: int = 0
    bound: str = ""

    @property
    def kind(self) -> str:
        """Whether the design is better in it, in a word of ``COLOURS``."""
        moved = self.sense * (self.design - self.start)
        return "neither" if not moved else "better" if moved > 0 else "worse"


class SearchTrack(NamedTuple):
    """The objective of every restart by step, and of the best one whether limits hold.

    ``restarts``: steps x restarts; ``best``: the objective of the best restart; ``start``: that of
    the start under the exact model, where it keeps the limits; ``design``: that of the rounded
    design; ``objective``: what it is, with its unit.
    """

    restarts: np.ndarray
    best: np.ndarray
    holds: np.ndarray
    start: float | None
    design: float
    objective: str


def plot_path(
    search: SearchTrack, changes: Mapping[str, Sequence[Change]], **words: Unpack[Words]
) -> Figure:
    """A picture of the start and the design in bars, a panel for each group, and of the search.

    ``words``: title and caption. Steps at which a limit is broken are drawn thin; the ring is the
    rounded design under the exact model.

    Raises:
        InputError: matplotlib is missing.
    """
    if is_slide():  # one panel, without the search
        changes = {"": [x for group in changes.values() for x in group]}
    heights = [*(ROW * len(group) + 0.75 for group in changes.values()), *[3.1] * (not is_slide())]
    with style():
        figure, axes = stacked_axes(heights, 0.3, **words)
        for ax, (name, group) in zip(axes, changes.items(), strict=False):
            ax.set_title(name)
            _draw_changes(ax, [x for x in group if x.start > 0 and x.design > 0])
        if not is_slide():
            _draw_search(axes[-1], search)
    return figure


def _draw_changes(axes: Axes, rows: Sequence[Change]) -> None:
    """Bars of design over start on a logarithmic scale, with both numbers beside them."""
    ratios = [row.design / row.start for row in rows]
    looks = [COLOURS[row.kind] for row in rows]
    draw_rows(axes, [row.name for row in rows], [x - 1.0 for x in ratios], looks, left=1.0)
    for y, row in enumerate(rows):
        ends = (digits(x) if x < BILLION else f"{digits(x / BILLION)}e9" for x in row[1:3])
        text = " \N{RIGHTWARDS ARROW} ".join(ends) + f" {row.unit}".rstrip()
        text += f", {row.bound}" if row.bound else ""
        look: Options = {"weight": "bold" if row.bound else "normal"}
        write(axes, text, (1.02, y), xycoords=axes.get_yaxis_transform(), **look)
    axes.axvline(1.0, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(min([0.5, *ratios]) / 1.1, max([2.0, *ratios]) * 1.1)
    axes.set_xlabel("design over start", fontsize=9, labelpad=1)
    readable(axes, 200.0)
    kinds = [kind for kind in COLOURS if kind in {row.kind for row in rows}]
    if kinds != ["neither"]:
        keys = [key(kind, COLOURS[kind]) for kind in kinds]
        place = {"loc": "lower right", "bbox_to_anchor": (1.05, 1.0), "borderaxespad": 0.0}
        axes.legend(handles=keys, ncols=len(keys), handlelength=1.4, columnspacing=1.0, **place)


def _draw_search(axes: Axes, search: SearchTrack) -> None:
    """Every restart's objective by step, the winner's thick where the limits hold."""
    steps, best, start = np.arange(len(search.best)), search.best, search.start
    others = axes.plot(steps, search.restarts[:, :FAINT], color="#c9c9c9", linewidth=0.6)
    others[0].set_label("other restarts")
    axes.plot(steps, best, color=TONES[0], linewidth=0.9, label="best, a limit broken")
    within = np.where(search.holds, best, np.nan)
    axes.plot(steps, within, color=TONES[0], linewidth=2.6, label="best, limits kept")
    ring = {"markersize": 13, "markerfacecolor": "none", "markeredgewidth": 1.6, "color": INK}
    axes.plot([steps[-1]], [search.design], "o", label="the design", zorder=4, **ring)
    values = [search.design, *best]
    if start is not None:
        values.append(start)
        axes.axhline(start, color=QUIET, linestyle=(0, (4, 2)), linewidth=1.2)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        write(axes, "start", (steps[0], start), (0, 4), va="bottom", bbox=box)
    axes.set_yscale("log")
    axes.set_ylim(0.8 * min(values), 1.3 * max(values))
    readable(axes, 200.0)
    axes.set(xlabel="step", ylabel=search.objective)
    axes.set_title("the search")
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22), "handlelength": 2.5}
    axes.legend(ncols=4, columnspacing=1.4, **place)
