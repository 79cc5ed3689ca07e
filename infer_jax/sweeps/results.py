"""The result of a sweep: rows with units and sources, a table, a picture, a file; and one point."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Shaped

from infer_jax.errors import InputError
from infer_jax.estimators import Estimate, Trust
from infer_jax.estimators.known_errors import BORROWED
from infer_jax.on_demand import load_optional
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Words
from infer_jax.results import Column as Heading, Notes, Result, Section, Table, option, table
from infer_jax.results.numbers import digits
from infer_jax.specs import outputs
from infer_jax.sweeps import refine, writers
from infer_jax.sweeps.paths import declared, numbers
from infer_jax.sweeps.preparing import Prepared
from infer_jax.sweeps.reducers import Answer, Best, TopK, is_least, parse
from infer_jax.sweeps.refine import RefinedPoints

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    from matplotlib.figure import Figure

Column = Shaped[np.ndarray, " rows"]  # numbers, or names and sentences
HEAD = ("feasible", *(output.name for output in outputs(Estimate)))  # the first columns
PRINTED_ROWS = 10  # of the table
PRINTED_TERMS = ("speed", "cost", "ttft", "chips")
LENGTHS = ("workload.isl", "workload.osl", "workload.prefix")
MAX_TRUST = 4  # pairs of system and estimator for which a sentence on errors is printed


@dataclass(frozen=True, repr=False, eq=False)
class SweepResult(FigureResult):
    """The result of a sweep: rows, best first, or one ``answer`` (a histogram, quantiles).

    ``provenance``: its program, estimators, sources and points; ``trust``: known errors of each
    estimator on each system; ``source``: the file that the sweep was read from; ``out``: the file
    that the rows were written to, if any.
    """

    ready: Prepared
    kept: RefinedPoints | None
    answer: Answer | None
    provenance: dict[str, Any]
    notes: Sequence[str]
    source: str = ""
    trust: Sequence[Trust] = ()
    out: str | None = None

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def _columns(self) -> tuple[dict[str, Column], dict[str, str]]:
        return ({}, {}) if self.kept is None else columns_of(self.ready, self.kept)

    @property
    def columns(self) -> dict[str, Column]:
        """Axes, then the terms of the estimates, in float64, by dotted path."""
        return dict(self._columns[0])

    @property
    def units(self) -> dict[str, str]:
        """The unit of each column."""
        return self._columns[1]

    @property
    def index(self) -> list[int]:
        """The global indices of the rows: the whole answer in one list of integers."""
        return [] if self.kept is None else list(self.kept.index)

    @property
    def met(self) -> bool:
        """Whether the rows are answers; False where ``Best`` has near misses only."""
        return len(self) > 0 and not self.violated_limits(0)

    def axes(self, i: int) -> dict[str, object]:
        """The axes of row ``i`` as the user wrote them: numbers, and names of specs."""
        return {} if self.kept is None else axes_of(self.ready, self.kept.index[i])

    def violated_limits(self, i: int) -> str:
        """The limits that row ``i`` breaks, or nothing."""
        violates = self.columns.get("violates")
        return "" if violates is None else str(violates[i])

    def explain(self, i: int) -> "Explanation":
        """The full estimate of row ``i``, and the command that computes it again.

        Raises:
            InputError: there is no such row.
        """
        if not 0 <= i < len(self):
            raise InputError("explain", "row", i, f"0 to {len(self) - 1}")
        return explain(self.ready, self.index[i], self.source)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write rows and provenance as Parquet, CSV or JSON, by the ending of the name.

        Raises:
            InputError: another ending, an unwritable place, a file of another sweep.
        """
        writers.check(path, self.ready.mark)
        units = {name: self.units.get(name, "") for name in self.columns}
        answer = {} if self.answer is None else {"answer": self.answer}
        facts = {**self.provenance, "notes": list(self.notes), **answer}
        writers.write(Path(path), self.columns, units, facts)

    def rows(self) -> list[Mapping[str, object]]:
        """Each row by the names of the columns."""
        columns = self.columns
        return [{name: x[i].item() for name, x in columns.items()} for i in range(len(self))]

    def to_pandas(self) -> "pandas.DataFrame":
        """The columns as a ``pandas.DataFrame``; units and provenance are in its ``attrs``.

        Raises:
            InputError: pandas is not installed.
        """
        otherwise = ", or columns, which are NumPy arrays"
        frame = load_optional("to_pandas", "pandas", "pandas", otherwise).DataFrame(self.columns)
        facts = {"units": dict(self.units), "provenance": self.provenance}
        frame.attrs.update(facts, notes=list(self.notes))
        return frame

    def sections(self) -> Iterator[Section]:
        """The number of points, known errors, the first rows; in JSON provenance and all rows."""
        notes = {"notes": list(self.notes)}
        yield {
            **self.provenance,
            **notes,
            "out": self.out,
            "trust": [{"estimator": trust.estimator, **trust.fields()} for trust in self.trust],
            "met": self.met,
            "rows": self.rows(),
            "answer": self.answer,
        }
        points, facts = self.ready.size, self.provenance
        feasible, seconds = int(facts["counts"]["feasible"]), f"{facts['seconds']:.1f} s"
        yield f"{points:,} points, {feasible:,} feasible, {seconds}: {len(self):,} kept."
        yield from dict.fromkeys(trust.says for trust in self.trust[:MAX_TRUST])
        if len(self.trust) > MAX_TRUST:
            yield f"{len(self.trust) - MAX_TRUST} more: {option('json')} says all."
        if self.answer is not None:
            yield ""
            yield str(self.answer)
        elif len(self):
            if not self.met:
                yield ""
                yield "Nothing meets the limits; these come nearest."
                if any("arrivals" in broken for broken in self.columns["violates"]):
                    yield "Where more arrive than are completed, queues grow: no time is a mean."
            yield self._table()
            if len(self) > PRINTED_ROWS:
                yield ""
                kind = "with the best of each layout" if self._ranked else "spread over all"
                count = f"{PRINTED_ROWS} of {len(self)} rows"
                yield f"{count}, {kind}; {option('out', 'FILE.csv')} and {option('json')} have all."
        files = [f"Written to {self.out}."] if self.out else []
        yield Notes([*self.notes, *self._single_lengths(), *files])
        yield notes  # JSON has the notes of the run alone

    def _table(self) -> Table:
        """The first rows: their axes and the terms they are chosen by."""
        columns, axes = self.columns, self.axes(0)
        marks = {trust.system: BORROWED for trust in self.trust if trust.borrowed_from}
        asked = dict.fromkeys([*PRINTED_TERMS, *self.ready.signs])
        names = [*axes, *(n for n in asked if n in columns and n not in axes)]
        names += [] if self.met else ["violates"]

        def cell(value: object) -> str:
            if isinstance(value, str):
                return f"{marks[value]} {value}" if value in marks else value
            return digits(float(value), 4) if isinstance(value, int | float) else str(value)

        rows = [[columns[name][i].item() for name in names] for i in self._to_print()]
        heads = [
            Heading(name.rpartition(".")[2], self.units.get(name, ""), itemgetter(at), cell,
                    left=name == "violates")
            for at, name in enumerate(names)
        ]  # fmt: skip
        if marks and "hardware" not in columns:
            heads.insert(0, Heading("", "", itemgetter(len(names)), left=True))
            rows = [[*row, BORROWED] for row in rows]
        return table(rows, heads)

    def _single_lengths(self) -> Iterator[str]:
        """Lengths of the space of which a single one is kept, because the others are dearer."""
        for c in {c.path: c for group in self.ready.groups for c in group.columns}.values():
            kept = {*self.columns[c.path].tolist()} if c.path in self.columns else set[object]()
            if c.path in LENGTHS and len(c.labels) > 1 == len(kept) < len(self):
                yield (
                    f"Every row kept has {c.path} {kept.pop():g}: of {len(c.labels)} lengths the "
                    f'others are slower and dearer. `per = ["{c.path}"]` keeps rows of each.'
                )

    @property
    def _ranked(self) -> bool:
        """Whether rows come by one number, the best first."""
        return isinstance(self.ready.reducer, TopK)

    def _to_print(self) -> list[int]:
        """Rows to print: neighbours in a grid differ by little, and are mostly left out."""
        columns, count = self.columns, len(self)
        if count <= PRINTED_ROWS:
            return list(range(count))
        if self._ranked:
            axes = self.axes(0)
            named = [n for n in axes if n.startswith("plan.") or columns[n].dtype.kind == "U"]
            kinds = [tuple(columns[n][i].item() for n in named) for i in range(count)]
            first = sorted({kind: i for i, kind in reversed([*enumerate(kinds)])}.values())
            return sorted([*dict.fromkeys([*first, *range(count)])][:PRINTED_ROWS])
        per = [columns[name] for name in self.ready.reducer.axes]
        terms = [columns[parse(name)[0]] for name in self.ready.reducer.terms]
        return spread_rows(terms, per, PRINTED_ROWS)

    def _figure(self) -> "Figure":
        """Frontiers, a map over two axes, points or bars of the result.

        Raises:
            InputError: nothing that can be drawn; matplotlib is not installed; a file that cannot
                be written.
        """
        from infer_jax.sweeps.chart import SweepChart, caption_of, title_of

        ready, axes = self.ready, tuple(self.axes(0)) if len(self) else ()
        caption = caption_of(ready, int(self.provenance["counts"]["feasible"]))
        title = title_of(ready, answer=self.answer is not None)
        words: Words = {"title": title, "caption": caption}
        chart = SweepChart(ready.reducer, self.columns, self.units, axes, self.answer, words)
        return chart.figure()


