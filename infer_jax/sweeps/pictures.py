"""The picture of a sweep's result: a frontier, a map, points, or bars."""

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infer_jax.catalog import Model, System
from infer_jax.errors import InputError
from infer_jax.estimators import Estimate
from infer_jax.estimators.serving import ServerEstimate
from infer_jax.physics.pareto import undominated
from infer_jax.plots.pictured import rent
from infer_jax.results.numbers import digits
from infer_jax.specs import outputs
from infer_jax.specs.declared_outputs import Output
from infer_jax.sweeps.best import Best
from infer_jax.sweeps.columns import Column
from infer_jax.sweeps.everything import Everything
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.reducers import Answer, Reducer, parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from infer_jax.plots.kept import Map
    from infer_jax.sweeps.preparing import Prepared

PRINTED = {output.name: output for output in outputs(Estimate, ServerEstimate)}
MOST = ("rate", "fraction")  # kinds of which more is better
BARS = 12  # rows that are drawn as bars
ALLOWED = "rows of a sweep (pareto, top, best, everything), or a histogram"


def asked(ready: "Prepared") -> str:
    """Models, formats, lengths, axes, rents and estimators of a sweep, for its caption."""
    work = ready.groups[0].base.workload
    swept = _swept(ready)
    lengths: list[str] = []
    for name, end in (("isl", "in"), ("osl", "out")):
        ends = swept.pop(f"workload.{name}", (float(getattr(work, name)),))
        tokens = "" if lengths else " tokens"
        lengths.append(f"{' to '.join(f'{x:,.12g}' for x in dict.fromkeys(ends))}{tokens} {end}")
    models = [x for x in ready.named.values() if isinstance(x, Model)]
    systems = [x for x in ready.named.values() if isinstance(x, System)]
    formats = [*dict.fromkeys(x.quantisation for x in models)]
    rents = {x.name: float(x.hardware.price) for x in systems}
    priced = "hardware.price" not in swept and rents
    estimators = [*dict.fromkeys(one.innermost.table for one in ready.estimators)]
    parts: list[str] = [
        ", ".join(x.name for x in models),
        ", ".join(formats),
        ", ".join(lengths),
        ", ".join(
            f"{_said(path)} {low:,.6g} to {high:,.6g}" for path, (low, high) in swept.items()
        ),
        rent(rents) if priced else "",
        f"estimator {', '.join(estimators)}",
    ]
    return "; ".join(part for part in parts if part)


def limit(name: str, value: float, known: Mapping[str, Output] = PRINTED) -> str:
    """A limit in the words and unit of its output; by its name where it is none.

    >>> limit("tpot", 0.03)
    'TPOT 30 ms'
    """
    output = known.get(name)
    if output is None:
        return f"{name} {value:g}"
    unit = "" if output.printed_unit == "1" else f" {output.printed_unit}"
    return f"{output.short or output.title} {output.factor * value:,.4g}{unit}"


def titled(ready: "Prepared", *, answer: bool) -> str:
    """What is drawn of a sweep, for its title; ``answer``: one of all points."""
    models = [x.name for x in ready.named.values() if isinstance(x, Model)]
    of = f"{models[0]}: " if len(models) == 1 else ""
    terms = [parse(term)[0] for term in ready.reducer.terms]
    what = "the frontier" if isinstance(ready.reducer, Pareto) else "the best"
    if isinstance(ready.reducer, Everything):
        only = PRINTED.get(terms[0]) if len(terms) == 1 else None
        what = "all" if only is None else only.title
    what = "the distribution" if answer else what
    said = f"{of}{what} of {ready.size:,} configurations"
    return said[0].upper() + said[1:] if not of else said


def _swept(ready: "Prepared") -> dict[str, tuple[float, float]]:
    """The least and the most of each axis of numbers that has several."""
    ends: dict[str, tuple[float, float]] = {}
    for axis in (axis for group in ready.groups for axis in group.columns):
        numbers = [float(x) for x in axis.labels if isinstance(x, int | float)]
        if numbers and min(numbers) < max(numbers):
            low, high = ends.get(axis.path, (min(numbers), max(numbers)))
            ends[axis.path] = min(low, *numbers), max(high, *numbers)
    return ends


