"""The look of all pictures and pages: colours, marks and words, and axes with a caption.

A system has one colour, and so has each part of a time or a memory, in every picture. Hues are
those that readers with any colour vision tell apart (after Okabe and Ito, jfly.uni-koeln.de/color);
what they distinguish also differs in grey, in its hatch, dash or marker.
"""

import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from infer_jax.catalog.files import replace_file
from infer_jax.errors import printable
from infer_jax.on_demand import load_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.patches import Patch
    from matplotlib.text import Annotation
else:  # matplotlib is an optional package: its types are for who reads and checks
    Axes = Figure = Any

Look = tuple[str, str]  # colour and hatch
Options = dict[str, Any]  # of a function of matplotlib
Written = str | Callable[[float, float], str]  # how a number of an axis is written
Dash = str | tuple[int, tuple[float, ...]]
DOLLAR = re.compile(r"(?<!\\)\$")  # which would begin a formula
INK, QUIET = "#222222", "#6b6b6b"
PLAIN = 1e6  # ratio of the ends of a logarithmic axis up to which it has plain numbers
PIXELS = 1600  # across a picture of one column in a file
WIDE = 7.2  # inches: at 600 pixels a letter of 10 points is 12 pixels high
SLIDE = (6.4, 3.6)  # inches of a slide, 16 : 9: 1,600 pixels, and letters larger by an eighth
_slide = ContextVar("pictures are drawn as slides", default=False)

# of systems, in this order; each at least 3 : 1 against white and against a dark page
SERIES = ("#2a7fbf", "#d1580a", "#0b8f6a", "#c2569a", "#a87900", "#5b7f95")
WEIGHTS, CACHE, NETWORK, WAITING, MEMORY, HOST = SERIES
LOOKS: dict[Look, str] = {
    # computing and weights: blue
    ("#2a7fbf", ""): "compute, bound by compute",
    ("#1d4f87", ""): "feedforward, weights: feedforward, weights: experts",
    ("#8fb8e3", ""): "projections, weights: attention",
    ("#4f86c0", ""): "shared experts, weights: shared",
    ("#cfe1f3", ""): "head, weights: head",
    ("#cfe1f3", "||||"): "weights: embedding",
    ("#8fb8e3", "||||"): "elementwise",
    # attention and its KV cache: orange
    ("#d9731f", ""): "attention, KV cache",
    ("#f2b98a", ""): "index",
    # reading memory: ochre
    ("#c9a227", ""): "memory, bound by memory",
    ("#7a5c00", ""): "host memory, disk, link, fetch",
    # between GPUs: green
    ("#0b8f6a", "////"): "network, all-reduce",
    ("#7cc9ad", "////"): "exchange, transfer",
    ("#054d39", "////"): "stages, hand-over",
    # waiting: pink
    ("#c2569a", "...."): "wait until scheduled, queue",
    ("#7d2e68", "...."): "other prefills",
    ("#e6b8d4", "...."): "decodes beside the prompt",
    ("#e6b8d4", "xxxx"): "first wave of the benchmark",
    # launch and host, and what a server takes besides weights and cache: slate
    ("#5b7f95", "\\\\\\\\"): "launch, scheduling, reserve outside the cache",
    ("#a9bfcc", "\\\\\\\\"): "host between passes, peak of activations",
    ("#33505f", "\\\\\\\\"): "network and tokeniser",
}
PARTS = {name: look for look, names in LOOKS.items() for name in names.split(", ")}
REST: Look = ("#c9c9c9", "")  # the small parts together
# of parts that have no colour of their own, dark to light; the first of the order differ most
TONES = ("#15133c", "#6a176e", "#bc3754", "#ea7b18", "#9aa000", "#3f9fb5")
TONE_ORDER = (0, 3, 2, 5, 1, 4)
DASHES: tuple[Dash, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)), (0, (1, 1)), "-.")
MARKERS = ("o", "s", "^", "v", "P", ">")  # of curves; a diamond is measured, in all pictures
DIAMOND: Options = {
    "marker": "D",
    "markersize": 7,
    "color": "white",
    "markeredgecolor": INK,
    "markeredgewidth": 1.6,
    "linestyle": "none",
}


