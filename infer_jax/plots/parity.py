"""Draws predicted against measured times, before and after calibration."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from infer_jax.plots.style import QUIET, SERIES, Axes, Figure, Options, panels, style

DECADES = 50.0  # ratio of the ends of an axis from which its decades alone have numbers


class Parity(NamedTuple):
    """Times in seconds, one a run (NaN: not measured), and the band of measured / predicted."""

    measured: np.ndarray
    before: np.ndarray
    after: np.ndarray
    band: np.ndarray


def plot_parity(groups: Mapping[str, Parity], title: str = "", caption: str = "") -> Figure:
    """A picture of predicted against measured times, a panel for each of ``groups``.

    On the diagonal both are equal; the band holds 80 % of new runs.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        figure, axes = panels(len(groups), title, caption, shared=False)
        for ax, (name, group) in zip(axes, groups.items(), strict=True):
            _draw(ax, group)
            ax.set_title(name)
        axes[0].set_ylabel("predicted, ms")
        axes[0].legend(loc="upper left", handlelength=1.6)
    return figure


def _draw(axes: Axes, group: Parity) -> None:
    from matplotlib.ticker import LogLocator

    low, high = group.band
    times = 1e3 * np.stack(group[:3])
    measured, before, after = times = times[:, np.isfinite(group.measured)]
    ends = np.asarray([times.min() / 1.4, times.max() * 1.4])
    axes.fill_between(
        ends, ends / high, ends / low, color="#e4e1ea", linewidth=0, label="80 % band"
    )
    axes.plot(ends, ends, color=QUIET, linewidth=1.0)
    axes.vlines(measured, before, after, color="#c9c9c9", linewidth=1.0, zorder=2)
    look: Options = {"markerfacecolor": "white", "color": SERIES[1], "zorder": 3}
    axes.plot(measured, before, "o", label="before", **look)
    axes.plot(measured, after, "s", color=SERIES[0], markersize=6, label="after", zorder=4)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured, ms")
    for axis in (axes.xaxis, axes.yaxis):
        few = ends[1] < DECADES * ends[0]
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        axis.set_major_formatter("{x:,g}")
        axis.set_minor_formatter("")