def spread_rows(terms: Sequence[Column], groups: Sequence[Column], count: int) -> list[int]:
    """That many rows, the first among them, far from each other in the logarithms of terms.

    Each term is scaled to 1, and rows of other groups count as far. The next row is always the
    farthest from those chosen (Gonzalez 1985, Theoretical Computer Science 38).

    >>> spread_rows([np.array([1.0, 1.1, 1.2, 10.0, 100.0])], [], 3)
    [0, 3, 4]
    """
    logs = [np.log(np.where(np.isfinite(x) & (x > 0), x, 1.0)) for x in terms]
    scaled = [(x - x.min()) / max(float(np.ptp(x)), 1e-300) for x in logs]

    def distance(row: int) -> Column:
        squares = sum(((x - x[row]) ** 2 for x in scaled), np.zeros(len(scaled[0])))
        return squares + sum(4.0 * (x != x[row]) for x in groups)

    chosen, left = [0], distance(0)
    while len(chosen) < count:
        left[chosen[-1]] = -1.0  # alike or not, no row twice
        chosen.append(int(left.argmax()))
        left = np.minimum(left, distance(chosen[-1]))
    return sorted(chosen)


def columns_of(ready: Prepared, rows: RefinedPoints) -> tuple[dict[str, Column], dict[str, str]]:
    """Axes, then the terms of the estimates in float64, by dotted path; and their units."""
    axes: dict[str, Column] = {}  # one of some structures only is None for the others
    units: dict[str, str] = {}
    for part, at, point in ready.locate(rows.index):
        for c in part.group.columns:
            full = axes.setdefault(c.path, np.full(len(rows), None, object))
            labels = np.empty(len(c.labels), object)
            labels[:] = c.labels
            full[at] = labels[point[:, c.digit]]
            if not c.is_spec:
                units[c.path] = declared(c.path, part.group.base, None).full_unit
    columns = {path: np.array(column.tolist()) for path, column in axes.items()}
    terms = rows.terms
    for name in (*HEAD, *ready.signs, *terms):
        if name in terms:
            columns.setdefault(name, terms[name])
    fields, systems = ready.declared, ready.systems
    units |= {name: field.full_unit for name, field in fields.items()}
    fixed = [*systems][:1] * len(rows)
    of_row = columns["hardware"].tolist() if "hardware" in columns else fixed
    for name, side, factors in _bands(ready, of_row):
        if name in columns:
            end = f"{name}_{side}80"
            columns[end], units[end] = columns[name] * factors, units.get(name, "")
    dark = np.array([n in systems and not float(systems[n].hardware.power) for n in of_row])
    if dark.any() and "hardware.power" not in columns:
        powers = [name for name in columns if name in fields and fields[name].drawn]
        columns |= {name: np.where(dark, np.nan, columns[name]) for name in powers}
    if isinstance(ready.reducer, Best):
        exceeded = [_exceeded_limits(ready, rows, units, i) for i in range(len(rows))]
        columns["violates"] = np.array(exceeded)
    return columns, units


