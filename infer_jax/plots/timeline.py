"""Draws passes as timelines: each term begins where the one before it ends, the largest first."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from infer_jax.plots.bars import LONG, OTHER, OVERLAPPING
from infer_jax.plots.style import INK, QUIET, draw_limit, name_bars, stacked, style
from infer_jax.plots.tones import HOST, REST, part
from infer_jax.results.numbers import digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.25  # inches of a term
SMALL = 0.01  # share of the time below which a term joins the small ones
UNSEEN = 1e-4  # the same of the small ones together, below which they are not drawn
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


def plot_timeline(passes: Sequence[StackedTime], *, title: str = "", caption: str = "") -> "Figure":
    """A picture of passes one below the other.

    Terms that overlap all begin at 0, because an estimator does not say which of them wait.

    Raises:
        InputError: matplotlib is missing.
    """
    rows = [_rows(one) for one in passes]
    with style():
        shares = [ROW * (len(terms) + 1) + 0.1 for terms in rows]
        figure, _, every = stacked(shares, 0.75 * len(shares) + 0.3, title, caption)
        for axes, one, terms in zip(every, passes, rows, strict=True):
            _draw(axes, one, terms)
    return figure


def _rows(one: StackedTime) -> dict[str, float]:
    """The terms to draw, the largest first, and the small ones together."""
    seen = {name: x for name, x in one.terms.items() if x > SMALL * one.time}
    rest = sum(one.terms.values()) - sum(seen.values())
    ordered = dict(sorted(seen.items(), key=lambda item: -item[1]))
    return {**ordered, OTHER: rest} if rest > UNSEEN * one.time else ordered


def _draw(axes: "Axes", one: StackedTime, rows: Mapping[str, float]) -> None:
    scale, unit = (1e-3, "s") if one.time >= LONG else (1.0, "ms")
    begins = 0.0
    for y, (name, x) in enumerate(rows.items()):
        tone, hatch = REST if name == OTHER else part(name) or (HOST, "")
        look: dict[str, Any] = {"color": tone, "hatch": hatch, "edgecolor": "white"}
        axes.barh(y, scale * x, left=scale * begins, height=0.72, linewidth=0.8, **look)
        share = f"{100.0 * x / one.time:.0f} %" if x >= SMALL * one.time else "below 1 %"
        _write(axes, scale * (begins + x), y, f"{digits(scale * x)}, {share}", color=QUIET)
        begins += 0.0 if one.overlaps else x
    axes.barh(len(rows), scale * one.time, height=0.72, color=INK, edgecolor="white")
    _write(axes, scale * one.time, len(rows), digits(scale * one.time), color=INK, weight="bold")
    for text, x in one.limits.items():
        draw_limit(axes, scale * x, text)
    longest = max([one.time, *rows.values(), *one.limits.values()])
    axes.set_xlim(0.0, 1.3 * scale * longest)  # room for the numbers at the ends
    axes.set_ylim(len(rows) + 0.5, -0.5)
    name_bars(axes, range(len(rows) + 1), [*rows, "in all"], one.title)
    axes.set_title(one.title, pad=16 if one.limits else 6)
    axes.set_xlabel(unit, labelpad=1)


def _write(axes: "Axes", x: float, y: float, text: str, **look: Any) -> None:
    axes.annotate(text, (x, y), (4, 0), textcoords="offset points", va="center", fontsize=9, **look)
