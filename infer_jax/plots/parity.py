"""Draws predicted against measured times, before and after calibration."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infer_jax.plots.style import INK, QUIET, panels, style
from infer_jax.plots.tones import SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DECADES = 50.0  # ratio of the ends of an axis from which its decades alone have numbers


class Parity(NamedTuple):
    """Times in seconds, one a run (NaN: not measured), and the band of measured / predicted."""

    measured: np.ndarray
    before: np.ndarray
    after: np.ndarray
    band: np.ndarray


def plot_parity(
    groups: Mapping[str, Parity],
    *,
    title: str = "",
    label: str = "calibrated",
    caption: str = "",
) -> "Figure":
    """A picture of predicted against measured times, a panel for each of ``groups``.

    On the diagonal both are equal; the band holds 80 % of new runs.

    Raises:
        InputError: matplotlib is missing.
    """
    before = f"Before: the profile as it was. After: {label}."
    line = "On the line predicted equals measured; in the band 80 % of new runs are expected."
    with style():
        figure, every = panels(len(groups), title, f"{before} {line} {caption}", shared=False)
        for axes, (name, group) in zip(every, groups.items(), strict=True):
            _draw(axes, name, group)
        every[0].set_ylabel("predicted, ms")
        every[0].legend(loc="upper left", handlelength=1.6)
    return figure


def _draw(axes: "Axes", name: str, group: Parity) -> None:
    from matplotlib.ticker import LogLocator

    seen = np.isfinite(group.measured)
    measured, before, after = (1e3 * x[seen] for x in (group.measured, group.before, group.after))
    every = np.concatenate([measured, before, after])
    ends = np.asarray([every.min() / 1.4, every.max() * 1.4])
    low, high = group.band
    axes.fill_between(
        ends, ends / high, ends / low, color="#e4e1ea", linewidth=0, label="80 % band"
    )
    axes.plot(ends, ends, color=QUIET, linewidth=1.0)
    for x, y0, y1 in zip(measured, before, after, strict=True):
        axes.plot([x, x], [y0, y1], color="#c9c9c9", linewidth=1.0, zorder=2)
    axes.plot(
        measured, before, "o", markerfacecolor="white", color=SERIES[1], label="before", zorder=3
    )
    axes.plot(measured, after, "s", color=SERIES[0], markersize=6, label="after", zorder=4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    for axis in (axes.xaxis, axes.yaxis):
        few = ends[1] < DECADES * ends[0]
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        axis.set_major_formatter("{x:,g}")
        axis.set_minor_formatter("")
    axes.set_xlabel("measured, ms")
    axes.set_title(name, color=INK)