def _bands(ready: Prepared, of_row: Sequence[str]) -> Iterator[tuple[str, str, Column]]:
    """Ends of 80 % intervals of times over the times, by output, side and row.

    Where systems were calibrated to servers of the models.
    """
    (table, *others) = {e.table for e in ready.estimators}
    models = {x.name for x in ready.models}
    bands = {
        name: system.bands(table)
        for name, system in ready.systems.items()
        if not others and system.calibration and models <= {system.calibration.model}
    }
    by_row = [bands.get(name, {}) for name in of_row]
    for output in outputs(Estimate):
        for i, side in enumerate(("low", "high")) if output.banded else ():
            ends = np.array([band.get(output.name, (np.nan, np.nan))[i] for band in by_row])
            if not np.all(np.isnan(ends)):
                yield output.name, side, ends


def axes_of(ready: Prepared, index: int) -> dict[str, object]:
    """The axes of a point as the user wrote them: numbers, and names of specs."""
    [(part, _, [point])] = ready.locate([index])
    return {c.path: c.labels[point[c.digit]] for c in part.group.columns}


def _exceeded_limits(ready: Prepared, rows: RefinedPoints, units: dict[str, str], i: int) -> str:
    """The limits that row ``i`` breaks, in words, or nothing."""
    terms, reducer = rows.terms, ready.reducer
    broken: list[str] = []
    for name, limit in reducer.limits if isinstance(reducer, Best) else ():
        value, least = terms[name][i], is_least(name, ready.signs)
        if (value < limit) if least else (value > limit):
            word = "under" if least else "over"
            broken.append(f"{name} {value:.4g} {word} {limit:.4g} {units[name]}")
    for name, need in terms.items() if not terms["feasible"][i] else ():
        # numbers of a phase that was not evaluated are not known
        capacity = terms.get(name.removesuffix("need") + "capacity", need)
        if name.endswith(".need") and need[i] > capacity[i]:
            limit = name.removesuffix(".need").replace(".limits.", " ")
            broken.append(f"{limit} {need[i]:.4g} over {capacity[i]:.4g}")
    return "; ".join(broken)


