"""The style of all pictures: tones that differ in grey, and one function to save."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infer_jax.catalog.files import replacing
from infer_jax.errors import InputError, printable
from infer_jax.plots.tones import SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOLLAR = re.compile(r"(?<!\\)\$")  # which would begin a formula
INK, QUIET = "#222222", "#6b6b6b"
PLAIN = 1e6  # ratio of the ends of a logarithmic axis up to which it has plain numbers
WIDE = 7.2  # inches: at 600 pixels a letter of 10 points is 12 pixels high

Dash = str | tuple[int, tuple[float, ...]]
# Of parts that have no tone of their own (tones.py), dark to light.
TONES = ("#15133c", "#6a176e", "#bc3754", "#ea7b18", "#9aa000", "#3f9fb5")
TONE_ORDER = (0, 3, 2, 5, 1, 4)  # the first ones differ most
DASHES: tuple[Dash, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)), (0, (1, 1)), "-.")
MARKERS = ("o", "s", "^", "v", "P", ">")  # of curves; a diamond is measured, in all pictures
DIAMOND: dict[str, Any] = {
    "marker": "D",
    "markersize": 7,
    "color": "white",
    "markeredgecolor": INK,
    "markeredgewidth": 1.6,
    "linestyle": "none",
}

STYLE: dict[Any, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 2.0,
    "lines.markersize": 7,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 4.5,
}


@contextmanager
def style() -> Iterator[None]:
    """The style sheet, for as long as a picture is drawn.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise InputError(
            "pictures", "matplotlib", "not installed", "pip install 'infer_jax[plots]'"
        ) from None
    with mpl.rc_context(STYLE):
        yield


def line(i: int) -> dict[str, Any]:
    """Colour, dash and marker of the curve number ``i``: none is known by its colour alone."""
    return {
        "color": SERIES[i % len(SERIES)],
        "linestyle": DASHES[i % len(DASHES)],
        "marker": MARKERS[i % len(MARKERS)],
    }


def panels(
    count: int, title: str, caption: str, *, shared: bool = True
) -> "tuple[Figure, Sequence[Axes]]":
    """A figure of ``count`` panels side by side, titled and captioned; ``shared``: their axes.

    Two panels share the width of one; more are wider. Call within ``style()``.
    """
    wide, high = (WIDE, 4.6 if count == 1 else 3.9) if count <= 2 else (5.2 * count, 4.6)
    figure, _ = blank(wide, high, title, caption)
    axes = figure.subplots(1, count, sharex=shared, sharey=shared, squeeze=False)[0]
    return figure, list(axes)


def blank(
    wide: float, high: float, title: str, caption: str, *, below: float = 0.0
) -> "tuple[Figure, float]":
    """A figure without axes, titled and captioned; axes share ``high`` inches above the caption.

    ``below``: inches between the two, such as of a legend. The second is where they begin, as a
    share of the height. Call within ``style()``.
    """
    import textwrap

    from infer_jax.plots.picture import Picture

    lines = textwrap.wrap(words(caption), int(wide * 14.5))
    low = 0.17 * len(lines) + 0.12
    titles = textwrap.wrap(words(title), int(wide * 8.6))
    whole = high + below + low + 0.2 * max(len(titles) - 1, 0)
    figure = Picture(figsize=(wide, whole), layout="constrained")
    layout: Any = figure.get_layout_engine()
    start = (low + below) / whole
    layout.set(rect=(0, start, 1, 1 - start))
    if title:
        figure.suptitle("\n".join(titles), x=0.012, ha="left", fontsize=12, fontweight="bold")
    text = "\n".join(lines)
    figure.text(0.012, 0.08 / whole, text, color=QUIET, fontsize=8.5, va="bottom")
    return figure, low / whole


