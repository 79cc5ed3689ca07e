"""The chart of plans in Vega-Lite, to point into."""

from infer_jax.pages import look, vega
from infer_jax.plots.plan_chart import ChartAxis, PlanChart

Row = dict[str, object]
LEGEND = 680.0  # pixels that a legend may take
DECADES = 4.0  # ratio of the ends of an axis from which it is logarithmic


def still_chart(plans: PlanChart) -> Row:
    """The chart as it is before anything is chosen, for where no script runs."""
    spec = vega_chart(plans)
    layers = spec["layer"]
    assert isinstance(layers, list)
    if plans.tpot is None:
        layers = [x for x in layers if not str(x.get("name")).startswith("limit")]
    if not any(plan.bands for plan in plans.plans):
        layers = [x for x in layers if x.get("name") != "band"]
    if not any(run.numbers.get(plans.up()[0].key) is not None for run in plans.runs):
        layers = [x for x in layers if x.get("name") != "runs"]
    ring = {**layers[-2], "transform": [{"filter": "datum.chosen"}]}
    layers = [*layers[:-2], ring]  # nothing can be picked
    return {**spec, "layer": layers}


def vega_chart(plans: PlanChart) -> Row:
    """The chart in Vega-Lite; its parameters say which axes, limits and series are shown.

    Layers whose names begin with "limit" are for an axis and a limit that go together, "band" and
    "runs" are for axes that they have numbers of.
    """
    x, y = plans.across()[0], plans.up()[0]
    labels = [x.label for x in plans.series]
    tones = [look.TONES[x.tone % len(look.TONES)] for x in plans.series]
    shapes = [look.SHAPES[i % len(look.SHAPES)] for i in range(len(labels))]
    first = [x.label for x in plans.series if x.visible]
    columns = max(1, int(LEGEND / (7 * max(map(len, labels), default=1) + 40)))
    legend = {"orient": "top", "title": None, "columns": columns, "offset": 4, "values": first}
    series = {"field": "series", "type": "nominal", "legend": legend}
    tone = {**series, "scale": {"domain": labels, "range": tones}}
    shape = {**series, "scale": {"domain": labels, "range": shapes}}
    runs = [{"series": r.series, "what": r.what, **r.numbers} for r in plans.runs]
    return {
        "$schema": vega.SCHEMA,
        "description": plans.label,
        "config": look.CONFIG,
        "width": "container",
        "height": 400,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "datasets": {"plans": plans.rows(), "runs": runs},
        "params": _params(plans, x, y),
        "data": {"name": "plans"},
        "transform": [*_axes(), {"filter": "indexof(shown, datum.series) >= 0"}],
        "encoding": {"x": channel("x", x, plans), "y": channel("y", y, plans)},
        "layer": [
            _slow(),
            _limit(),
            _band(tone),
            _lines(tone),
            _points(tone, shape, plans.up()),
            *([_runs()] if runs else []),
            _ring("datum.chosen", 420.0, "the plan"),
            _ring("indexof(picked, datum.id) >= 0", 230.0, ""),
        ],
    }


def _params(plans: PlanChart, x: ChartAxis, y: ChartAxis) -> list[Row]:
    """What the controls of the page set."""
    return [
        {"name": "xkey", "value": x.key},
        {"name": "ykey", "value": y.key},
        {"name": "ttft", "value": plans.ttft},
        {"name": "tpot", "value": plans.tpot},
        {"name": "shown", "value": [x.label for x in plans.series if x.visible]},
        {"name": "picked", "value": []},
    ]


def _axes() -> list[Row]:
    """The numbers of the chosen axes as x and y, and whether the limits hold."""
    within = "(ttft === null || datum.ttft === null || datum.ttft <= ttft * 1.0000001)"
    within += " && (tpot === null || datum.tpot <= tpot * 1.0000001)"
    return [
        {"calculate": "datum[xkey]", "as": "x"},
        {"calculate": "datum[ykey]", "as": "y"},
        {"calculate": within, "as": "within"},
        {"filter": "isValid(datum.x) && isValid(datum.y)"},
    ]


def channel(name: str, axis: ChartAxis, plans: PlanChart) -> Row:
    """An axis, as the page shows it where it is chosen; decades alike where numbers span some."""
    numbers = [(plan.line, plan.numbers.get(axis.key)) for plan in plans.plans]
    known = [x for line, x in numbers if line and x is not None]
    known = known or [x for _, x in numbers if x is not None]
    log = axis.log and bool(known) and min(known) > 0.0 and max(known) > DECADES * min(known)
    written = "format(datum.value, ',.6~g')"
    if log:  # 1, 2 and 5 of each decade are numbered
        lead = "indexof(['1', '2', '5'], slice(format(datum.value, '.0e'), 0, 1)) >= 0"
        written = f"{lead} ? {written} : ''"
    scale = {"type": "log", "nice": False, "padding": 28} if log else {"type": "linear"}
    return {
        "field": name,
        "type": "quantitative",
        "title": axis.title,
        "scale": scale,
        "axis": {"labelExpr": written, "tickCount": 6, "labelOverlap": not log},
    }


AT = "xkey === 'speed' ? 1000 / tpot : ttft"


