"""The chart of plans: how fast a request is against what it costs, every system and format."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from infer_jax.catalog.published import facts, unseen
from infer_jax.pages import look, vega

Row = dict[str, object]
BAND = (
    "80 % of measured servers: one that takes longer for a token is dearer by as much, for it has "
    "the same requests in flight"
)
LEAST, MOST = unseen(facts(pools=True))["ttft"][80]
BARE = (
    "; pools have no band: their TTFT was never fitted, and 80 % of measured ones have "
    f"{LEAST:.2g} to {MOST:.2g} times the predicted TTFT"
)


def in_words(text: str) -> str:
    """A layout or systems of two pools with an arrow, and with words before the pools' layouts.

    >>> in_words("3 x TP1 > 1 x TP2"), in_words("h100_sxm > h200_sxm"), in_words("2 x TP4")
    ('prefill 3 x TP1 → decode 1 x TP2', 'h100_sxm → h200_sxm', '2 x TP4')
    """
    first, pools, second = text.partition(" > ")
    if not pools:
        return text
    layout = " x " in first
    return f"{'prefill ' * layout}{first} → {'decode ' * layout}{second}"


class ChartAxis(NamedTuple):
    """A number of a plan: its name in the data, what it is with its unit, its short name."""

    key: str
    title: str
    short: str
    log: bool = True

    def paid_in(self, currency: str) -> "ChartAxis":
        """The axis with another currency than dollars."""
        title, short = self.title.replace("USD", currency), self.short.replace("$", f"{currency} ")
        return self._replace(title=title, short=short)


SPEED = ChartAxis("speed", "speed of a request, output tokens/s", "tokens/s per user", log=False)
ACROSS = (
    SPEED,
    ChartAxis("latency", "time of a whole request, s", "s per request"),
    ChartAxis("ttft", "time to first token, ms", "TTFT, ms"),
)
UP = (
    ChartAxis("usd", "USD per million tokens, in and out", "$/Mtok"),
    ChartAxis("usd_out", "USD per million output tokens", "$/Mtok out"),
    ChartAxis("rate", "output tokens/s per GPU", "tokens/s/GPU", log=False),
)
LEGEND = 680.0  # pixels that a legend may take
DECADES = 4.0  # ratio of the ends of an axis from which it is logarithmic


class Plotted(NamedTuple):
    """A plan: its series, what it is in words, its numbers and the ends of their 80 % bands.

    ``line``: whether it is on the frontier of its series; ``command``: what answers it alone.
    """

    series: str
    layout: str
    gpus: float
    batch: float
    numbers: Mapping[str, float | None]
    bands: Mapping[str, tuple[float, float]] = {}
    pools: bool = False
    line: bool = True
    command: str = ""

    def row(self, place: int) -> Row:
        """The plan as a row of the chart's data."""
        ends = {f"{key}_{side}": x for key, both in self.bands.items()
                for side, x in zip(("fast", "slow"), both, strict=True)}  # fmt: skip
        return {
            "id": place,
            "series": self.series,
            "group": f"{self.series}, two pools" if self.pools else self.series,
            "layout": self.layout,
            "plan": in_words(self.layout),
            "gpus": float(self.gpus),
            "batch": float(self.batch),
            **self.numbers,
            **ends,
            "banded": bool(self.bands),
            "pools": self.pools,
            "line": self.line,
            "command": self.command,
        }


class RunPoint(NamedTuple):
    """A measured run: where it was measured, what it is in words, its numbers."""

    series: str
    what: str
    numbers: Mapping[str, float | None]


class PlanSeries(NamedTuple):
    """The plans of one system and format; ``shown``: from the start; ``tone``: of its system."""

    label: str
    tone: int
    shown: bool = True


class Tradeoff(NamedTuple):
    """What the chart shows: plans, which of them is chosen, measured runs, limits in ms."""

    series: Sequence[PlanSeries]
    plans: Sequence[Plotted]
    chosen: int | None
    runs: Sequence[RunPoint] = ()
    ttft: float | None = None
    tpot: float | None = None
    label: str = ""
    currency: str = "USD"

    def up(self) -> list[ChartAxis]:
        """Axes upwards that every plan which is shown has numbers for, the first the first."""
        mine = self._numbers()
        known = [a for a in UP if all(n.get(a.key) is not None for n in mine)]
        return known if self.currency == "USD" else [a.paid_in(self.currency) for a in known]

    def across(self) -> list[ChartAxis]:
        """Axes to the right that some plan which is shown has numbers for."""
        mine = self._numbers()
        return [a for a in ACROSS if any(n.get(a.key) is not None for n in mine)]

    def waits(self) -> bool:
        """Whether a time to the first token is known of any plan."""
        return any(plan.numbers.get("ttft") is not None for plan in self.plans)

    def pooled(self) -> bool:
        """Whether any plan has separate pools."""
        return any(plan.pools for plan in self.plans)

    def band(self) -> str:
        """What the bands are, and why pools have none, in words; empty where none is drawn."""
        return BAND + BARE * self.pooled() if any(plan.bands for plan in self.plans) else ""

    def _numbers(self) -> list[Mapping[str, float | None]]:
        """Numbers of the plans of frontiers that are shown; of the others where there are none."""
        first = {x.label for x in self.series if x.shown}
        mine = [plan for plan in self.plans if plan.series in first]
        return [plan.numbers for plan in mine if plan.line] or [plan.numbers for plan in mine]

    def rows(self) -> list[Row]:
        """The plans as the chart's data; the chosen one says so."""
        return [plan.row(i) | {"chosen": i == self.chosen} for i, plan in enumerate(self.plans)]


