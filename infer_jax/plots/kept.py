"""Draws what a sweep kept: two terms against each other, or one over two axes."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from infer_jax.plots.style import INK, line, panels, readable, save, style
from infer_jax.results.numbers import digits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS = 12  # columns of a map up to which each cell has its number
FEW = 32  # marks of a line
Numbers = Float[np.ndarray, " rows"]
WIDEST = 30.0  # ratio of the ends of an axis from which it is logarithmic


class Map(NamedTuple):
    """A term over two axes: ``values[i, j]`` at ``rows[i]`` and ``columns[j]``; NaN is absent."""

    rows: Sequence[float]
    columns: Sequence[float]
    values: Float[np.ndarray, "rows columns"]


def plot_points(
    series: Mapping[str, tuple[Numbers, Numbers]],
    path: str | os.PathLike[str] | None = None,
    *,
    labels: tuple[str, str],
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of points, x and y by series; written to ``path`` if given, by its suffix.

    Raises:
        InputError: matplotlib is missing, or the path cannot be written.
    """
    with style():
        figure, (axes, *_) = panels(1, title, caption)
        for i, (label, (x, y)) in enumerate(series.items()):
            order = np.argsort(x)
            look: Any = {**line(i), "linewidth": 1.0, "markevery": max(1, len(x) // FEW)}
            axes.plot(x[order], y[order], **look, label=label)
        every: Any = [np.concatenate(list(column)) for column in zip(*series.values(), strict=True)]
        for scale, column in zip((axes.set_xscale, axes.set_yscale), every, strict=True):
            if column.min() > 0 and column.max() / column.min() > WIDEST:
                scale("log")
        readable(axes, 200.0)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.legend(loc="best")
        if path is not None:
            save(figure, path)
    return figure


def plot_map(
    shown: Map,
    path: str | os.PathLike[str] | None = None,
    *,
    labels: tuple[str, str],
    term: str,
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of a term over two axes, darker where it is less; written to ``path`` if given.

    ``labels``: of rows and columns. Each cell has its number where there are few columns.

    Raises:
        InputError: matplotlib is missing, or the path cannot be written.
    """
    with style():
        from matplotlib.colors import LogNorm, Normalize

        figure, (axes, *_) = panels(1, title, caption)
        values = np.ma.masked_invalid(shown.values)
        low, high = float(values.min()), float(values.max())
        kind = LogNorm if low > 0 and high / low > WIDEST else Normalize
        image = axes.pcolormesh(values, cmap="cividis", norm=kind(low, high), edgecolors="white")
        if len(shown.columns) <= CELLS:
            for (i, j), x in np.ndenumerate(shown.values):
                if np.isfinite(x):
                    dark = float(np.asarray(image.norm(x))) < 0.5
                    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5}
                    axes.text(j + 0.5, i + 0.5, digits(x), color="white" if dark else INK, **look)
        for ticks, names in ((axes.set_yticks, shown.rows), (axes.set_xticks, shown.columns)):
            at = range(0, len(names), 1 + (len(names) - 1) // CELLS)
            ticks([i + 0.5 for i in at], [digits(names[i]) for i in at])
        axes.grid(visible=False)
        axes.set_ylabel(labels[0])
        axes.set_xlabel(labels[1])
        figure.colorbar(image, ax=axes, label=term)
        if path is not None:
            save(figure, path)
    return figure