def _slow() -> Row:
    """The side of a limit on which plans break it."""
    edge = {"expr": "xkey === 'ttft' ? width : 0"}
    return {
        "name": "limit_side",
        "data": {"values": [{}]},
        "transform": [{"calculate": AT, "as": "at"}],
        "mark": {"type": "rect", "color": "#8b949e", "opacity": 0.13, "clip": True},
        "encoding": {
            "x": {"field": "at", "type": "quantitative"},
            "x2": {"value": edge},
            "y": {"value": 0},
            "y2": {"value": {"expr": "height"}},
        },
    }


def _limit() -> Row:
    """A limit as a dashed line, with its words."""
    said = (
        "(xkey === 'speed' ? 'TPOT ' + format(tpot, '~r') : 'TTFT ' + format(ttft, '~r')) + ' ms'"
    )
    rule = {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.4, "color": look.QUIET}
    text = {"type": "text", "align": "left", "dx": 5, "baseline": "top", "dy": 2}
    text["color"] = look.QUIET
    x = {"field": "at", "type": "quantitative"}
    return {
        "name": "limit_line",
        "data": {"values": [{}]},
        "transform": [{"calculate": AT, "as": "at"}, {"calculate": said, "as": "said"}],
        "encoding": {"x": x, "y": {"value": 0}},
        "layer": [
            {"mark": rule, "encoding": {"y2": {"value": {"expr": "height"}}}},
            {"mark": text, "encoding": {"text": {"field": "said"}}},
        ],
    }


def _band(fill: Row) -> Row:
    """What 80 % of measured servers are in, around each frontier of one pool."""
    first, last = "datum.order", "1e6 - datum.order"
    return {
        "name": "band",
        "transform": [
            {"filter": "datum.banded && datum.line"},
            {"window": [{"op": "row_number", "as": "order"}],
             "groupby": ["group"], "sort": [{"field": "speed", "order": "ascending"}]},
            {"calculate": "['fast', 'slow']", "as": "side"},
            {"flatten": ["side"]},
            {"calculate": "datum[xkey + '_' + datum.side]", "as": "x"},
            {"calculate": "datum[ykey + '_' + datum.side]", "as": "y"},
            {"filter": "isValid(datum.x) && isValid(datum.y)"},
            {"calculate": f"datum.side === 'fast' ? {first} : {last}", "as": "place"},
        ],
        "mark": {"type": "line", "filled": True, "fillOpacity": 0.16, "strokeWidth": 0},
        "encoding": {
            "order": {"field": "place", "type": "quantitative"},
            "detail": {"field": "group"},
            "fill": fill,
        },
    }  # fmt: skip


def _lines(stroke: Row) -> Row:
    """The frontier of each series, dashed where its plans have two pools."""
    return {
        "transform": [{"filter": "datum.line"}],
        "mark": {"type": "line", "strokeWidth": 1.6, "clip": True,
                 "opacity": {"expr": "xkey === 'ttft' ? 0 : 0.9"}},
        "encoding": {
            "order": {"field": "speed", "type": "quantitative"},
            "detail": {"field": "group"},
            "stroke": stroke,
            "strokeDash": {"condition": {"test": "datum.pools", "value": [2, 3]},
                           "value": [1, 0]},
        },
    }  # fmt: skip


def _points(tone: Row, shape: Row, up: list[ChartAxis]) -> Row:
    """Every plan, hollow with two pools, faint beyond the limits; words beside the pointer."""
    words = [
        ("group", "system", None),
        ("plan", "plan", None),
        ("gpus", "GPUs", ",~r"),
        ("batch", "requests in flight in each", ",.4~r"),
        ("speed", "tokens/s of a request", ",.3~r"),
        ("ttft", "TTFT, ms", ",.3~r"),
        ("tpot", "TPOT, ms", ",.3~r"),
        *((axis.key, axis.title, ",.3~r") for axis in up),
    ]
    tooltip = [
        {"field": key, "title": title, **({"format": form, "type": "quantitative"} if form else {})}
        for key, title, form in words
    ]
    return {
        "name": "points",
        "mark": {"type": "point", "size": 55, "strokeWidth": 1.6, "clip": True},
        "encoding": {
            "stroke": tone,
            "fill": {"condition": {"test": "datum.pools", "value": "transparent"}, **tone},
            "shape": shape,
            "opacity": {"condition": {"test": "datum.within", "value": 1}, "value": 0.25},
            "tooltip": tooltip,
        },
    }


def _runs() -> Row:
    """Measured runs as diamonds, as in all pictures."""
    return {
        "name": "runs",
        "data": {"name": "runs"},
        "transform": [*_axes(), {"filter": "indexof(shown, datum.series) >= 0"}],
        "mark": {"type": "point", "shape": "diamond", "size": 90, "filled": False,
                 "strokeWidth": 2.2, "color": look.INK},
        "encoding": {"tooltip": [{"field": "what", "title": "measured"}]},
    }  # fmt: skip


def _ring(test: str, size: float, words: str) -> Row:
    """A ring around the plans of which a test holds, with words beside them."""
    ring = {"type": "point", "shape": "circle", "size": size, "strokeWidth": 2.2, "filled": False}
    # below: no plan of a frontier is cheaper and faster
    text = {"type": "text", "text": words, "align": "left", "dx": 4, "dy": 19, "fontWeight": 600}
    halo = {**text, "stroke": look.GROUNDS["light"], "strokeWidth": 4, "strokeJoin": "round"}
    plans = {"condition": {"test": test, "value": 1}, "value": 0}
    marks = [{**ring, "color": look.INK}, *([halo, {**text, "color": look.INK}] if words else [])]
    return {"encoding": {"opacity": plans}, "layer": [{"mark": mark} for mark in marks]}
