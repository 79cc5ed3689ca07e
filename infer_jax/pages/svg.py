"""Charts in plain SVG: elements, scales, axes and marks.

Inline SVG keeps a page in one file, its text can be searched, and a ``title`` inside a mark is
what a browser shows while the pointer rests on it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree as ET

from infer_jax.plots.style import INK, QUIET, TONES

GRID = "#dddddd"
RADIUS = 3.5


class Box(NamedTuple):
    """Where curves are drawn, in pixels of the picture."""

    left: float
    top: float
    right: float
    bottom: float


class Scale(NamedTuple):
    """Numbers to pixels; ``log``: decades are of equal length."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a number.

        >>> Scale(1.0, 100.0, 0.0, 200.0, log=True)(10.0)
        100.0
        """
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, 1e-300))
        return self.start + (at - low) / (high - low) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Round numbers within: 1, 2, 5 of each decade, decades alone where there are many.

        >>> Scale(0.0, 47.0, 0.0, 1.0).ticks(), Scale(0.3, 20.0, 0.0, 1.0, log=True).ticks()
        ([0.0, 10.0, 20.0, 30.0, 40.0], [0.5, 1.0, 2.0, 5.0, 10.0, 20.0])
        """
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            each = (1.0, 2.0, 5.0) if last - first <= 3 else (1.0,)
            found = [float(f"{m:g}e{k}") for k in range(first, last + 1) for m in each]
        else:
            rough = (self.high - self.low) / 5.0
            unit = 10.0 ** math.floor(math.log10(rough))
            step = next(m for m in (1.0, 2.0, 5.0, 10.0) if m * unit >= rough) * unit
            count = range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
            found = [k * step for k in count]
        edge = 1e-9 * (self.high - self.low)
        return [x for x in found if self.low - edge <= x <= self.high + edge]


def around(values: Sequence[float], *, log: bool) -> tuple[float, float]:
    """Ends of an axis that holds all values: from 0, or a little beyond on a logarithmic one."""
    if log:
        return min(values) / 1.3, max(values) * 1.3
    return min([0.0, *(1.05 * v for v in values)]), 1.05 * max([0.0, *values]) or 1.0


def scale(values: Sequence[float], start: float, stop: float, *, log: bool) -> Scale:
    """An axis that holds all values; a zero among them (a price, say) has no logarithm.

    >>> scale([0.0, 4.0], 0.0, 1.0, log=True).log
    False
    """
    log = log and min(values) > 0.0
    return Scale(*around(values, log=log), start, stop, log)


def clean(text: object) -> str:
    """A text without characters that XML and HTML forbid or that turn the writing around."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))


def canvas(width: float, height: float, label: str) -> ET.Element:
    """An empty picture, with what a reader of the screen says of it."""
    size = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
    return ET.Element("svg", {**size, "role": "img", "aria-label": clean(label)})


def add(parent: ET.Element, tag: str, title: str = "", **attributes: object) -> ET.Element:
    """A shape, with a ``title`` that is shown while the pointer is on it."""
    named = {
        name.replace("_", "-"): f"{x:.6g}" if isinstance(x, float | int) else str(x)
        for name, x in attributes.items()
    }
    made = ET.SubElement(parent, tag, named)
    if title:
        ET.SubElement(made, "title").text = clean(title)
    return made


def write(
    parent: ET.Element, x: float, y: float, text: object, anchor: str = "start", fill: str = INK
) -> ET.Element:
    """A line of text."""
    made = add(parent, "text", x=x, y=y, text_anchor=anchor, fill=fill)
    made.text = clean(text)
    return made


def axes(svg: ET.Element, box: Box, x: Scale, y: Scale, titles: tuple[str, str]) -> None:
    """Grid, ticks and what the axes are, units in the titles."""
    for value in x.ticks():
        at = x(value)
        add(svg, "line", x1=at, y1=box.top, x2=at, y2=box.bottom, stroke=GRID)
        write(svg, at, box.bottom + 16, plain(value), "middle", QUIET)
    for value in y.ticks():
        at = y(value)
        add(svg, "line", x1=box.left, y1=at, x2=box.right, y2=at, stroke=GRID)
        write(svg, box.left - 6, at + 4, plain(value), "end", QUIET)
    for x2, y2 in ((box.right, box.bottom), (box.left, box.top)):
        add(svg, "line", x1=box.left, y1=box.bottom, x2=x2, y2=y2, stroke=QUIET)
    write(svg, (box.left + box.right) / 2, box.bottom + 36, titles[0], "middle")
    turned = write(svg, 0, 0, titles[1], "middle")
    turned.set("transform", f"translate(14 {(box.top + box.bottom) / 2:g}) rotate(-90)")


def mark(svg: ET.Element, kind: int, x: float, y: float, title: str = "") -> ET.Element:
    """A mark of kind 0, 1, 2 ...: disc, diamond, square, ring, each of a tone of its own."""
    tone, r = TONES[(0, 3, 2, 5)[kind % 4]], RADIUS if kind == 0 else 1.6 * RADIUS
    look: dict[str, object] = {"fill": tone, "stroke": "white", "stroke_width": 0.5 + kind % 4}
    if kind % 4 == 1:
        corners = ((x, y - r), (x + r, y), (x, y + r), (x - r, y))
        points = " ".join(f"{a:.6g},{b:.6g}" for a, b in corners)
        return add(svg, "polygon", title, points=points, **look)
    if kind % 4 == 2:
        side = 1.7 * r
        corner = {"x": x - side / 2, "y": y - side / 2, "width": side, "height": side}
        return add(svg, "rect", title, **corner, **look)
    if kind % 4 == 3:
        look |= {"fill": "white", "stroke": tone, "stroke_width": 2}
    return add(svg, "circle", title, cx=x, cy=y, r=r, **look)


def plain(value: float) -> str:
    """A number of an axis.

    >>> plain(20000.0), plain(0.05)
    ('20,000', '0.05')
    """
    return f"{value:,.10g}" if abs(value) < 1e7 else f"{value:.3g}"


def text_of(svg: ET.Element) -> str:
    """The picture as it stands in a page; on a narrow screen it scrolls in its own frame."""
    return f'<div class="picture">{ET.tostring(svg, encoding="unicode")}</div>'