def still(shown: Tradeoff) -> Row:
    """The chart as it is before anything is chosen, for where no script runs."""
    whole = chart(shown)
    layers = whole["layer"]
    assert isinstance(layers, list)
    if shown.tpot is None:
        layers = [one for one in layers if not str(one.get("name")).startswith("limit")]
    if not any(plan.bands for plan in shown.plans):
        layers = [one for one in layers if one.get("name") != "band"]
    if not any(run.numbers.get(shown.up()[0].key) is not None for run in shown.runs):
        layers = [one for one in layers if one.get("name") != "runs"]
    ring = {**layers[-2], "transform": [{"filter": "datum.chosen"}]}
    layers = [*layers[:-2], ring]  # nothing can be picked
    return {**whole, "layer": layers}


def chart(shown: Tradeoff) -> Row:
    """The chart in Vega-Lite; its parameters say which axes, limits and series are shown.

    Layers whose names begin with "limit" are for an axis and a limit that go together, "band" and
    "runs" are for axes that they have numbers of.
    """
    x, y = shown.across()[0], shown.up()[0]
    labels = [one.label for one in shown.series]
    tones = [look.TONES[one.tone % len(look.TONES)] for one in shown.series]
    shapes = [look.SHAPES[i % len(look.SHAPES)] for i in range(len(labels))]
    first = [one.label for one in shown.series if one.shown]
    columns = max(1, int(LEGEND / (7 * max(map(len, labels), default=1) + 40)))
    legend = {"orient": "top", "title": None, "columns": columns, "offset": 4, "values": first}
    series = {"field": "series", "type": "nominal", "legend": legend}
    tone = {**series, "scale": {"domain": labels, "range": tones}}
    shape = {**series, "scale": {"domain": labels, "range": shapes}}
    runs = [{"series": r.series, "what": r.what, **r.numbers} for r in shown.runs]
    return {
        "$schema": vega.SCHEMA,
        "description": shown.label,
        "config": look.CONFIG,
        "width": "container",
        "height": 400,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "datasets": {"plans": shown.rows(), "runs": runs},
        "params": _params(shown, x, y),
        "data": {"name": "plans"},
        "transform": [*_axes(), {"filter": "indexof(shown, datum.series) >= 0"}],
        "encoding": {"x": channel("x", x, shown), "y": channel("y", y, shown)},
        "layer": [
            _slow(),
            _limit(),
            _band(tone),
            _lines(tone),
            _points(tone, shape, shown.up()),
            *([_runs()] if runs else []),
            _ring("datum.chosen", 420.0, "the plan"),
            _ring("indexof(picked, datum.id) >= 0", 230.0, ""),
        ],
    }


def _params(shown: Tradeoff, x: ChartAxis, y: ChartAxis) -> list[Row]:
    """What the controls of the page set."""
    return [
        {"name": "xkey", "value": x.key},
        {"name": "ykey", "value": y.key},
        {"name": "ttft", "value": shown.ttft},
        {"name": "tpot", "value": shown.tpot},
        {"name": "shown", "value": [one.label for one in shown.series if one.shown]},
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


def channel(name: str, axis: ChartAxis, shown: Tradeoff) -> Row:
    """An axis, as the page shows it where it is chosen; decades alike where numbers span some."""
    every = [(plan.line, plan.numbers.get(axis.key)) for plan in shown.plans]
    known = [x for line, x in every if line and x is not None]
    known = known or [x for _, x in every if x is not None]
    log = axis.log and min(known) > 0.0 and max(known) > DECADES * min(known)
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
    shown = {"condition": {"test": test, "value": 1}, "value": 0}
    marks = [{**ring, "color": look.INK}, *([halo, {**text, "color": look.INK}] if words else [])]
    return {"encoding": {"opacity": shown}, "layer": [{"mark": mark} for mark in marks]}
