"""Draws frontiers: tokens per second of a request against its price."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from infer_jax.estimators import Estimate
from infer_jax.plots.style import INK, beside, line, panels, readable, save, style
from infer_jax.specs import output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPEED, COST = (output(Estimate, name).doc for name in ("speed", "cost"))
ROOM = 2000.0  # times the dearest curve's least cost: beyond it curves only rise


class DrawnFront(Protocol):
    """The columns to draw: a ``Grid`` of chosen rows, or anything with these two."""

    @property
    def speed(self) -> np.ndarray:
        """Tokens per second of one request."""
        ...

    @property
    def cost(self) -> np.ndarray:
        """USD per million tokens."""
        ...


class Points(NamedTuple):
    """The points of a curve: tokens per second of one request, USD per million output tokens."""

    speed: np.ndarray
    cost: np.ndarray


class Curve(NamedTuple):
    """A frontier, the row of it to mark as the preferred point (None: no mark), and what it is."""

    front: DrawnFront
    marked: int | None = None
    said: str = ""


def draw_frontiers(axes: "Axes", curves: Mapping[str, Curve], *, title: str = "") -> None:
    """Draw frontiers into axes: speed (tokens/s, linear) against cost (USD, logarithmic).

    Every curve has a tone, a dash and a marker of its own, so that grey suffices.
    """
    for i, (label, (front, marked, said)) in enumerate(curves.items()):
        order = np.argsort(front.speed)
        speed, cost = np.asarray(front.speed)[order], np.asarray(front.cost)[order]
        look: dict[str, Any] = line(i)
        marker = look.pop("marker")
        if marked is not None:
            axes.plot(
                front.speed[marked],
                front.cost[marked],
                marker=marker,
                color=look["color"],
                markeredgecolor="white",
                markersize=9,
                zorder=3,
            )
            beside(axes, (front.speed[marked], front.cost[marked]), said)
        shape = {} if marked is None else {"marker": marker}
        axes.plot(speed, cost, **look)
        axes.plot([], [], **look, **shape, label=label)
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel(SPEED)
    axes.yaxis.set_major_formatter(_dollars)
    axes.yaxis.set_minor_formatter("")
    if title:
        axes.set_title(title, color=INK)
    axes.legend(loc="best")


def plot_frontier(
    curves: Mapping[str, Curve] | Mapping[str, Mapping[str, Curve]],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of frontiers, one panel or several; written to ``path`` if given.

    ``curves`` maps labels to curves, or panel titles to such mappings. With a path the format
    is that of its suffix (png, svg, pdf).

    Raises:
        InputError: matplotlib is missing, or the path cannot be written.
    """
    first = next(iter(curves.values()), None)
    groups: Any = {"": curves} if first is None or isinstance(first, Curve) else curves
    with style():
        figure, all_axes = panels(len(groups), title, caption)
        for axes, (name, group) in zip(all_axes, groups.items(), strict=True):
            draw_frontiers(axes, group, title=name)
        all_axes[0].set_ylabel(COST)
        all_axes[0].set_ylim(_limits([c for group in groups.values() for c in group.values()]))
        for axes in all_axes:
            readable(axes, 200.0, _dollars)
        if path is not None:
            save(figure, path)
    return figure


def _limits(curves: list[Curve]) -> tuple[float, float] | None:
    """Costs to draw: from the least to where even the dearest curve has left its flat part."""
    costs = [np.asarray(c.front.cost) for c in curves if len(c.front.cost)]
    if not costs:
        return None
    marks = [float(c.front.cost[c.marked]) for c in curves if c.marked is not None]
    top = max(*(ROOM * x.min() for x in costs), *(4.0 * mark for mark in marks), 0.0)
    return min(x.min() for x in costs) / 1.5, min(top, 1.3 * max(x.max() for x in costs))


def _dollars(value: float, _: float) -> str:
    return f"${value:g}" if value < 1000 else f"${value:,.0f}"
