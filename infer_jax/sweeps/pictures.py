"""The picture of a sweep's result: a frontier, a map, points, or bars."""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

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
from infer_jax.sweeps.columns import Column
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.preparing import Prepared
from infer_jax.sweeps.reducers import Answer, Best, Everything, Reducer, parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from infer_jax.plots.kept import Map

PRINTED = {output.name: output for output in outputs(Estimate, ServerEstimate)}
LARGER_IS_BETTER = ("rate", "fraction")  # kinds of terms
BARS = 12  # rows that are drawn as bars
ALLOWED = "rows of a sweep (pareto, top, best, everything), or a histogram"


def description(ready: Prepared) -> str:
    """Models, formats, lengths, axes, rents and estimators of a sweep, for its caption."""
    from infer_jax.plots.names import named

    work = ready.groups[0].base.workload
    ranges = _ranges(ready)
    lengths: list[str] = []
    for name, end in (("isl", "in"), ("osl", "out")):
        ends = ranges.pop(f"workload.{name}", (float(getattr(work, name)),))
        tokens = "" if lengths else " tokens"
        lengths.append(f"{' to '.join(f'{x:,.12g}' for x in dict.fromkeys(ends))}{tokens} {end}")
    models = [x for x in ready.named.values() if isinstance(x, Model)]
    systems = [x for x in ready.named.values() if isinstance(x, System)]
    rents = {x.name: float(x.hardware.price) for x in systems}
    axes = [
        f"{named(path).rpartition(', ')[2]} {low:,.6g} to {high:,.6g}"
        for path, (low, high) in ranges.items()
    ]
    estimators = dict.fromkeys(estimator.innermost.table for estimator in ready.estimators)
    parts = (
        ", ".join(x.name for x in models),
        ", ".join(dict.fromkeys(x.quantisation for x in models)),
        ", ".join(lengths),
        ", ".join(axes),
        rent(rents) if rents and "hardware.price" not in ranges else "",
        f"estimator {', '.join(estimators)}",
    )
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


def title_of(ready: Prepared, *, answer: bool) -> str:
    """What is drawn of a sweep, for its title; ``answer``: one of all points."""
    models = [x.name for x in ready.named.values() if isinstance(x, Model)]
    of = f"{models[0]}: " if len(models) == 1 else ""
    terms = [parse(term)[0] for term in ready.reducer.terms]
    subject = "the frontier" if isinstance(ready.reducer, Pareto) else "the best"
    if isinstance(ready.reducer, Everything):
        only = PRINTED.get(terms[0]) if len(terms) == 1 else None
        subject = "all" if only is None else only.title
    subject = "the distribution" if answer else subject
    title = f"{of}{subject} of {ready.size:,} configurations"
    return title[0].upper() + title[1:] if not of else title


def _ranges(ready: Prepared) -> dict[str, tuple[float, float]]:
    """The lowest and the highest value of each axis of numbers that has several."""
    ends: dict[str, tuple[float, float]] = {}
    for axis in (axis for group in ready.groups for axis in group.columns):
        numbers = [float(x) for x in axis.labels if isinstance(x, int | float)]
        if numbers and min(numbers) < max(numbers):
            low, high = ends.get(axis.path, (min(numbers), max(numbers)))
            ends[axis.path] = min(low, *numbers), max(high, *numbers)
    return ends