@dataclass(frozen=True, repr=False)
class Explanation(Result):
    """One point in full: its axes, every term of its estimate, and the command that computes it."""

    index: int
    axes: dict[str, object]
    terms: dict[str, tuple[float, str]]
    estimate: Estimate
    command: str

    def sections(self) -> Iterator[Section]:
        """A line for each axis and each term with its unit; the index as text (of any size)."""
        terms = {name: {"value": x, "unit": unit} for name, (x, unit) in self.terms.items()}
        yield {"index": str(self.index), "axes": self.axes, "terms": terms}
        lines = [f"point {self.index}", *(f"  {k} = {v}" for k, v in self.axes.items())]
        lines += [f"  {k:40} {v:.6g} {unit}" for k, (v, unit) in self.terms.items()]
        yield "\n".join([*lines, f"again: {self.command}"])


def explain(ready: Prepared, index: int, source: str = "") -> Explanation:
    """One point of a prepared sweep in full, by its global index.

    Raises:
        InputError: an index that the grid does not have.
    """
    if not 0 <= index < ready.size:
        raise InputError("space", "index", index, f"from 0 to {ready.size - 1}")
    [(part, _, point)] = ready.locate([index])
    rows = refine.estimates(part, point, "all")[4]
    estimate, fields = jax.tree.map(itemgetter(0), rows), part.point.declared
    terms = {name: (float(x), fields[name].full_unit) for name, x in numbers(estimate).items()}
    command = f"explain(prepare(estimator, space, keep), {index})"
    if source:
        command = f"infer-jax sweep {source} --at {index}"
    return Explanation(index, axes_of(ready, index), terms, estimate, command)
