"""Charts in Vega-Lite, by templates/NAME.json, and pages that lead with the chart of plans."""

import json
import math
from collections.abc import Mapping, Sequence

from infer_jax.pages import page, vega
from infer_jax.pages.vega import Spec
from infer_jax.plots.plan_chart import ChartAxis, PlanChart

Row = Mapping[str, object]
LEGEND = 680.0  # pixels that a legend may take
DECADES = 4.0  # ratio of the ends of an axis from which it is logarithmic
MANY = 1e3  # the same from which only its decades have ticks
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {} {}"


def _chart(name: str, label: str, **values: object) -> Spec:
    """A chart of the width of its container, by the template of that name."""
    return json.loads(page.render(f"{name}.json", label=label, look=vega, **values))


def tradeoff(plans: PlanChart, *, still: bool = False) -> Spec:
    """The chart of plans, to point into.

    ``still``: as it is before anything is chosen, for where no script runs.
    """
    longest = max((len(x.label) for x in plans.series), default=1)
    columns = max(1, int(LEGEND / (7 * longest + 40)))
    values = {"plans": plans, "channel": channel, "columns": columns, "still": still}
    return _chart("tradeoff", plans.label, **values)


def channel(name: str, axis: ChartAxis, plans: PlanChart) -> Row:
    """An axis, as the page shows it where it is chosen; decades alike where numbers span some."""
    numbers = [(plan.line, plan.numbers.get(axis.key)) for plan in plans.plans]
    known = [x for line, x in numbers if line and x is not None]
    known = known or [x for _, x in numbers if x is not None]
    log = axis.log and bool(known) and min(known) > 0.0 and max(known) > DECADES * min(known)
    ticks = log_ticks(min(known), max(known)) if log else {"tickCount": 6, "labelOverlap": True}
    return {
        "field": name,
        "type": "quantitative",
        "title": axis.title,
        "scale": {"type": "log", "nice": False, "padding": 28} if log else {"type": "linear"},
        "axis": {"labelExpr": "format(datum.value, ',.6~g')", **ticks},
    }


def log_ticks(low: float, high: float) -> Row:
    """Even ticks of a logarithmic axis: 1, 2 and 5 of each decade, or decades where there are many.

    >>> log_ticks(3.0, 40.0)["values"]
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    >>> log_ticks(0.5, 2e4)["values"]
    [0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    leads = (1, 2, 5) if high < MANY * low else (1,)
    values = [float(f"{i}e{k}") for k in range(first, last) for i in leads] + [float(f"1e{last}")]
    return {"values": values, "tickCount": len(values) + 1}


def bars(label: str, rows: Sequence[Row], axis: str) -> Spec:
    """Bars to the right, to the left where they are negative.

    A row is a bar: its ``label`` and ``value``, the ``text`` at its end, a ``note`` beside the
    pointer, and whether it is ``faint``.
    """
    values = [0.0, *(float(str(row["value"])) for row in rows)]
    low, high = min(values), max(values)
    margin = 0.22 * (high - low or 1.0)
    ends = [low - margin * (low < 0.0), high + margin * (high > 0.0)]
    return _chart("bars", label, rows=rows, axis=axis, ends=ends)


def memory(label: str, rows: Sequence[Row], tones: Sequence[str]) -> Spec:
    """One bar of parts, each in its tone; rows beyond are no part of it.

    A row is a part: ``part``, its name, ``gb``, ``text``, ``note``, and its ``place``.
    """
    return _chart("memory", label, rows=rows[: len(tones)], tones=tones)


def roofline(label: str, rows: Sequence[Row], bandwidth: float, peaks: Mapping[str, float]) -> Spec:
    """Kernels under the roofs of a data sheet; ``bandwidth`` in bytes/s, ``peaks`` in FLOP/s.

    A row is a kernel: ``x`` FLOP per byte, ``y`` TFLOP/s, ``stage``, and ``what`` in words.
    """
    intensities = [float(str(row["x"])) for row in rows]
    low = min(intensities, default=1.0) / 2.0
    high = 4.0 * max(intensities + [x / bandwidth for x in peaks.values()])
    roofs = [
        {"roof": name, "x": x, "y": min(x * bandwidth, peak) / 1e12, "last": x == high}
        for name, peak in peaks.items()
        for x in (low, peak / bandwidth, high)
    ]
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    heights = [float(str(row["y"])) for row in (*rows, *roofs)]
    ticks = {"x": log_ticks(low, high), "y": log_ticks(min(heights), max(heights))}
    return _chart("roofline", label, rows=rows, roofs=roofs, stages=stages, ticks=ticks)


def chart_page(
    plans: PlanChart,
    template: str = "plans.html",
    specs: Mapping[str, vega.Spec] | None = None,
    **values: object,
) -> str:
    """A page that leads with the chart of ``plans``, with everything that it needs inside.

    ``specs``: its other charts, by name; ``values``: what its template shows, such as a
    ``title``, a ``lead``, which is the answer, and ``notes``. Charts are in it as data and as
    pictures.

    Raises:
        InputError: a package that pages need is not installed.
    """
    vega.check()
    axes = {
        name: [{"key": axis.key, **channel(name, axis, plans)} for axis in axes]
        for name, axes in (("x", plans.across()), ("y", plans.up()))
    }
    others = dict(specs or {})
    script, library = page.own("page.js"), vega.library()
    return page.render(
        template,
        policy=POLICY.format(page.digest(library), page.digest(script)),
        css=page.own("page.css"),
        library=library,
        script=script,
        data={"tradeoff": {"spec": tradeoff(plans), "axes": axes}, "charts": others},
        plans=plans,
        axes=axes,
        pictures={"tradeoff": tradeoff(plans, still=True), **others},
        **values,
    )
