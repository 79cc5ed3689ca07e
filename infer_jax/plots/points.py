"""Draws points, how many of them lie where, a term over two axes, times beside measured ones."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np

from infer_jax.plots.style import (
    INK,
    QUIET,
    SERIES,
    Axes,
    Figure,
    Options,
    Words,
    is_slide,
    line,
    panels,
    readable,
    style,
    subplots,
)
from infer_jax.results.numbers import digits

CELLS = 12  # columns of a map up to which each cell has its number
SPACED = 0.06  # of the diagonal of the axes: between two marks of a line
WIDEST = 30.0  # ratio of the ends of an axis from which it is logarithmic
FAINTEST = 0.2  # share of black of a cell with one point, which white paper would hide
Series = Mapping[str, tuple[np.ndarray, np.ndarray]]  # x and y by label


def plot_points(series: Series, *, labels: tuple[str, str], **words: Unpack[Words]) -> Figure:
    """A picture of points, x and y by series; ``words``: title and caption.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        figure, (axes, *_) = panels(1, **words)
        _draw_lines(axes, series, linewidth=1.4)
        x, y = (np.concatenate(column) for column in zip(*series.values(), strict=True))
        _scale(axes, (x, y), labels)
        readable(axes, 200.0)
        axes.legend(loc="best")
    return figure


def plot_cloud(
    points: tuple[np.ndarray, np.ndarray],
    fronts: Series,
    *,
    labels: tuple[str, str],
    **words: Unpack[Words],
) -> Figure:
    """A picture of how many points lie where, with frontiers before them.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        from matplotlib import colormaps
        from matplotlib.colors import ListedColormap

        figure, (axes, *_) = panels(1, **words)
        _scale(axes, points, labels)
        tones = ListedColormap(colormaps["Greys"](np.linspace(FAINTEST, 1.0, 256)))
        scales: Options = {"xscale": axes.get_xscale(), "yscale": axes.get_yscale()}
        image = axes.hexbin(
            *points, gridsize=48, bins="log", mincnt=1, cmap=tones, linewidths=0.1, **scales
        )
        _draw_lines(axes, {f"frontier of {name}": front for name, front in fronts.items()})
        readable(axes, 200.0)
        axes.figure.legend(loc="outside lower left", ncols=2)
        look: Options = {"label": "configurations in a cell", "format": "{x:g}"}
        figure.colorbar(image, ax=axes, **look)
    return figure


def plot_maps(
    maps: Mapping[str, np.ndarray],
    sides: Mapping[str, Sequence[float] | np.ndarray],
    *,
    term: str,
    **words: Unpack[Words],
) -> Figure:
    """A picture of a term over two axes, a panel for each system, darker where it is less.

    ``maps``: rows x columns by system, NaN where empty; ``sides``: by label the values of rows and
    of columns; ``words``: title and caption. Each cell has its number where there are few columns.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LogNorm, Normalize

        values = np.stack([*maps.values()])
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        norm = (LogNorm if _is_wide(low, high) else Normalize)(low, high)
        image: Any = ScalarMappable(norm, "cividis")
        height = 4.6 if len(maps) == 1 else 3.2 * len(maps)
        shape = (1, len(maps)) if is_slide() else (len(maps), 1)
        figure, axes = subplots(*shape, height=height, sharex=True, sharey=True, **words)
        rows, columns = sides
        for ax, (name, one) in zip(axes, maps.items(), strict=True):
            cells: Options = {"cmap": image.get_cmap(), "norm": image.norm, "edgecolors": "white"}
            ax.pcolormesh(np.ma.masked_invalid(one), **cells)
            ax.grid(visible=False)
            for (i, j), x in np.ndenumerate(one):
                if np.isfinite(x) and one.shape[1] <= CELLS:
                    tone = "white" if image.norm(x) < 0.5 else INK
                    look: Options = {"ha": "center", "va": "center", "fontsize": 8.5, "color": tone}
                    ax.text(j + 0.5, i + 0.5, digits(x), **look)
            if len(maps) > 1:
                ax.set_title(name)
            for ticks, side in zip((ax.set_yticks, ax.set_xticks), sides.values(), strict=True):
                at = range(0, len(side), 1 + (len(side) - 1) // CELLS)
                ticks([i + 0.5 for i in at], [digits(side[i]) for i in at])
        for ax in axes:
            ax.set(xlabel=columns, ylabel=rows)
            ax.label_outer()
        figure.colorbar(image, ax=axes, label=term)
    return figure


def _draw_lines(axes: Axes, series: Series, **own: Any) -> None:
    """Each series in the order of x, with few marks."""
    for i, (label, (x, y)) in enumerate(series.items()):
        order = np.argsort(x)
        look: Options = {**line(i), "markevery": SPACED, "markersize": 5, **own}
        axes.plot(x[order], y[order], **look, label=label)


def _scale(axes: Axes, columns: Sequence[np.ndarray], labels: tuple[str, str]) -> None:
    """Label both axes, and make those logarithmic whose numbers are far apart."""
    axes.set(xlabel=labels[0], ylabel=labels[1])
    for scale, column in zip((axes.set_xscale, axes.set_yscale), columns, strict=True):
        if _is_wide(column.min(), column.max()):
            scale("log")


def _is_wide(low: float, high: float) -> bool:
    """Whether numbers between these ends need a logarithmic scale."""
    return low > 0 and high / low > WIDEST


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
    low, high = group.band
    times = 1e3 * np.stack(group[:3])
    measured, before, after = times = times[:, np.isfinite(group.measured)]
    ends = np.asarray([times.min() / 1.4, times.max() * 1.4])
    axes.fill_between(ends, ends / high, ends / low, color="#e4e1ea", lw=0, label="80 % band")
    axes.plot(ends, ends, color=QUIET, linewidth=1.0)
    axes.vlines(measured, before, after, color="#c9c9c9", linewidth=1.0, zorder=2)
    look: Options = {"markerfacecolor": "white", "color": SERIES[1], "zorder": 3}
    axes.plot(measured, before, "o", label="before", **look)
    axes.plot(measured, after, "s", color=SERIES[0], markersize=6, label="after", zorder=4)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured, ms")
    readable(axes, DECADES)