def stacked(
    shares: Sequence[float], more: float, title: str, caption: str, *, below: float = 0.0
) -> "tuple[Figure, float, list[Axes]]":
    """A figure of axes one below the other, of these heights in inches and ``more`` between them.

    The second is where the axes begin, as ``blank`` says. Call within ``style()``.
    """
    figure, low = blank(WIDE, sum(shares) + more, title, caption, below=below)
    axes = figure.subplots(len(shares), 1, squeeze=False, height_ratios=shares)[:, 0]
    return figure, low, list(axes)


def legend_below(figure: "Figure", low: float, keys: Sequence[Any], **look: Any) -> None:
    """The legend of all axes between them and the caption."""
    place = {"loc": "lower left", "bbox_to_anchor": (0.012, low), "borderaxespad": 0.0}
    figure.legend(handles=keys, handlelength=1.4, **place, **look)


def name_bars(axes: "Axes", at: Sequence[float], labels: Sequence[str], title: str) -> None:
    """Title horizontal bars: their labels on the left, no line across them."""
    axes.set_yticks(at, labels)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    axes.set_title(title)


def draw_limit(axes: "Axes", x: float, text: str, *, right: bool = False) -> None:
    """A dashed line across all bars at ``x``, with words on top, left of it or right."""
    side, gap = ("left", 3) if right else ("right", -3)
    axes.axvline(x, color=INK, linewidth=1.4, linestyle=(0, (4, 2)), zorder=3)
    axes.annotate(
        text, (x, 1.0), (gap, 3), xycoords=("data", "axes fraction"), ha=side, va="bottom",
        textcoords="offset points", fontsize=8.5, color=INK,
    )  # fmt: skip


def beside(axes: "Axes", point: tuple[float, float], text: str, *, left: bool = False) -> None:
    """Words below a mark, right of it or left: above it are the curves that rise to the right."""
    if text:
        side, gap = ("right", -9) if left else ("left", 9)
        look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9, "color": INK}
        axes.annotate(text, point, (gap, -6), ha=side, va="top", zorder=5, **look)


def readable(axes: "Axes", most: float = 30.0, written: Any = "{x:,g}") -> None:
    """Number 1, 2, 5 of each decade on logarithmic axes that span few: decades would be lost.

    Few is a ratio of ``most`` between the ends; ``written`` is how a number is.
    """
    from matplotlib.ticker import LogLocator

    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if axis.get_scale() != "log":
            continue
        if high / low < most:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_minor_formatter("")
        if high / low < PLAIN:
            axis.set_major_formatter(written)


def save(figure: "Figure", path: str | os.PathLike[str]) -> Path:
    """Write a picture whole, or none, in the format of its suffix; the folder is made.

    The file carries the figure's title and caption, for pages and readers that show no picture.

    Raises:
        InputError: the place cannot be written, or no such format.
        OSError: the disk is full or failing.
    """
    path = Path(path)
    formats = figure.canvas.get_supported_filetypes()
    suffix = path.suffix.lstrip(".").lower()
    if suffix not in formats:
        allowed = f"a name that ends in {', '.join(f'.{x}' for x in sorted(formats))}"
        raise InputError("plot", "out", str(path), allowed)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(str(path), "", reason, "a writable place") from None
    with replacing(path) as partial:
        figure.savefig(partial, metadata=_metadata(figure, suffix))
    return path


def words(text: str) -> str:
    r"""A text of others for a title or a label: neither a formula nor a character of control.

    >>> words("a$b$") == words(words("a$b$"))
    True
    """
    return DOLLAR.sub(r"\\$", printable(text))


def _metadata(figure: "Figure", suffix: str) -> dict[str, str] | None:
    """Title and caption under the names that the format has for them; None where it has none."""
    names = {"png": "Description", "svg": "Description", "pdf": "Subject"}
    if suffix not in names:
        return None
    heading = figure.get_suptitle()
    title = " ".join(heading.split())
    caption = " ".join(t.get_text() for t in figure.texts if t.get_text() != heading)
    return {"Title": title, names[suffix]: " ".join(f"{title}. {caption}".split())}