class Words(TypedDict, total=False):
    """What stands above and below a picture."""

    title: str
    caption: str


@contextmanager
def slides(wanted: bool = True) -> Iterator[None]:
    """Pictures drawn within are slides if ``wanted``: 16 : 9, large type, a caption of one line."""
    token = _slide.set(wanted or _slide.get())
    try:
        yield
    finally:
        _slide.reset(token)


def is_slide() -> bool:
    """Whether pictures are drawn as slides."""
    return _slide.get()


@contextmanager
def style() -> Iterator[None]:
    """The style sheet ``style.mplstyle``, for as long as a picture is drawn.

    Raises:
        InputError: matplotlib is not installed.
    """
    mpl = load_optional("pictures", "matplotlib", "plots")
    with mpl.rc_context():
        mpl.rc_file(Path(__file__).with_name("style.mplstyle"), use_default_template=False)
        mpl.rcParams["axes.titlesize"] = 9.5 if is_slide() else 11.0  # panels of a slide are narrow
        yield


def part(name: str) -> Look | None:
    """Colour and hatch of a part of a time or of a memory; None where it has none of its own.

    >>> part("feedforward") == part("weights: feedforward"), part("KV cache of 32 requests")
    (True, ('#d9731f', ''))
    """
    return PARTS.get(name.partition(" of ")[0] if name.startswith("KV cache") else name)


def line(i: int) -> Options:
    """Colour, dash and marker of the curve number ``i``: none is known by its colour alone."""
    return {
        "color": SERIES[i % len(SERIES)],
        "linestyle": DASHES[i % len(DASHES)],
        "marker": MARKERS[i % len(MARKERS)],
    }


def key(label: str, look: Look) -> "Patch":
    """The key of a legend for bars of this look."""
    from matplotlib.patches import Patch

    return Patch(label=label, facecolor=look[0], hatch=look[1], edgecolor="white")


def subplots(
    rows: int = 1,
    columns: int = 1,
    *,
    height: float,
    width: float = WIDE,
    title: str = "",
    caption: str = "",
    **options: Any,
) -> tuple[Figure, list[Axes]]:
    """As ``plt.subplots(layout="constrained")``: axes that share ``height`` inches, row by row.

    A title stands above them, a caption below; a slide has its own size. The axes lie in a
    subfigure, whose legend may lie outside of them. Call within ``style()``.
    """
    from infer_jax.plots.picture import Picture

    width = SLIDE[0] if is_slide() else width
    titles = textwrap.wrap(words(title), int(width * 8.6))
    lines = textwrap.wrap(words(caption), int(width * 14.5))
    inches = height + 0.2 * max(len(titles) - 1, 0) + 0.17 * len(lines) + 0.12
    if is_slide():
        inches, lines = SLIDE[1], [_one_line(words(caption), int(width * 14.5))]
    figure = Picture(figsize=(width, inches), layout="constrained")
    if titles:
        figure.suptitle("\n".join(titles), x=0.012, ha="left")
    if lines:
        figure.supxlabel("\n".join(lines), x=0.012, ha="left", color=QUIET)
    inner: SubFigure = figure.subfigures()  # pyright: ignore[reportAssignmentType]
    return figure, list(inner.subplots(rows, columns, squeeze=False, **options).flat)


def _one_line(caption: str, longest: int) -> str:
    """The facts that begin a caption, as many as fit in a line.

    >>> _one_line("4,096 tokens in, 512 out; fp8; $2.10 per GPU-hour. A dot is a plan.", 40)
    '4,096 tokens in, 512 out; fp8.'
    """
    first, *facts = caption.partition(". ")[0].removesuffix(".").split("; ")
    for fact in facts:
        first += f"; {fact}" * (len(first) + len(fact) + 3 <= longest)
    return textwrap.shorten(f"{first}.", longest, placeholder=" ...") if caption else ""


def panels(
    count: int, title: str = "", caption: str = "", *, shared: bool = True
) -> tuple[Figure, Sequence[Axes]]:
    """A figure of ``count`` panels side by side, titled and captioned; ``shared``: their axes.

    Two panels share the width of one; more are wider. Call within ``style()``.
    """
    width, height = (WIDE, 4.6 if count == 1 else 3.9) if count <= 2 else (5.2 * count, 4.6)
    looks: Options = {"title": title, "caption": caption, "sharex": shared, "sharey": shared}
    return subplots(1, count, height=height, width=width, **looks)


