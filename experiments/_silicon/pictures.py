"""Pictures of the studies: bars with whiskers, and lines."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
    """Horizontal bars by name, with the ends of their whiskers."""

    names: Sequence[str]
    values: Sequence[float]
    ends: Sequence[np.ndarray]


def draw_bars(parts: Mapping[str, Bars], *, title: str, caption: str) -> Figure:
    """A panel of bars for each part, on axes of their own."""
    with style():
        across = min(len(parts), 2)
        down = -(-len(parts) // across)
        figure, axes = subplots(down, across, height=3.0 * down, title=title, caption=caption)
        for i, (one, (label, bars)) in enumerate(zip(axes, parts.items(), strict=False)):
            rows = range(len(bars.names))
            one.barh(rows, bars.values, height=0.72, color=SERIES[i])
            for row, ends in zip(rows, bars.ends, strict=True):
                one.plot(ends, [row, row], color=INK, linewidth=1.2)
            name_rows(one, bars.names if i % across == 0 else [""] * len(bars.names))
            one.set_xlabel(label)
            one.set_xlim(0)
    return figure


def draw_lines(
    parts: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
    labels: Sequence[tuple[str, str]],
    *,
    title: str,
    caption: str,
    logs: tuple[bool, bool] = (True, True),
) -> Figure:
    """A panel of lines for each part, x and y by name; ``labels``: of its axes."""
    with style():
        figure, axes = panels(len(parts), title, caption, shared=False)
        known: list[str] = []
        for one, (head, lines), (x, y) in zip(axes, parts.items(), labels, strict=False):
            for i, (name, (across, up)) in enumerate(lines.items()):
                one.plot(across, up, label=name, markersize=4, **line(i))  # pyright: ignore
            one.set_xscale("log" if logs[0] else "linear")
            one.set_yscale("log" if logs[1] else "linear")
            one.set(title=head if len(parts) > 1 else "", xlabel=x, ylabel=y)
            readable(one, 1e3)
            if list(lines) != known:  # one legend for panels of the same lines
                one.legend(loc="best")
            known = list(lines)
    return figure
