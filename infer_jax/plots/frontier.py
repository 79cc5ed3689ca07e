"""Draws frontiers: tokens per second of a request against its price, or of a job against time."""

from collections.abc import Mapping
from typing import NamedTuple, Unpack

import numpy as np
from jax.typing import ArrayLike

from infer_jax.estimators import Estimate
from infer_jax.plots.style import (
    INK,
    Figure,
    Options,
    Words,
    line,
    panels,
    readable,
    style,
    write_below,
)
from infer_jax.specs import output

SPEED, COST = (output(Estimate, name).doc for name in ("speed", "cost"))
LATENCY, THROUGHPUT = "latency of a job, seconds", "output tokens per second"
HEADROOM = 2000.0  # times the dearest curve's least cost: beyond it curves only rise


class Curve(NamedTuple):
    """A frontier: tokens per second of a request, USD per million output tokens of each point.

    ``marked``: the preferred point, None: no mark; ``words``: what stands beside it.
    """

    speed: np.ndarray
    cost: np.ndarray
    marked: int | None = None
    words: str = ""


def plot_frontier(curves: Mapping[str, Curve], **words: Unpack[Words]) -> Figure:
    """A picture of frontiers: speed (tokens/s, linear) against cost (USD, logarithmic).

    Every curve has a tone, a dash and a marker of its own, so that grey suffices. ``words``: title
    and caption.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        figure, (axes,) = panels(1, **words)
        for i, (label, (speed, cost, marked, beside)) in enumerate(curves.items()):
            order = np.argsort(speed)
            look: Options = line(i)
            marker, shape = look.pop("marker"), {}
            if marked is not None:
                shape = {"marker": marker}
                dot = {"color": look["color"], "markeredgecolor": "white", "markersize": 9}
                axes.plot(speed[marked], cost[marked], zorder=3, **shape, **dot)
                write_below(axes, (speed[marked], cost[marked]), beside)
            axes.plot(speed[order], cost[order], **look)
            axes.plot([], [], **look, **shape, label=label)
        axes.set(yscale="log", xlabel=SPEED, ylabel=COST, ylim=_limits([*curves.values()]))
        axes.set_xlim(left=0)
        axes.yaxis.set_major_formatter(_dollars)
        axes.yaxis.set_minor_formatter("")
        axes.legend(loc="best")
        readable(axes, 200.0, _dollars)
    return figure


def _limits(curves: list[Curve]) -> tuple[float, float] | None:
    """Costs to draw: from the least to where even the dearest curve has left its flat part."""
    costs = [c.cost for c in curves if len(c.cost)]
    if not costs:
        return None
    marks = [float(c.cost[c.marked]) for c in curves if c.marked is not None]
    top = max(*(HEADROOM * x.min() for x in costs), *(4.0 * mark for mark in marks), 0.0)
    return min(x.min() for x in costs) / 1.5, min(top, 1.3 * max(x.max() for x in costs))


def _dollars(value: float, _: float) -> str:
    return f"${value:g}" if value < 1000 else f"${value:,.0f}"


def plot_tradeoff(
    curves: Mapping[str, Mapping[str, tuple[ArrayLike, ArrayLike]]],
    labels: Mapping[tuple[float, float], str] | None = None,
    **words: Unpack[Words],
) -> Figure:
    """A picture of (seconds, tokens/s) curves by panel and label, with logarithmic axes.

    ``labels``: what stands beside points of the first panel; ``words``: title and caption.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        figure, every = panels(len(curves), **words)
        for axes, (name, group) in zip(every, curves.items(), strict=True):
            for i, (label, (seconds, rate)) in enumerate(group.items()):
                seconds, rate = np.asarray(seconds), np.asarray(rate)
                few = max(1, len(seconds) // 12)
                marks = {"marker": ""} if labels else {"markevery": few}
                axes.plot(seconds, rate, **{**line(i), **marks}, label=label)
            axes.set(xscale="log", yscale="log")
            readable(axes, 200.0)
            axes.margins(y=0.1)
            axes.set_xlabel(LATENCY)
            axes.set_title(name)
            if len(group) > 1:
                axes.legend(loc="best")
        for point, text in (labels or {}).items():
            every[0].plot(*point, "o", color=INK, markersize=6, zorder=4)
            write_below(every[0], point, text, left=point[0] == max(labels or {})[0])
        every[0].set_ylabel(THROUGHPUT)
    return figure