@dataclasses.dataclass(frozen=True)
class Drawing:
    """What is drawn: columns of rows, or one answer, of a reducer; ``axes``: columns of axes."""

    reducer: Reducer
    columns: Mapping[str, Column]
    units: Mapping[str, str]
    axes: tuple[str, ...]
    answer: Answer | None
    title: str = ""
    caption: str = ""

    def figure(self) -> "Figure":
        """The picture that suits the terms and axes of the result.

        Speed and cost: frontiers. A whole grid: a map of the first term over two axes, one for each
        system, or of two terms all points and their frontiers. The best along an axis: lines. Two
        terms: points. One term: bars of the first rows. A histogram: bars of its counts.

        Raises:
            InputError: nothing that can be drawn; matplotlib is not installed; a file that cannot
                be written.
        """
        from infer_jax.plots import Curve, plot_frontier
        from infer_jax.plots.kept import plot_maps

        if self.answer is not None and "edges" in self.answer:
            return self._histogram(self.answer)
        terms = [parse(term)[0] for term in self.reducer.terms]
        if not self.columns or not set(terms) <= set(self.columns):
            raise InputError("plot", "kept", repr(self.reducer), ALLOWED)
        if isinstance(self.reducer, Pareto) and {"speed", "cost"} <= set(terms):
            speed, cost = self.columns["speed"], self.columns["cost"]
            curves = {n: Curve(speed[x], cost[x]) for n, x in self.systems.items()}
            return plot_frontier(curves, title=self.title, caption=self.caption)
        if isinstance(self.reducer, Everything):
            if maps := self._maps(terms[0]):
                labels = (self._label(self.numeric[0]), self._label(self.numeric[1]))
                words = {"title": self.title, "caption": self.caption}
                return plot_maps(maps, labels=labels, term=self._label(terms[0]), **words)
            if len(terms) > 1:
                return self._cloud(terms[0], terms[1])
        if isinstance(self.reducer, Best):
            axis, *more = [*{*self.reducer.axes} - {"hardware"}, ""]
            if len(more) == 1 and axis in self.numeric:  # the best of each value of an axis
                return self._points(self.columns[axis], axis, terms[0])
        if len(terms) > 1:
            return self._points(self._printed(terms[0]), terms[0], terms[1])
        return self._bars(terms[0])

    @cached_property
    def systems(self) -> dict[str, Column]:
        """Which rows are of each system."""
        count = len(next(iter(self.columns.values())))
        names = self.columns.get("hardware", np.full(count, "kept"))
        return {str(name): names == name for name in dict.fromkeys(names.tolist())}

    @property
    def varied(self) -> list[str]:
        """Axes that take several values."""
        return [name for name in self.axes if len(set(self.columns[name].tolist())) > 1]

    @property
    def numeric(self) -> list[str]:
        """Axes of numbers that take several values."""
        return [name for name in self.varied if self.columns[name].dtype.kind in "iuf"]

    def _points(self, x: Column, across: str, up: str) -> "Figure":
        """One term over another or over an axis, a series for each system."""
        from infer_jax.plots.kept import plot_points

        y = self._printed(up)
        series = {name: (x[rows], y[rows]) for name, rows in self.systems.items()}
        labels = self._label(across), self._label(up)
        return plot_points(series, labels=labels, title=self.title, caption=self.caption)

    def _maps(self, term: str) -> "dict[str, Map] | None":
        """The term over the only two axes of numbers, for each system.

        None where other axes vary, or most cells are empty.
        """
        from infer_jax.plots.kept import Map

        if len(self.numeric) != 2 or {*self.varied} - {*self.numeric, "hardware"}:
            return None
        sides = [np.unique(self.columns[name], return_inverse=True) for name in self.numeric]
        rows, columns = (values.tolist() for values, _ in sides)
        printed = self._printed(term)
        maps: dict[str, Map] = {}
        for name, own in self.systems.items():
            values = np.full((len(rows), len(columns)), np.nan)
            values[sides[0][1][own], sides[1][1][own]] = printed[own]
            maps[name] = Map(rows, columns, values)
        cells = len(rows) * len(columns) * len(maps)
        return maps if min(len(rows), len(columns)) > 1 and len(printed) >= 0.5 * cells else None

    def _cloud(self, across: str, up: str) -> "Figure":
        """A density plot of the points, and the frontier of each system over it."""
        from infer_jax.plots.kept import plot_cloud

        x, y = self._printed(across), self._printed(up)
        signs = [
            -1.0 if t in PRINTED and PRINTED[t].kind in LARGER_IS_BETTER else 1.0
            for t in (across, up)
        ]
        fronts: dict[str, tuple[Column, Column]] = {}
        for name, own in self.systems.items():
            best = undominated(signs[0] * x[own], signs[1] * y[own])
            fronts[name] = x[own][best], y[own][best]
        labels = self._label(across), self._label(up)
        return plot_cloud((x, y), fronts, labels=labels, title=self.title, caption=self.caption)

    def _bars(self, term: str) -> "Figure":
        """The first rows as bars of the term, named by their axes."""
        from infer_jax.plots.bars import Panel, plot_bars
        from infer_jax.plots.style import words

        bars: dict[str, dict[str, float]] = {}
        for i in range(min(BARS, len(self.columns[term]))):
            cells = {n.rpartition(".")[2]: self.columns[n][i].item() for n in self.varied}
            texts = [x if isinstance(x, str) else f"{n} {digits(x)}" for n, x in cells.items()]
            bars[words(f"{i + 1}. {', '.join(texts)}")] = {term: float(self._printed(term)[i])}
        panels = [Panel("", self._label(term), bars)]
        return plot_bars(panels, title=self.title, caption=self.caption)

    def _histogram(self, answer: Answer) -> "Figure":
        """Points between edges as bars; those below and beyond are the first and the last."""
        from infer_jax.plots.bars import Panel, plot_bars

        output = PRINTED.get(answer["term"])
        factor, name = 1.0, str(answer["term"])
        if output is not None:
            factor, name = output.factor, f"{output.title}, {output.printed_unit}"
        edges = [digits(factor * x) for x in answer["edges"]]
        between = [f"{a} to {b}" for a, b in pairwise(edges)]
        labels = [f"below {edges[0]}", *between, f"{edges[-1]} and more"]
        counts = zip(labels, answer["counts"], strict=True)
        panels = [Panel(name, "points", {label: {"points": float(n)} for label, n in counts})]
        return plot_bars(panels, title=self.title, caption=self.caption)

    def _label(self, name: str) -> str:
        """A column by the words of the field, and its unit as it is printed."""
        from infer_jax.plots.names import named

        output = PRINTED.get(name)
        if output is not None and output.kind == "price":  # of what, and in which money
            return output.doc
        words = named(name) if output is None else output.title
        unit = self.units.get(name, "") if output is None else output.printed_unit
        return f"{words}, {unit}" if unit and unit != "1" and unit not in words else words

    def _printed(self, name: str) -> Column:
        """A column of numbers as they are printed."""
        factor = PRINTED[name].factor if name in PRINTED else 1.0
        return factor * self.columns[name]
