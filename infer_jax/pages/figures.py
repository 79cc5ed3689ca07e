"""The other charts of a page: bars, what fills a memory, kernels under their roofs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from infer_jax.pages import look, vega

Row = dict[str, object]


class Bar(NamedTuple):
    """A bar, the words at its end and beside the pointer; ``faint``: lighter."""

    label: str
    value: float
    text: str
    note: str = ""
    faint: bool = False


class MemoryPart(NamedTuple):
    """A part of a memory: what it is, its bytes, more about it, and its tone."""

    label: str
    size: float
    text: str
    note: str
    tone: str


class KernelPoint(NamedTuple):
    """A kernel: FLOP per byte, TFLOP/s, which pass it is of, and what it is in words."""

    intensity: float
    rate: float
    stage: str
    what: str


def _chart(label: str, rows: Sequence[Mapping[str, object]], **more: object) -> Row:
    """A chart of the width of its container."""
    return {
        "$schema": vega.SCHEMA,
        "description": label,
        "config": look.CONFIG,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": rows},
        **more,
    }


def bars(label: str, rows: Sequence[Bar], axis: str) -> Row:
    """Bars to the right, to the left where they are negative, each with its words at its end."""
    low = min([0.0, *(row.value for row in rows)])
    high = max([0.0, *(row.value for row in rows)])
    margin = 0.22 * (high - low or 1.0)
    ends = [low - margin * (low < 0.0), high + margin * (high > 0.0)]
    x = {"field": "value", "type": "quantitative", "title": axis, "scale": {"domain": ends}}
    x["axis"] = {"tickCount": 5, "labelExpr": "format(datum.value, ',.6~g')"}
    y = {"field": "label", "type": "nominal", "title": None, "sort": None}
    y["axis"] = {"labelLimit": 230, "ticks": False, "domain": False, "labelColor": look.INK}
    tooltip = [{"field": "label", "title": " "}, {"field": "note", "title": " "}]
    faint = {"condition": {"test": "datum.faint", "value": 0.45}, "value": 1}
    right, left = "datum.value >= 0", "datum.value < 0"
    words = {"type": "text", "baseline": "middle", "color": look.QUIET}
    return _chart(
        label,
        [row._asdict() for row in rows],
        height=24 * max(len(rows), 1),
        encoding={"x": x, "y": y, "tooltip": tooltip},
        layer=[
            {"mark": {"type": "bar", "color": look.TONES[0], "height": {"band": 0.7}},
             "encoding": {"opacity": faint}},
            {"transform": [{"filter": right}], "mark": {**words, "align": "left", "dx": 5},
             "encoding": {"text": {"field": "text"}}},
            {"transform": [{"filter": left}], "mark": {**words, "align": "right", "dx": -5},
             "encoding": {"text": {"field": "text"}}},
        ],
    )  # fmt: skip


def filled(label: str, parts: Sequence[MemoryPart], unit: float = 1e9) -> Row:
    """One bar, as long as a memory is full; ``unit``: bytes of a step of its axis, GB."""
    rows = [
        {"part": p.label, "gb": p.size / unit, "text": p.text, "note": p.note, "place": i}
        for i, p in enumerate(parts)
    ]
    labels = [p.label for p in parts]
    tooltip = [{"field": name, "title": " "} for name in ("part", "text", "note")]
    scale = {
        "domain": labels,
        "range": [p.tone for p in parts],
    }
    legend = {"orient": "bottom", "title": None, "columns": 3}
    return _chart(
        label,
        rows,
        height=46,
        mark={"type": "bar", "stroke": look.GROUNDS["light"], "strokeWidth": 1},
        encoding={
            "x": {
                "field": "gb",
                "type": "quantitative",
                "stack": True,
                "title": "GB of a GPU",
                "axis": {"tickCount": 6, "labelOverlap": True},
            },
            "color": {"field": "part", "type": "nominal", "scale": scale, "legend": legend},
            "order": {"field": "place", "type": "quantitative"},
            "tooltip": tooltip,
        },
    )


def roofline(
    label: str, kernels: Sequence[KernelPoint], bandwidth: float, peaks: Mapping[str, float]
) -> Row:
    """Kernels under the roofs of a data sheet; ``bandwidth`` in bytes/s, ``peaks`` in FLOP/s."""
    low = min((k.intensity for k in kernels), default=1.0) / 2.0
    high = 4.0 * max([k.intensity for k in kernels] + [x / bandwidth for x in peaks.values()])
    roofs = [
        {"roof": name, "x": x, "y": min(x * bandwidth, peak) / 1e12, "last": x == high}
        for name, peak in peaks.items()
        for x in (low, peak / bandwidth, high)
    ]
    axis = {"labelExpr": "format(datum.value, ',.6~g')", "tickCount": 6, "labelOverlap": True}
    both = {"type": "quantitative", "scale": {"type": "log", "nice": False}, "axis": axis}
    x = {"field": "x", "title": "FLOP per byte of memory moved", **both}
    y = {"field": "y", "title": "TFLOP/s of one GPU", **both}
    stages = list(dict.fromkeys(k.stage for k in kernels))
    shapes, tones = look.SHAPES[: len(stages)], look.TONES[: len(stages)]
    legend = {"orient": "top", "title": None}
    kind = {"field": "stage", "type": "nominal", "legend": legend}
    text = {"type": "text", "align": "right", "baseline": "bottom", "dy": -3, "color": look.QUIET}
    rows = [{"x": k.intensity, "y": k.rate, "stage": k.stage, "what": k.what} for k in kernels]
    return _chart(
        label,
        rows,
        height=320,
        encoding={"x": x, "y": y},
        layer=[
            {"data": {"values": roofs},
             "mark": {"type": "line", "color": look.QUIET, "strokeWidth": 1.4},
             "encoding": {"detail": {"field": "roof"}}},
            {"data": {"values": roofs}, "transform": [{"filter": "datum.last"}], "mark": text,
             "encoding": {"text": {"field": "roof"}}},
            {"mark": {"type": "point", "size": 60, "filled": True, "opacity": 0.9},
             "encoding": {
                 "color": {**kind, "scale": {"domain": stages, "range": tones}},
                 "shape": {**kind, "scale": {"domain": stages, "range": shapes}},
                 "tooltip": [{"field": "what", "title": " "}]}},
        ],
    )  # fmt: skip