def _said(path: str) -> str:
    """An axis in a word, for a list of them.

    >>> _said("plan.tp"), _said("workload.batch")
    ('TP', 'requests in flight')
    """
    from infer_jax.plots.names import named

    return named(path).rpartition(", ")[2]


class Kept(NamedTuple):
    """The data to draw: columns of rows, or one answer, of a reducer; ``axes``: columns of axes."""

    reducer: Reducer
    columns: Mapping[str, Column]
    units: Mapping[str, str]
    axes: tuple[str, ...]
    answer: Answer | None


def figure(kept: Kept, title: str, caption: str) -> "Figure":
    """The picture that suits the terms and axes of the result.

    Speed and cost: frontiers. A whole grid: a map of the first term over two axes, one for each
    system, or of two terms all points and their frontiers. The best along an axis: lines. Two
    terms: points. One term: bars of the first rows. A histogram: bars of its counts.

    Raises:
        InputError: nothing that can be drawn; matplotlib is not installed; a file that cannot be
            written.
    """
    terms = [parse(term)[0] for term in kept.reducer.terms]
    if kept.answer is not None and "edges" in kept.answer:
        return _histogram(kept.answer, title, caption)
    if not kept.columns or not set(terms) <= set(kept.columns):
        raise InputError("plot", "kept", repr(kept.reducer), ALLOWED)
    if isinstance(kept.reducer, Pareto) and {"speed", "cost"} <= set(terms):
        return _frontier(kept, title, caption)
    if isinstance(kept.reducer, Everything) and (maps := _maps(kept, terms[0])):
        from infer_jax.plots.kept import plot_maps

        labels = tuple(_labelled(kept, name) for name in _numeric(kept))
        named = {"title": title, "caption": caption, "term": _labelled(kept, terms[0])}
        return plot_maps(maps, labels=(labels[0], labels[1]), **named)
    if isinstance(kept.reducer, Everything) and len(terms) > 1:
        return _cloud(kept, (terms[0], terms[1]), title, caption)
    if isinstance(kept.reducer, Best) and (axis := _along(kept)):
        return _lines(kept, axis, terms[0], title, caption)
    if len(terms) > 1:
        from infer_jax.plots.kept import plot_points

        series = {
            name: (_printed(kept, terms[0])[mine], _printed(kept, terms[1])[mine])
            for name, mine in _systems(kept).items()
        }
        named = (_labelled(kept, terms[0]), _labelled(kept, terms[1]))
        return plot_points(series, labels=named, title=title, caption=caption)
    return _bars(kept, terms[0], title, caption)


def _systems(kept: Kept) -> dict[str, Column]:
    """Which rows are of each system."""
    count = len(next(iter(kept.columns.values())))
    names = kept.columns.get("hardware", np.full(count, "kept"))
    return {str(name): names == name for name in dict.fromkeys(names.tolist())}


def _frontier(kept: Kept, title: str, caption: str) -> "Figure":
    from infer_jax.plots import Curve, Points, plot_frontier

    speed, cost = kept.columns["speed"], kept.columns["cost"]
    curves = {name: Curve(Points(speed[x], cost[x])) for name, x in _systems(kept).items()}
    return plot_frontier(curves, title=title, caption=caption)


def _along(kept: Kept) -> str | None:
    """The numeric axis for each value of which, and for each system, the best was kept."""
    per = kept.reducer.per if isinstance(kept.reducer, Best) else ()
    others = {per} if isinstance(per, str) else {*per}
    axes = others - {"hardware"}
    axis = axes.pop() if len(axes) == 1 else None
    return axis if axis in _numeric(kept) else None


def _lines(kept: Kept, axis: str, term: str, title: str, caption: str) -> "Figure":
    """The best of the term along an axis, a line for each system."""
    from infer_jax.plots.kept import plot_points

    values, systems = _printed(kept, term), _systems(kept)
    series = {name: (kept.columns[axis][mine], values[mine]) for name, mine in systems.items()}
    named = (_labelled(kept, axis), _labelled(kept, term))
    return plot_points(series, labels=named, title=title, caption=caption)


def _several(kept: Kept) -> list[str]:
    """Axes that take several values."""
    return [name for name in kept.axes if len(set(kept.columns[name].tolist())) > 1]


def _numeric(kept: Kept) -> list[str]:
    """Axes of numbers that take several values."""
    return [name for name in _several(kept) if kept.columns[name].dtype.kind in "iuf"]


