"""Draws a co-design search: what changed, what it brings, and the objective by step."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from infer_jax.plots.style import (
    DASHES,
    INK,
    QUIET,
    TONES,
    line,
    readable,
    stacked,
    style,
)
from infer_jax.plots.tones import SERIES
from infer_jax.results.numbers import digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAINT = 60  # restarts drawn at most beside the winner
ROW = 0.27  # inches of a bar
# colour and hatch of what is better and what is worse: told apart in grey, too
COLOURS = {"better": (SERIES[2], ""), "worse": (SERIES[1], "////"), "neither": ("#9a9a9a", "")}


class Track(NamedTuple):
    """By step and restart: the objective and whether limits hold; of the winner, each number."""

    objective: np.ndarray
    kept: np.ndarray
    winner: int
    values: np.ndarray  # steps x numbers
    names: Sequence[str]
    start: float | None  # exact objective of the start, where it keeps the limits
    final: float  # exact objective of the rounded design
    label: str


class Change(NamedTuple):
    """A number of the start and of the design, and the unit in which both are given.

    ``sense``: 1 where more is better, -1 where less is, 0 where neither; ``bound``: the bound of
    the search that the design lies on, in words, or "".
    """

    label: str
    start: float
    design: float
    unit: str = ""
    sense: int = 0
    bound: str = ""

    @property
    def better(self) -> str:
        """Whether the design is better in it, in a word of ``COLOURS``."""
        moved = self.sense * (self.design - self.start)
        return "neither" if not moved else "better" if moved > 0 else "worse"


def plot_path(
    track: Track,
    *,
    changes: Mapping[str, Sequence[Change]] | None = None,
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of the start and the design in bars, a panel for each group, and of the search.

    Without ``changes`` the winner's numbers by step are drawn in their place. Steps at which a
    limit is broken are drawn thin; the ring is the rounded design under the exact model.

    Raises:
        InputError: matplotlib is missing.
    """
    groups = changes or {}
    with style():
        rows = [ROW * len(group) + 0.75 for group in groups.values()]
        shares = [*rows, 3.1] if groups else [3.2, 3.7]
        figure, _, every = stacked(shares, 0.3, title, caption)
        for axes, (name, group) in zip(every, groups.items(), strict=False):
            _draw_changes(axes, name, group)
        if not groups:
            _draw_numbers(every[0], track)
        _draw_objectives(every[-1], track)
    return figure


def _draw_changes(axes: "Axes", name: str, group: Sequence[Change]) -> None:
    """Bars of design over start, with both numbers beside them, and the bounds below those."""
    from matplotlib.patches import Patch

    rows = [one for one in group if one.start > 0 and one.design > 0]
    ratios = [one.design / one.start for one in rows]
    low, high = min([0.5, *ratios]), max([2.0, *ratios])
    for y, (one, ratio) in enumerate(zip(reversed(rows), reversed(ratios), strict=True)):
        tone, hatch = COLOURS[one.better]
        look: dict[str, Any] = {"color": tone, "hatch": hatch, "edgecolor": "white"}
        axes.barh(y, ratio - 1.0, left=1.0, height=0.62, **look)
        text = f"{digits(one.start)} \N{RIGHTWARDS ARROW} {digits(one.design)} {one.unit}".rstrip()
        text += f", {one.bound}" if one.bound else ""
        place = axes.get_yaxis_transform()  # a column of numbers beside the bars
        bold = "bold" if one.bound else "normal"
        axes.text(1.02, y, text, transform=place, va="center", fontsize=9, color=INK, weight=bold)
    axes.axvline(1.0, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(low / 1.1, high * 1.1)
    axes.set_yticks(range(len(rows)), [one.label for one in reversed(rows)])
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    axes.set_title(name)
    axes.set_xlabel("design over start", fontsize=9, labelpad=1)
    readable(axes, 200.0)
    used = [kind for kind in COLOURS if any(one.better == kind for one in rows)]
    if used != ["neither"]:
        keys = [Patch(label=k, facecolor=COLOURS[k][0], hatch=COLOURS[k][1], edgecolor="white")
                for k in used]  # fmt: skip
        place = {"loc": "lower right", "bbox_to_anchor": (1.05, 1.0), "borderaxespad": 0.0}
        axes.legend(handles=keys, ncols=len(keys), handlelength=1.4, columnspacing=1.0, **place)


def _draw_objectives(axes: "Axes", track: Track) -> None:
    """Every restart's objective by step, the winner's thick where the limits hold."""
    steps = np.arange(len(track.objective))
    for i in range(min(track.objective.shape[1], FAINT)):
        axes.plot(steps, track.objective[:, i], color="#c9c9c9", linewidth=0.6)
    best = track.objective[:, track.winner]
    axes.plot(steps, best, color=TONES[0], linewidth=0.9, label="best, a limit broken")
    within = np.where(track.kept[:, track.winner], best, np.nan)
    axes.plot(steps, within, color=TONES[0], linewidth=2.6, label="best, limits kept")
    if track.start is not None:
        axes.axhline(track.start, color=QUIET, linestyle=(0, (4, 2)), linewidth=1.2)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        place, look = (steps[0], track.start), {"color": INK, "fontsize": 9, "bbox": box}
        axes.annotate("start", place, (0, 4), textcoords="offset points", va="bottom", **look)
    ring = {"markersize": 13, "markerfacecolor": "none", "markeredgewidth": 1.6, "color": INK}
    axes.plot([steps[-1]], [track.final], "o", label="the design", zorder=4, **ring)
    if groups := axes.get_lines()[:-1]:
        groups[0].set_label("other restarts")
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel(track.label, color=INK)
    values = [x for x in (track.start, track.final, *best) if x is not None]
    axes.set_ylim(0.8 * min(values), 1.3 * max(values))
    readable(axes, 200.0)
    axes.set_title("the search")
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22), "handlelength": 2.5}
    axes.legend(ncols=4, columnspacing=1.4, **place)


def _draw_numbers(axes: "Axes", track: Track) -> None:
    """The winner's numbers by step, relative to where it began."""
    steps = np.arange(len(track.objective))
    for i, name in enumerate(track.names):
        look: dict[str, Any] = line(i) | {"linestyle": DASHES[(i + i // len(TONES)) % len(DASHES)]}
        look.pop("marker")
        moved = track.values[:, i] / track.values[0, i]
        axes.plot(steps, moved, **look, label=name)
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("of where the best restart began")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, handlelength=3.0)
