"""Draws the result of a sweep: two terms against each other, or one over two axes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float

from infer_jax.plots.style import INK, WIDE, blank, line, panels, readable, style
from infer_jax.results.numbers import digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

CELLS = 12  # columns of a map up to which each cell has its number
SPACED = 0.06  # of the diagonal of the axes: between two marks of a line
Numbers = Float[np.ndarray, " rows"]
WIDEST = 30.0  # ratio of the ends of an axis from which it is logarithmic
FAINTEST = 0.2  # share of black of a cell with one point, which white paper would hide


class Map(NamedTuple):
    """A term over two axes: ``values[i, j]`` at ``rows[i]`` and ``columns[j]``; NaN is absent."""

    rows: Sequence[float]
    columns: Sequence[float]
    values: Float[np.ndarray, "rows columns"]


def plot_points(
    series: Mapping[str, tuple[Numbers, Numbers]],
    *,
    labels: tuple[str, str],
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of points, x and y by series.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        figure, (axes, *_) = panels(1, title, caption)
        for i, (label, (x, y)) in enumerate(series.items()):
            order = np.argsort(x)
            look: Any = {**line(i), "linewidth": 1.4, "markevery": SPACED, "markersize": 5}
            axes.plot(x[order], y[order], **look, label=label)
        every: Any = [np.concatenate(list(column)) for column in zip(*series.values(), strict=True)]
        _scaled(axes, every, labels)
        readable(axes, 200.0)
        axes.legend(loc="best")
    return figure


def plot_cloud(
    every: tuple[Numbers, Numbers],
    fronts: Mapping[str, tuple[Numbers, Numbers]],
    *,
    labels: tuple[str, str],
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of how many points lie where, with frontiers before them.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        from matplotlib import colormaps
        from matplotlib.colors import ListedColormap

        figure, (axes, *_) = panels(1, title, caption)
        _scaled(axes, every, labels)
        tones = colormaps["Greys"](np.linspace(FAINTEST, 1.0, 256))
        image = axes.hexbin(
            *every, gridsize=48, bins="log", mincnt=1, cmap=ListedColormap(tones), linewidths=0.1,
            xscale=cast(Any, axes.get_xscale()), yscale=cast(Any, axes.get_yscale()),
        )  # fmt: skip
        for i, (label, (x, y)) in enumerate(fronts.items()):
            order = np.argsort(x)
            look: Any = {**line(i), "markevery": SPACED, "markersize": 5}
            axes.plot(x[order], y[order], **look, label=f"frontier of {label}")
        readable(axes, 200.0)
        axes.legend(loc="best")
        look: Any = {"label": "configurations in a cell", "format": "{x:g}"}
        figure.colorbar(image, ax=axes, **look)
    return figure


def _wide(low: float, high: float) -> bool:
    """Whether numbers between these ends need a logarithmic scale."""
    return low > 0 and high / low > WIDEST


def _scaled(axes: "Axes", columns: Sequence[Numbers], labels: tuple[str, str]) -> None:
    """Label both axes, and make those logarithmic whose numbers are far apart."""
    axes.set(xlabel=labels[0], ylabel=labels[1])
    for scale, column in zip((axes.set_xscale, axes.set_yscale), columns, strict=True):
        if _wide(column.min(), column.max()):
            scale("log")


def plot_maps(
    maps: Mapping[str, Map],
    *,
    labels: tuple[str, str],
    term: str,
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of a term over two axes, a panel for each system, darker where it is less.

    ``labels``: of rows and columns. Each cell has its number where there are few columns.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LogNorm, Normalize

        every = np.concatenate([one.values.ravel() for one in maps.values()])
        low, high = float(np.nanmin(every)), float(np.nanmax(every))
        kind = LogNorm if _wide(low, high) else Normalize
        image = ScalarMappable(kind(low, high), cmap="cividis")
        height = 4.6 if len(maps) == 1 else 3.2 * len(maps)
        figure, _ = blank(WIDE, height, title, caption)
        panel = figure.subplots(len(maps), 1, squeeze=False, sharex=True)[:, 0]
        for axes, (name, one) in zip(panel, maps.items(), strict=True):
            _draw_map(axes, one, image)
            axes.set_ylabel(labels[0])
            if len(maps) > 1:
                axes.set_title(name)
        panel[-1].set_xlabel(labels[1])
        figure.colorbar(image, ax=list(panel), label=term)
    return figure


def _draw_map(axes: "Axes", drawn: Map, image: "ScalarMappable") -> None:
    values, norm = np.ma.masked_invalid(drawn.values), cast("Normalize", image.norm)
    axes.pcolormesh(values, cmap=image.get_cmap(), norm=norm, edgecolors="white")
    if len(drawn.columns) <= CELLS:
        for (i, j), x in np.ndenumerate(drawn.values):
            if np.isfinite(x):
                dark = float(np.asarray(norm(x))) < 0.5
                look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5}
                axes.text(j + 0.5, i + 0.5, digits(x), color="white" if dark else INK, **look)
    for ticks, names in ((axes.set_yticks, drawn.rows), (axes.set_xticks, drawn.columns)):
        at = range(0, len(names), 1 + (len(names) - 1) // CELLS)
        ticks([i + 0.5 for i in at], [digits(names[i]) for i in at])
    axes.grid(visible=False)
