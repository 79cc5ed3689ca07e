"""Draws seconds of a job against tokens per second."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike

from infer_jax.plots.style import INK, line, panels, readable, save, style, write_below

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LATENCY, THROUGHPUT = "latency of a job, seconds", "output tokens per second"


def plot_tradeoff(
    curves: Mapping[str, Mapping[str, tuple[ArrayLike, ArrayLike]]],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    caption: str = "",
    log: bool = True,
    words: Mapping[tuple[float, float], str] | None = None,
) -> "Figure":
    """A picture of (seconds, tokens/s) curves by panel and label, with logarithmic axes.

    ``words``: what stands beside points of the first panel. With a path the format is that of its
    suffix (png, svg, pdf).

    Raises:
        InputError: matplotlib is missing, or the path cannot be written.
    """
    with style():
        figure, every = panels(len(curves), title, caption)
        for axes, (name, group) in zip(every, curves.items(), strict=True):
            for i, (label, (seconds, rate)) in enumerate(group.items()):
                seconds, rate = np.asarray(seconds), np.asarray(rate)
                few = max(1, len(seconds) // 12)
                marks = {"marker": ""} if words else {"markevery": few}
                axes.plot(seconds, rate, **{**line(i), **marks}, label=label)
            if log:
                axes.set_xscale("log")
                axes.set_yscale("log")
                readable(axes, 200.0)
            axes.margins(y=0.1)
            axes.set_xlabel(LATENCY)
            axes.set_title(name)
            if len(group) > 1:
                axes.legend(loc="best")
        for point, text in (words or {}).items():
            every[0].plot(*point, "o", color=INK, markersize=6, zorder=4)
            write_below(every[0], point, text, left=point[0] == max(words or {})[0])
        every[0].set_ylabel(THROUGHPUT)
        if path is not None:
            save(figure, path)
    return figure