def write(
    axes: Axes, text: str, at: tuple[float, float], by: tuple[float, float] = (0, 0), **look: Any
) -> "Annotation":
    """A text near a point, moved ``by`` so many points of type."""
    look = {"fontsize": 9, "color": INK, "va": "center", **look}
    return axes.annotate(text, at, by, textcoords="offset points", **look)


def write_below(axes: Axes, point: tuple[float, float], text: str, *, left: bool = False) -> None:
    """Words below a mark, right of it or left: above it are the curves that rise to the right."""
    if text:
        side, gap = ("right", -9) if left else ("left", 9)
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5}
        write(axes, text, point, (gap, -6), ha=side, va="top", zorder=5, bbox=box)


def draw_limit(axes: Axes, x: float, text: str, *, right: bool = False) -> None:
    """A dashed line across all bars at ``x``, with words on top, left of it or right."""
    side, gap = ("left", 3) if right else ("right", -3)
    axes.axvline(x, color=INK, linewidth=1.4, linestyle=(0, (4, 2)), zorder=3)
    look: Options = {"xycoords": ("data", "axes fraction"), "fontsize": 8.5}
    write(axes, text, (x, 1.0), (gap, 3), ha=side, va="bottom", **look)


def stacked_axes(
    heights: Sequence[float], more: float, **words: Unpack[Words]
) -> tuple[Figure, list[Axes]]:
    """``subplots`` one below the other, of these heights in inches, ``more`` around them.

    On a slide they stand side by side where it is too low for all.
    """
    if is_slide() and len(heights) > 1 and sum(heights) + more > SLIDE[1]:
        return subplots(1, len(heights), height=SLIDE[1], **words)
    return subplots(len(heights), height=sum(heights) + more, height_ratios=heights, **words)


def draw_rows(
    axes: Axes,
    names: Sequence[str],
    widths: Sequence[float],
    looks: Sequence[Look],
    left: float | Sequence[float] = 0.0,
) -> "BarContainer":
    """One horizontal bar for each name, the first on top, in these colours and hatches."""
    colours, hatches = [colour for colour, _ in looks], [hatch for _, hatch in looks]
    more: Options = {"color": colours, "hatch": hatches, "edgecolor": "white", "linewidth": 0.8}
    name_rows(axes, names)
    return axes.barh(range(len(names)), widths, left=left, height=0.72, **more)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of horizontal bars on their left, the first on top, with no line across."""
    axes.set_yticks(range(len(names)) if any(names) else [], names if any(names) else [])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)


def readable(axes: Axes, most: float = 30.0, written: Written = "{x:,g}") -> None:
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


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a picture whole, or none, in the format of its suffix; the folder is made.

    The file carries the figure's title and caption, for pages and readers that show no picture.

    Raises:
        InputError: the place cannot be written.
        OSError: the disk is full or failing.
    """
    path = Path(path)
    with suppress(OSError):  # which whoever writes there says
        path.parent.mkdir(parents=True, exist_ok=True)
    title, caption = heading_and_caption(figure)
    key = {".png": "Description", ".svg": "Description", ".pdf": "Subject"}.get(path.suffix.lower())
    metadata = {"Title": title, key: f"{title}. {caption}".strip()} if key else None
    with replace_file(path) as partial:
        figure.savefig(partial, metadata=metadata, dpi=PIXELS / min(WIDE, figure.get_figwidth()))
    return path


def words(text: str) -> str:
    r"""A text of others for a title or a label: neither a formula nor a character of control.

    >>> words("a$b$") == words(words("a$b$"))
    True
    """
    return DOLLAR.sub(r"\\$", printable(text))


def heading_and_caption(figure: Figure) -> tuple[str, str]:
    """The title and the caption of a figure, each in one line, as a reader sees them."""
    both = (figure.get_suptitle(), figure.get_supxlabel())
    title, caption = (" ".join(text.split()).replace(r"\$", "$") for text in both)
    return title, caption
