"""Draws passes as timelines: each term begins where the one before it ends, the largest first."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Unpack

from infer_jax.plots.bars import LONG, OTHER, OVERLAP, OVERLAPPING, Panel, plot_bars
from infer_jax.plots.style import (
    HOST,
    INK,
    QUIET,
    REST,
    Axes,
    Figure,
    Words,
    draw_limit,
    draw_rows,
    is_slide,
    part,
    stacked_axes,
    style,
)
from infer_jax.results.numbers import digits

ROW = 0.25  # inches of a term
SMALL = 0.01  # share of the time below which a term joins the small ones
INVISIBLE = 1e-4  # the same of the small ones together, below which they are not drawn
TOTAL = "in all"
NONE: Mapping[str, float] = MappingProxyType({})


class StackedTime(NamedTuple):
    """A time in ms, the terms that it is made of, and limits on it by their words."""

    title: str
    time: float
    terms: Mapping[str, float]
    limits: Mapping[str, float] = NONE

    @property
    def overlaps(self) -> bool:
        """Whether terms overlap, so that they add up to more than the time."""
        return sum(self.terms.values()) > (1.0 + OVERLAPPING) * self.time

    def rows(self) -> dict[str, float]:
        """The terms to draw, the largest first, the small ones together, and the time."""
        large = {name: x for name, x in self.terms.items() if x > SMALL * self.time}
        rest = sum(self.terms.values()) - sum(large.values())
        ordered = dict(sorted(large.items(), key=lambda item: -item[1]))
        small = {OTHER: rest} if rest > INVISIBLE * self.time else {}
        return {**ordered, **small, TOTAL: self.time}


def plot_timeline(passes: Sequence[StackedTime], **words: Unpack[Words]) -> Figure:
    """A picture of passes one below the other; ``words``: title and caption.

    Terms that overlap all begin at 0, because an estimator does not say which of them wait. On a
    slide each pass is one bar of its terms.

    Raises:
        InputError: matplotlib is missing.
    """
    if is_slide():
        ends = [{"": one.time} if one.overlaps else NONE for one in passes]
        bars = [
            Panel(one.title, "ms", {"": one.terms}, ends=end, limits=one.limits)
            for one, end in zip(passes, ends, strict=True)
        ]
        return plot_bars(bars, end=OVERLAP, **words)
    heights = [ROW * len(one.rows()) + 0.1 for one in passes]
    with style():
        figure, axes = stacked_axes(heights, 0.75 * len(heights) + 0.3, **words)
        for ax, one in zip(axes, passes, strict=True):
            _draw(ax, one)
    return figure


def _draw(axes: Axes, one: StackedTime) -> None:
    scale, unit = (1e-3, "s") if one.time >= LONG else (1.0, "ms")
    rows, starts, texts = one.rows(), [0.0], list[str]()
    for name, x in rows.items():
        share = f"{100.0 * x / one.time:.0f} %" if x >= SMALL * one.time else "below 1 %"
        texts.append(digits(scale * x) + ("" if name == TOTAL else f", {share}"))
        starts.append(0.0 if one.overlaps else starts[-1] + scale * x)
    looks = [(name, part(name) or (HOST, "")) for name in rows]
    own = {OTHER: REST, TOTAL: (INK, "")}
    bars = draw_rows(
        axes,
        [*rows],
        [scale * x for x in rows.values()],
        [own.get(name, look) for name, look in looks],
        left=[*starts[: len(rows) - 1], 0.0],
    )
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    labels = axes.bar_label(bars, texts, padding=5, fontsize=9, color=QUIET, bbox=box, zorder=5)
    labels[-1].set(color=INK, weight="bold")
    for text, x in one.limits.items():
        draw_limit(axes, scale * x, text)
    longest = max([*rows.values(), *one.limits.values()])
    axes.set_xlim(0.0, 1.3 * scale * longest)  # the numbers at the ends
    axes.set_title(one.title, pad=16 if one.limits else 6)
    axes.set_xlabel(unit, labelpad=1)
