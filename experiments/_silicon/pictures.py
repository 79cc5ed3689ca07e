"""Pictures of the studies: bars with whiskers, and lines."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infer_jax.plots.style import (
    INK,
    SERIES,
    Figure,
    line,
    name_rows,
    panels,
    readable,
    style,
    subplots,
)


class Bars(NamedTuple):
    """Horizontal bars by name, with the ends of their whiskers, and second figures as circles."""

    names: Sequence[str]
    values: Sequence[float]
    ends: Sequence[np.ndarray]
    seconds: Sequence[float] = ()


def draw_bars(parts: Mapping[str, Bars], *, title: str, caption: str, shared: str = "") -> Figure:
    """A panel of bars for each part; on one axis if all share its label."""
    with style():
        across = min(len(parts), 2)
        down = -(-len(parts) // across)
        figure, axes = subplots(down, across, height=(2.5 if shared else 3.0) * down, title=title,
                                caption=caption, sharex=bool(shared))  # fmt: skip
        for i, (one, (label, bars)) in enumerate(zip(axes, parts.items(), strict=False)):
            rows = range(len(bars.names))
            one.barh(rows, bars.values, height=0.72, color=SERIES[0 if shared else i])
            for row, ends in zip(rows, bars.ends, strict=True):
                one.plot(ends, [row, row], color=INK, linewidth=1.2)
            if bars.seconds:
                one.plot(bars.seconds, rows, "o", color="white", markeredgecolor=INK, markersize=5)
            name_rows(one, bars.names if i % across == 0 else [""] * len(bars.names))
            one.set_title(label if shared else "")
            one.set_xlabel(label if not shared else shared if i >= len(parts) - across else "")
        for one in axes:
            one.set_xlim(0)
    return figure


# x and y of a line, and the ends of its band
Line = tuple[Sequence[float], Sequence[float]] | tuple[Sequence[float], Sequence[float], Any]


def draw_lines(
    parts: Mapping[str, Mapping[str, Line]],
    labels: Sequence[tuple[str, str]],
    *,
    title: str,
    caption: str,
    logs: tuple[bool, bool] = (True, True),
) -> Figure:
    """A panel of the same lines for each part, x and y by name; ``labels``: of its axes.

    A panel without a label of y has the axis of the first.
    """
    with style():
        figure, axes = panels(len(parts), title, caption, shared=False)
        for one, (head, lines), (x, y) in zip(axes, parts.items(), labels, strict=False):
            for i, (name, (across, up, *ends)) in enumerate(lines.items()):
                one.plot(across, up, label=name, markersize=4, **line(i))  # pyright: ignore
                if ends:
                    one.fill_between(across, *np.transpose(ends[0]), color=SERIES[i], alpha=0.2)
            one.set_xscale("log" if logs[0] else "linear")
            one.set_yscale("log" if logs[1] else "linear")
            one.set(title=head if len(parts) > 1 else "", xlabel=x, ylabel=y)
            if not any(logs):
                one.set_ylim(0)
        ends = np.array([one.get_ylim() for one, (_, y) in zip(axes, labels, strict=False)])
        for one, (_, y) in zip(axes, labels, strict=False):
            if not all(y for _, y in labels):
                one.set_ylim(ends[:, 0].min(), ends[:, 1].max())
            readable(one, 150)
        keys = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(*keys, loc="outside upper left", ncols=4, handlelength=2.6)  # pyright: ignore
    return figure
