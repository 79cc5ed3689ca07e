"""How is a CSV file of points read: which columns, which rows, and what is wrong with a cell?

Columns are matched by name in any order. Columns nobody knows are ignored and named; a column
that may be absent has a value that is then taken, and said. A required column missing, a row
of the wrong length or a malformed cell is an InputError with its line.
"""

import csv
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments._report import GOLDEN
from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import csv_rows
from infer_jax.errors import InputError

Value = float | str


def _reader(allowed: str, holds: Callable[[float], bool]) -> Callable[[str], float]:
    """Reads a cell as a number that ``holds``; its error names what is allowed."""

    def read(cell: str) -> float:
        try:
            value = float(cell)
        except ValueError:
            raise ValueError(allowed) from None
        if not holds(value):
            raise ValueError(allowed)
        return value

    return read


positive = _reader("a number above 0", lambda x: 0 < x < math.inf)
at_least_zero = _reader("a number of at least 0", lambda x: 0 <= x < math.inf)
count = _reader("a whole number above 0", lambda x: 0 < x < math.inf and x == math.floor(x))
flag = _reader("0 or 1", lambda x: x in (0.0, 1.0))
quantity = _reader("a number, or inf where infeasible", lambda x: x > -math.inf)


def printed_rows(file: str | os.PathLike[str]) -> list[dict[str, str]]:
    """The rows of a file of printed figures: a name in ``tests/golden``, or a whole path."""
    return list(csv.DictReader((GOLDEN / file).read_text(encoding="utf-8").splitlines()))


class Input(NamedTuple):
    """A column that says what to evaluate.

    ``absent`` is taken where there is no such column, ``blank`` where a cell is empty; without
    the one the column is required, without the other the row is skipped.
    """

    read: Callable[[str], Any] = str
    absent: Any = None
    blank: Any = None


class Output(NamedTuple):
    """A column to compare, within a relative tolerance; text must be equal.

    ``least``: theirs is what ours must at least be.
    """

    tolerance: float = 1e-9
    read: Callable[[str], Value] = quantity
    least: bool = False

    def error(self, theirs: Value, ours: Value) -> float:
        """How far ours is from theirs, or below."""
        if self.least and not isinstance(theirs, str) and not isinstance(ours, str):
            return difference(theirs, min(ours, theirs))
        return difference(theirs, ours)


def difference(theirs: Value, ours: Value) -> float:
    """|ours / theirs - 1|; 0 where equal (two infinities, too), else inf where no ratio is."""
    if theirs == ours:
        return 0.0
    if isinstance(theirs, str) or isinstance(ours, str):
        return math.inf
    if theirs == 0.0 or not (math.isfinite(theirs) and math.isfinite(ours)):
        return math.inf
    return abs(ours / theirs - 1.0)


class Point(NamedTuple):
    """A row: its line, its inputs, and the output cells that are not empty."""

    line: int
    inputs: dict[str, Any]
    outputs: dict[str, Value]


@dataclass(frozen=True)
class Points:
    """A file of points: what can be evaluated, and what was left aside and why."""

    points: list[Point]
    rows: int
    columns: list[str]
    ignored: list[str]
    assumed: dict[str, Any]
    skipped: Counter[str]


def read_points(
    path: str | os.PathLike[str], inputs: Mapping[str, Input], outputs: Mapping[str, Output]
) -> Points:
    """The points of a file.

    Raises:
        InputError: unreadable, a required column missing, a malformed row or cell.
    """
    where, known = str(path), {**inputs, **outputs}
    lines = csv_rows(where, read_text(path))
    header = _header(where, next(lines)[1], inputs, outputs)
    assumed = {name: i.absent for name, i in inputs.items() if name not in header}
    points: list[Point] = []
    skipped: Counter[str] = Counter()
    rows = 0
    for line, cells in lines:
        rows += 1
        if len(cells) != len(header):
            width = f"{len(header)}, as the header has"
            raise InputError(where, f"line {line}, number of cells", len(cells), width)
        values: dict[str, Any] = {}
        for name, cell in zip(header, cells, strict=True):
            if cell and name in known:
                try:
                    values[name] = known[name].read(cell)
                except ValueError as error:
                    raise InputError(where, f"line {line}, {name}", cell, str(error)) from None
        given = {name: values.get(name, inputs[name].blank) for name in header if name in inputs}
        theirs = {name: values[name] for name in header if name in outputs and name in values}
        if empty := [name for name, value in given.items() if value is None]:
            skipped[f"{empty[0]} is empty"] += 1
        elif not theirs:
            skipped["no value to compare"] += 1
        else:
            points.append(Point(line, assumed | given, theirs))
    columns = [name for name in header if name in outputs]
    ignored = [name for name in header if name not in known]
    return Points(points, rows, columns, ignored, assumed, skipped)


def _header(
    where: str, header: list[str], inputs: Mapping[str, Input], outputs: Mapping[str, Output]
) -> list[str]:
    """The column names, if they suffice."""
    for name, count in Counter(header).items():
        if count > 1:
            raise InputError(where, f"column {name}", f"given {count} times", "once")
    needed = [name for name, i in inputs.items() if i.absent is None]
    for name in needed:
        if name not in header:
            allowed = f"a file with {', '.join(needed)}"
            raise InputError(where, f"column {name}", "missing", allowed)
    if not any(name in outputs for name in header):
        allowed = f"at least one of {', '.join(outputs)}"
        raise InputError(where, "columns to compare", "missing", allowed)
    return header