def _maps(kept: Kept, term: str) -> "dict[str, Map] | None":
    """The term over the only two axes of numbers, for each system.

    None where other axes vary, or most cells are empty.
    """
    from infer_jax.plots.kept import Map

    numeric = _numeric(kept)
    if len(numeric) != 2 or {*_several(kept)} - {*numeric, "hardware"}:
        return None
    sides = [np.unique(kept.columns[name], return_inverse=True) for name in numeric]
    rows, columns = (names.tolist() for names, _ in sides)
    printed = _printed(kept, term)
    maps: dict[str, Map] = {}
    for name, mine in _systems(kept).items():
        values = np.full((len(rows), len(columns)), np.nan)
        values[sides[0][1][mine], sides[1][1][mine]] = printed[mine]
        maps[name] = Map(rows, columns, values)
    cells = len(rows) * len(columns) * len(maps)
    return maps if min(len(rows), len(columns)) > 1 and len(printed) >= 0.5 * cells else None


def _cloud(
    kept: Kept,
    terms: tuple[str, str],
    title: str,
    caption: str,
) -> "Figure":
    """A density plot of the points, and the frontier of each system over it."""
    from infer_jax.plots.kept import plot_cloud

    columns = [_printed(kept, term) for term in terms]
    most = [PRINTED[term].kind in MOST if term in PRINTED else False for term in terms]
    fronts: dict[str, tuple[Column, Column]] = {}
    for name, mine in _systems(kept).items():
        x, y = (column[mine] for column in columns)
        ends = [-c if m else c for c, m in zip((x, y), most, strict=True)]
        at = undominated(ends[0], ends[1])
        fronts[name] = x[at], y[at]
    named = (_labelled(kept, terms[0]), _labelled(kept, terms[1]))
    every = columns[0], columns[1]
    return plot_cloud(every, fronts, labels=named, title=title, caption=caption)


def _labelled(kept: Kept, name: str) -> str:
    """A column by the words of the field, and its unit as it is printed."""
    from infer_jax.plots.names import named

    declared = PRINTED.get(name)
    if declared is not None and declared.kind == "price":  # of what, and in which money
        return declared.doc
    words = named(name) if declared is None else declared.title
    unit = kept.units.get(name, "") if declared is None else declared.printed_unit
    return f"{words}, {unit}" if unit and unit != "1" and unit not in words else words


def _printed(kept: Kept, name: str) -> Column:
    """A column of numbers as they are printed."""
    factor = PRINTED[name].factor if name in PRINTED else 1.0
    return factor * kept.columns[name]


def _bars(kept: Kept, term: str, title: str, caption: str) -> "Figure":
    """The first rows as bars of the term, named by their axes."""
    from infer_jax.plots.bars import Panel, plot_bars
    from infer_jax.plots.style import words

    several = _several(kept)
    bars: dict[str, dict[str, float]] = {}
    for i in range(min(BARS, len(kept.columns[term]))):
        cells = {name.rpartition(".")[2]: kept.columns[name][i].item() for name in several}
        said = [x if isinstance(x, str) else f"{name} {digits(x)}" for name, x in cells.items()]
        bars[words(f"{i + 1}. {', '.join(said)}")] = {term: float(_printed(kept, term)[i])}
    panels = [Panel("", _labelled(kept, term), bars)]
    return plot_bars(panels, title=title, caption=caption)


def _histogram(answer: Answer, title: str, caption: str) -> "Figure":
    """Points between edges as bars; those below and beyond are the first and the last."""
    from infer_jax.plots.bars import Panel, plot_bars

    declared = PRINTED.get(answer["term"])
    factor, name = 1.0, str(answer["term"])
    if declared is not None:
        factor, name = declared.factor, f"{declared.title}, {declared.printed_unit}"
    edges = [digits(factor * x) for x in answer["edges"]]
    between = [f"{a} to {b}" for a, b in pairwise(edges)]
    labels = [f"below {edges[0]}", *between, f"{edges[-1]} and more"]
    bars = {label: {"points": float(n)} for label, n in zip(labels, answer["counts"], strict=True)}
    panels = [Panel(name, "points", bars)]
    return plot_bars(panels, title=title, caption=caption)
