"""The charts of a report: marks over two axes, bars, and memory tiers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from infer_jax.pages import svg
from infer_jax.plots.style import INK, QUIET, TONES

WIDTH = 680.0
ROW = 22.0  # pixels of one bar
LETTER = 7.0  # pixels of one letter of a label, about


class Mark(NamedTuple):
    """A point, its kind (see ``scatter``), and what the pointer tells of it."""

    x: float
    y: float
    title: str
    kind: int = 0


class Curve(NamedTuple):
    """A line through points, dashed or not."""

    points: Sequence[tuple[float, float]]
    dashed: bool = False
    label: str = ""


class Axis(NamedTuple):
    """What an axis shows, with its unit, and whether decades are of equal length."""

    title: str
    log: bool = False


class Bar(NamedTuple):
    """A bar, the words at its end, and what the pointer tells of it; ``faint``: lighter."""

    label: str
    value: float
    said: str
    title: str
    faint: bool = False


class Tier(NamedTuple):
    """A memory, its bytes, and what fills it: (label, bytes, what the pointer tells)."""

    label: str
    capacity: float
    parts: Sequence[tuple[str, float, str]]


def scatter(
    label: str,
    marks: Sequence[Mark],
    kinds: Mapping[int, str],
    axes: tuple[Axis, Axis],
    curves: Sequence[Curve] = (),
) -> str:
    """Marks over two axes with a legend of their ``kinds``, curves behind them."""
    box = svg.Box(76.0, 34.0, WIDTH - 14.0, 350.0)
    picture = svg.canvas(WIDTH, box.bottom + 44.0, label)
    xs = [m.x for m in marks] + [x for c in curves for x, _ in c.points]
    ys = [m.y for m in marks] + [y for c in curves for _, y in c.points]
    x = svg.scale(xs, box.left, box.right, log=axes[0].log)
    y = svg.scale(ys, box.bottom, box.top, log=axes[1].log)
    svg.axes(picture, box, x, y, (axes[0].title, axes[1].title))
    for curve in curves:
        line = " ".join(f"{x(a):.6g},{y(b):.6g}" for a, b in curve.points)
        look = {"stroke": INK, "stroke_width": 1.5, "fill": "none"}
        dash = {"stroke_dasharray": "6 3"} if curve.dashed else {}
        svg.add(picture, "polyline", points=line, **look, **dash)
        if curve.label:
            at = curve.points[-1]
            svg.write(picture, x(at[0]) - 4, y(at[1]) - 6, curve.label, "end", QUIET)
    for one in sorted(marks, key=lambda m: m.kind):  # the few of note lie on top
        svg.mark(picture, one.kind, x(one.x), y(one.y), one.title)
    at = box.left
    for kind, name in kinds.items():
        svg.mark(picture, kind, at + 6, 14)
        svg.write(picture, at + 16, 18, name)
        at += 34 + LETTER * len(name)
    return svg.text_of(picture)


def bars(label: str, rows: Sequence[Bar], axis: str, width: float = WIDTH) -> str:
    """Bars to the right, and to the left where they are negative, each with its words."""
    left = 14.0 + LETTER * max((len(r.label) for r in rows), default=0)
    box = svg.Box(left, 6.0, width - 14.0, 6.0 + ROW * len(rows))
    picture = svg.canvas(width, box.bottom + 40.0, label)
    low, high = svg.around([r.value for r in rows], log=False)
    # room for the words beyond the longest bar
    room = (high - low) * 0.16
    low, high = low - room * (low < 0), high + room
    x = svg.Scale(low, high, box.left, box.right)
    for value in x.ticks():
        at = x(value)
        svg.add(picture, "line", x1=at, y1=box.top, x2=at, y2=box.bottom, stroke=svg.GRID)
        svg.write(picture, at, box.bottom + 14, svg.plain(value), "middle", QUIET)
    for i, row in enumerate(rows):
        top, end = box.top + ROW * i, x(row.value)
        tone = TONES[3] if row.faint else TONES[0]
        start, length = min(x(0.0), end), abs(end - x(0.0))
        shape = {"x": start, "y": top + 3, "width": max(length, 0.5), "height": ROW - 6}
        svg.add(picture, "rect", row.title, **shape, fill=tone)
        svg.write(picture, box.left - 8, top + 15, row.label, "end")
        away = (end + 5, "start") if row.value >= 0 else (end - 5, "end")
        svg.write(picture, away[0], top + 15, row.said, away[1], QUIET)
    zero = x(0.0)
    svg.add(picture, "line", x1=zero, y1=box.top, x2=zero, y2=box.bottom, stroke=INK)
    svg.write(picture, (box.left + box.right) / 2, box.bottom + 32, axis, "middle")
    return svg.text_of(picture)


def tiers(label: str, rows: Sequence[Tier]) -> str:
    """One bar a memory, as long as it is full; what it is full of stands below it."""
    high, left = 62.0, 14.0
    picture = svg.canvas(WIDTH, high * len(rows) + 6.0, label)
    for i, row in enumerate(rows):
        top, at = high * i + 4, left
        length = WIDTH - 2 * left
        whole = max(row.capacity, sum(size for _, size, _ in row.parts)) or 1.0
        svg.write(picture, left, top + 12, row.label)
        frame = {"x": left, "y": top + 18, "width": length, "height": 18, "fill": "none"}
        svg.add(picture, "rect", **frame, stroke=QUIET)
        legend = left
        for k, (name, size, title) in enumerate(row.parts):
            tone, wide = TONES[k % len(TONES)], length * size / whole
            shape = {"x": at, "y": top + 18, "width": wide, "height": 18}
            svg.add(picture, "rect", title, **shape, fill=tone, stroke="white")
            svg.add(picture, "rect", x=legend, y=top + 43, width=10, height=10, fill=tone)
            svg.write(picture, legend + 14, top + 52, name, fill=QUIET)
            at, legend = at + wide, legend + 28 + LETTER * len(name)
    return svg.text_of(picture)
