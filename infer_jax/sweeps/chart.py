"""The picture of a sweep's result: a frontier, a map, points, lines or bars, and its words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from infer_jax.errors import InputError
from infer_jax.estimators import Estimate
from infer_jax.estimators.serving import ServerEstimate
from infer_jax.physics.pareto import frontier_rows
from infer_jax.plots import Curve, plot_frontier
from infer_jax.plots.bars import Panel, plot_bars
from infer_jax.plots.points import plot_cloud, plot_maps, plot_points
from infer_jax.plots.rendering import facts_caption, rent
from infer_jax.plots.style import Words, words
from infer_jax.results.numbers import digits
from infer_jax.specs import outputs
from infer_jax.specs.declared_outputs import Output
from infer_jax.specs.words import name_of
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.preparing import Prepared
from infer_jax.sweeps.reducers import Answer, Best, Everything, Reducer, parse
from infer_jax.sweeps.results import Column

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRINTED = {output.name: output for output in outputs(Estimate, ServerEstimate)}
LARGER_IS_BETTER = ("rate", "fraction")  # kinds of terms
BARS = 12  # rows that are drawn as bars
ALLOWED = "rows of a sweep (pareto, top, best, everything), or a histogram"


def limit_in_words(name: str, value: float, known: Mapping[str, Output] = PRINTED) -> str:
    """A limit in the words and unit of its output; by its name where it is none.

    >>> limit_in_words("tpot", 0.03)
    'TPOT 30 ms'
    """
    output = known.get(name)
    if output is None:
        return f"{name} {value:g}"
    unit = "" if output.printed_unit == "1" else f" {output.printed_unit}"
    return f"{output.short or output.title} {output.factor * value:,.4g}{unit}"


def title_of(ready: Prepared, *, answer: bool) -> str:
    """What is drawn of a sweep, for its title; ``answer``: one of all points."""
    models = [x.name for x in ready.models]
    terms = [parse(term)[0] for term in ready.reducer.terms]
    subject = "the frontier" if isinstance(ready.reducer, Pareto) else "the best"
    if isinstance(ready.reducer, Everything):
        only = PRINTED.get(terms[0]) if len(terms) == 1 else None
        subject = "all" if only is None else only.title
    subject = "the distribution" if answer else subject
    title = f"{subject} of {ready.size:,} configurations"
    return f"{models[0]}: {title}" if len(models) == 1 else title[0].upper() + title[1:]


def caption_of(ready: Prepared, feasible: int) -> str:
    """Models, formats, lengths, axes, rents, estimators and limits; ``feasible``: such points."""
    work = ready.groups[0].base.workload
    # the lowest and the highest value of each axis of numbers that has several
    numbers: dict[str, set[float]] = {}
    for axis in (axis for group in ready.groups for axis in group.columns):
        own = (float(x) for x in axis.labels if isinstance(x, int | float))
        numbers.setdefault(axis.path, set()).update(own)
    ranges = {path: (min(x), max(x)) for path, x in numbers.items() if len(x) > 1}
    lengths: list[str] = []
    for name, end in (("isl", "tokens in"), ("osl", "out")):
        ends = ranges.pop(f"workload.{name}", None) or (float(getattr(work, name)),)
        lengths.append(f"{' to '.join(f'{x:,.12g}' for x in dict.fromkeys(ends))} {end}")
    rents = {name: float(x.hardware.price) for name, x in ready.systems.items()}
    axes = [
        f"{name_of(path).rpartition(', ')[2]} {low:,.6g} to {high:,.6g}"
        for path, (low, high) in ranges.items()
    ]
    estimators = dict.fromkeys(estimator.innermost.table for estimator in ready.estimators)
    facts = (
        ", ".join(x.name for x in ready.models),
        ", ".join(dict.fromkeys(x.quantisation for x in ready.models)),
        ", ".join(lengths),
        ", ".join(axes),
        rent(rents) if rents and "hardware.price" not in ranges else "",
        f"estimator {', '.join(estimators)}",
    )
    fit = f"{feasible:,} of {ready.size:,} can run"
    if feasible < ready.size:
        fit += ", the others lack memory or break a rule of layouts"
    reducer = ready.reducer
    limits = dict(reducer.limits) if isinstance(reducer, Best) else {}
    within = f"Limits: {', '.join(limit_in_words(*x) for x in limits.items())}." if limits else ""
    return facts_caption(facts, f"{fit}.", within)


@dataclass(frozen=True)
class SweepChart:
    """What is drawn: columns of rows, or one answer, of a reducer; ``axes``: columns of axes."""

    reducer: Reducer
    columns: Mapping[str, Column]
    units: Mapping[str, str]
    axes: tuple[str, ...]
    answer: Answer | None
    wording: Words = field(default_factory=lambda: Words(title="", caption=""))

    def figure(self) -> "Figure":
        """The picture that suits the terms and axes of the result.

        Speed and cost: frontiers. A whole grid: a map of the first term over two axes, one for each
        system, or of two terms all points and their frontiers. The best along an axis: lines. Two
        terms: points. One term: bars of the first rows. A histogram: bars of its counts.

        Raises:
            InputError: nothing that can be drawn; matplotlib is not installed.
        """
        if self.answer is not None and "edges" in self.answer:
            return self._histogram(self.answer)
        terms = [parse(term)[0] for term in self.reducer.terms]
        if not self.columns or not set(terms) <= set(self.columns):
            raise InputError("plot", "kept", repr(self.reducer), ALLOWED)
        if isinstance(self.reducer, Pareto) and {"speed", "cost"} <= set(terms):
            speed, cost = self.columns["speed"], self.columns["cost"]
            curves = {name: Curve(speed[x], cost[x]) for name, x in self.systems.items()}
            return plot_frontier(curves, **self.wording)
        if isinstance(self.reducer, Everything):
            if self._is_grid:
                return self._maps(terms[0])
            if len(terms) > 1:
                return self._cloud(terms[0], terms[1])
        if isinstance(self.reducer, Best):
            axis, *more = [*{*self.reducer.axes} - {"hardware"}, ""]
            if len(more) == 1 and axis in self.numeric:  # the best of each value of an axis
                return self._points(axis, terms[0])
        return self._points(*terms[:2]) if len(terms) > 1 else self._bars(terms[0])

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

    def _points(self, across: str, up: str) -> "Figure":
        """One term over another or over an axis, a series for each system."""
        x, y = self._printed(across), self._printed(up)
        series = {name: (x[rows], y[rows]) for name, rows in self.systems.items()}
        return plot_points(series, labels=(self._label(across), self._label(up)), **self.wording)

    @property
    def _is_grid(self) -> bool:
        """Whether two axes of numbers vary and no other, and most of their cells are filled."""
        if len(self.numeric) != 2 or {*self.varied} - {*self.numeric, "hardware"}:
            return False
        cells = len(self.systems)
        for name in self.numeric:
            cells *= len(np.unique(self.columns[name]))
        return len(self.columns[self.numeric[0]]) >= 0.5 * cells

    def _maps(self, term: str) -> "Figure":
        """The term over the two axes of numbers, for each system."""
        first, second = self.numeric
        rows, row = np.unique(self.columns[first], return_inverse=True)
        columns, column = np.unique(self.columns[second], return_inverse=True)
        maps: dict[str, np.ndarray] = {}
        for name, own in self.systems.items():
            maps[name] = np.full((len(rows), len(columns)), np.nan)
            maps[name][row[own], column[own]] = self._printed(term)[own]
        sides = {self._label(first): rows, self._label(second): columns}
        return plot_maps(maps, sides, term=self._label(term), **self.wording)

    def _cloud(self, across: str, up: str) -> "Figure":
        """A density plot of the points, and the frontier of each system over it."""
        x, y = self._printed(across), self._printed(up)
        signs = [
            -1.0 if t in PRINTED and PRINTED[t].kind in LARGER_IS_BETTER else 1.0
            for t in (across, up)
        ]
        fronts: dict[str, tuple[Column, Column]] = {}
        for name, own in self.systems.items():
            best = frontier_rows(signs[0] * x[own], signs[1] * y[own])
            fronts[name] = x[own][best], y[own][best]
        labels = self._label(across), self._label(up)
        return plot_cloud((x, y), fronts, labels=labels, **self.wording)

    def _bars(self, term: str) -> "Figure":
        """The first rows as bars of the term, named by their axes."""
        bars: dict[str, dict[str, float]] = {}
        for i in range(min(BARS, len(self.columns[term]))):
            cells = {n.rpartition(".")[2]: self.columns[n][i].item() for n in self.varied}
            texts = [x if isinstance(x, str) else f"{n} {digits(x)}" for n, x in cells.items()]
            bars[words(f"{i + 1}. {', '.join(texts)}")] = {term: float(self._printed(term)[i])}
        return plot_bars([Panel("", self._label(term), bars)], **self.wording)

    def _histogram(self, answer: Answer) -> "Figure":
        """Points between edges as bars; those below and beyond are the first and the last."""
        output, name = PRINTED.get(answer["term"]), str(answer["term"])
        factor = 1.0
        if output is not None:
            factor, name = output.factor, f"{output.title}, {output.printed_unit}"
        edges = [digits(factor * x) for x in answer["edges"]]
        between = [f"{a} to {b}" for a, b in pairwise(edges)]
        labels = [f"below {edges[0]}", *between, f"{edges[-1]} and more"]
        counts = zip(labels, answer["counts"], strict=True)
        bars = {label: {"points": float(n)} for label, n in counts}
        return plot_bars([Panel(name, "points", bars)], **self.wording)

    def _label(self, name: str) -> str:
        """A column by the words of the field, and its unit as it is printed."""
        output = PRINTED.get(name)
        if output is not None and output.kind == "price":  # of what, and in which money
            return output.doc
        label = name_of(name) if output is None else output.title
        unit = self.units.get(name, "") if output is None else output.printed_unit
        return f"{label}, {unit}" if unit and unit != "1" and unit not in label else label

    def _printed(self, name: str) -> Column:
        """A column of numbers as they are printed."""
        return (PRINTED[name].factor if name in PRINTED else 1.0) * self.columns[name]
