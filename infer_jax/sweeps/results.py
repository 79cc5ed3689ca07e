"""The result of a sweep: rows with units and sources, a table, a picture, a file."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from infer_jax import __version__
from infer_jax.catalog import System
from infer_jax.errors import InputError
from infer_jax.estimators import Trust
from infer_jax.estimators.known_errors import BORROWED
from infer_jax.on_demand import load_optional
from infer_jax.plots.rendering import FigureResult, date_caption
from infer_jax.results import Column as Heading, Notes, Section, Table, option, table
from infer_jax.results.numbers import digits
from infer_jax.sweeps import tables
from infer_jax.sweeps.columns import (
    Column,
    Explanation,
    axes_of,
    columns_of,
    exceeded_limits,
    explain,
)
from infer_jax.sweeps.preparing import Prepared
from infer_jax.sweeps.reducers import Answer, TopK, parse
from infer_jax.sweeps.refine import RefinedPoints

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    from matplotlib.figure import Figure

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
        if self.kept is None:
            return {}, {}
        return columns_of(self.ready, self.kept)

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
        return "" if self.kept is None else exceeded_limits(self.ready, self.kept, self.units, i)

    def explain(self, i: int) -> Explanation:
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
        tables.check(path, self.ready.mark)
        units = {name: self.units.get(name, "") for name in self.columns}
        answer = {} if self.answer is None else {"answer": self.answer}
        facts = {**self.provenance, "notes": list(self.notes), **answer}
        tables.write(Path(path), self.columns, units, facts)

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
        columns = self.columns
        marks = {trust.system: BORROWED for trust in self.trust if trust.borrowed_from}
        asked = dict.fromkeys([*PRINTED_TERMS, *self.ready.signs])
        names = [*self.axes(0), *(n for n in asked if n in columns and n not in self.axes(0))]
        names += [] if self.met else ["violates"]

        def heading(name: str) -> Heading:
            def value(row: int) -> object:
                return columns[name][row].item()

            title, unit = name.rpartition(".")[2], self.units.get(name, "")
            return Heading(title, unit, value, cell, left=name == "violates")

        def cell(value: object) -> str:
            if isinstance(value, str):
                return f"{marks[value]} {value}" if value in marks else value
            return digits(float(value), 4) if isinstance(value, int | float) else str(value)

        heads = [heading(name) for name in names]

        def borrowed(_: int) -> str:
            return BORROWED

        if marks and "hardware" not in columns:
            heads.insert(0, Heading("", "", borrowed, left=True))
        return table(self._to_print(), heads)

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
        axes, count = self.axes(0), len(self)
        if count <= PRINTED_ROWS:
            return list(range(count))
        if self._ranked:
            named = [n for n in axes if n.startswith("plan.") or self.columns[n].dtype.kind == "U"]
            kinds = [tuple(self.columns[n][i].item() for n in named) for i in range(count)]
            first = sorted({kind: i for i, kind in reversed([*enumerate(kinds)])}.values())
            return sorted([*dict.fromkeys([*first, *range(count)])][:PRINTED_ROWS])
        per = [self.columns[name] for name in self.ready.reducer.axes]
        terms = [self.columns[parse(name)[0]] for name in self.ready.reducer.terms]
        return spread_rows(terms, per, PRINTED_ROWS)

    def _figure(self) -> "Figure":
        """Frontiers, a map over two axes, points or bars of the result.

        Raises:
            InputError: nothing that can be drawn; matplotlib is not installed; a file that cannot
                be written.
        """
        from infer_jax.sweeps.chart import SweepChart, caption_of, title_of

        ready, axes = self.ready, tuple(self.axes(0)) if len(self) else ()
        title = title_of(ready, answer=self.answer is not None)
        caption = date_caption(caption_of(ready, int(self.provenance["counts"]["feasible"])))
        chart = SweepChart(
            ready.reducer, self.columns, self.units, axes, self.answer, title, caption
        )
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


def provenance(
    ready: Prepared, counts: Mapping[str, int], seconds: float, devices: list[str], chunk: int
) -> dict[str, Any]:
    """Version, estimator, sources in the catalog, precision, and counts of points."""
    sources = {
        name: dict(x.sources) if isinstance(x, System) else {"architecture": x.source}
        for name, x in ready.named.items()
    }
    return {
        "program": f"infer_jax {__version__}",
        "jax": jax.__version__,
        "fingerprint": ready.mark,
        "estimator": [type(e).__name__ for e in ready.estimators],
        "sources": sources,
        "keep": repr(ready.reducer),
        "precision": ready.precision,
        "points": str(ready.size),
        "counts": {k: str(v) for k, v in counts.items()},
        "seconds": seconds,
        "devices": devices,
        "chunk": chunk,
    }
