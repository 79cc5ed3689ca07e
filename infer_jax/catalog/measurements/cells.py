"""Reads cells of measured files: checked numbers and texts, or an error with their place.

``Cells`` is an object of a document or a row of a table: every number it returns is finite, not
negative and below ``MAX_NUMBER``, every text valid Unicode, every list one of objects or numbers.
A format of runs is a table of columns, from field to cell, which ``read_run`` reads.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import csv_rows
from infer_jax.catalog.measurements.run import Run, Statistic
from infer_jax.errors import InputError

MAX_BYTES = 512 * 2**20  # detailed results hold every token's time
# nothing measured is larger (nanoseconds of a clock are 2e18) or, above 0, smaller: products and
# quotients of a few such numbers are finite
MAX_NUMBER, MIN_NUMBER = 1e21, 1e-100
PERCENTILE = re.compile(r"p\d+(?:\.\d+)?")
RANKS = (50.0, 90.0, 99.0)  # percentiles of values that are known one by one
STATISTIC = re.compile(r"(mean|median|std|avg|p\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Cells:
    """A named set of values at a place in a file; line 0 is the whole file."""

    file: str
    line: int
    values: Mapping[str, object]
    unit: str = "line"  # or entry, of a JSON array

    def error(self, name: str, value: object, allowed: str) -> InputError:
        """The error about one cell."""
        at = f"{self.unit} {self.line}, {name}" if self.line else name
        return InputError(self.file, at, value, allowed)

    def number(self, name: str, scale: float = 1.0) -> float | None:
        """A number times ``scale``; None where the cell is absent, null or empty.

        Raises:
            InputError: not a number, negative or not finite.
        """
        value = self.values.get(name)
        return None if value is None or value == "" else self._number(name, value) * scale

    def numbers(self, name: str, scale: float = 1.0) -> tuple[float, ...]:
        """A list of numbers; empty where the cell is absent or null.

        Raises:
            InputError: not a list of numbers.
        """
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.error(name, value, "a list of numbers")
        return tuple(self._number(f"{name}[{i}]", x) * scale for i, x in enumerate(value))

    def text(self, name: str) -> str | None:
        """A text; None where the cell is absent, null or empty.

        Raises:
            InputError: not a text.
        """
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.error(name, value, "a text")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise self.error(name, value, "a text of Unicode: half a surrogate pair is none")
        return value.strip()

    def flag(self, name: str) -> bool:
        """True where the cell says so; False where it is absent or null.

        Raises:
            InputError: neither true nor false.
        """
        value = self.values.get(name)
        word = "" if value is None else str(value).strip().lower()
        if word not in ("false", "0", "", "true", "1"):
            raise self.error(name, value, "true or false")
        return word in ("true", "1")

    def part(self, name: str) -> "Cells":
        """An object inside this one; empty where absent."""
        value = self.values.get(name)
        inside: Mapping[str, object] = value if isinstance(value, Mapping) else {}
        return Cells(self.file, self.line, inside, self.unit)

    def parts(self, name: str) -> "list[Cells]":
        """The objects of a list inside this one, their place its own; empty where absent.

        Raises:
            InputError: not a list of objects.
        """
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(x, Mapping) for x in value):
            raise self.error(name, value, "a list of objects")
        return [Cells(self.file, self.line, x, self.unit) for x in value]

    def statistic(self, name: str, scale: float) -> Statistic:
        """``mean_<name>``, ``median_<name>``, ``std_<name>`` and ``p99_<name>`` as one.

        Raises:
            InputError: one of them is not a number.
        """
        keys = {key: key.partition("_") for key in self.values}
        return statistic_of(
            {
                head: self.number(key, scale)
                for key, (head, _, tail) in keys.items()
                if tail == name and STATISTIC.fullmatch(head)
            }
        )

    def _number(self, name: str, value: object) -> float:
        try:
            number = np.nan if isinstance(value, bool) else float(value)  # pyright: ignore
        except (TypeError, ValueError, OverflowError):
            number = np.nan
        if not 0.0 <= number < MAX_NUMBER:
            raise self.error(name, value, f"a number of at least 0, below {MAX_NUMBER:g}")
        return number if number > MIN_NUMBER else 0.0


Column = str | tuple[str, float]  # the name of a cell, and the SI units of one of its numbers
BY_TYPE: Mapping[object, Callable[[Cells, str, float], object]] = {
    Statistic: Cells.statistic,
    tuple[float, ...]: Cells.numbers,
    float | None: Cells.number,
    str | None: lambda cells, name, scale: cells.text(name),
}


def read_run(cells: Cells, columns: Mapping[str, Column], **fields: object) -> Run:
    """A run of the cells that ``columns`` names by field, each read by the type of the field.

    Raises:
        InputError: a malformed cell.
    """
    values: dict[str, Any] = {"file": cells.file, "line": cells.line, "unit": cells.unit}
    for field in dataclasses.fields(Run):
        if field.name in columns:
            column = columns[field.name]
            name, scale = column if isinstance(column, tuple) else (column, 1.0)
            values[field.name] = BY_TYPE[field.type](cells, name, scale)
    return Run(**values, **fields)  # pyright: ignore[reportArgumentType]


def read_rows(
    file: str, text: str, *, exact: bool = False
) -> tuple[int, list[str], Iterator[Cells]]:
    """The line of a CSV's header, its names, and the rows below it.

    ``exact``: a row of another length is refused; else what is beyond the header is left out.

    Raises:
        InputError: not CSV, or empty.
    """
    rows = csv_rows(file, text)
    at, header = next(rows)

    def below() -> Iterator[Cells]:
        for line, row in rows:
            cells = Cells(file, line, dict(zip(header, row, strict=False)))
            if exact and len(row) != len(header):
                raise cells.error("number of cells", len(row), f"{len(header)}, as the header has")
            yield cells

    return at, header, below()


def statistic_of(values: Mapping[str, float | None]) -> Statistic:
    """A statistic from values named mean (or avg), std, median and p50, p99 ...; None is absent."""
    known = {name: value for name, value in values.items() if value is not None}
    ranks = {50.0: known["median"]} if "median" in known else {}
    percentiles = {float(key[1:]): x for key, x in known.items() if PERCENTILE.fullmatch(key)}
    ranks |= {rank: value for rank, value in percentiles.items() if rank <= 100.0}
    mean = known.get("mean", known.get("avg"))
    return Statistic(mean, known.get("std"), tuple(sorted(ranks.items())))


def statistic_over(values: Sequence[float]) -> Statistic:
    """A statistic of single requests' values; empty where there are none."""
    if not values:
        return Statistic()
    ranks = tuple((rank, float(np.percentile(values, rank))) for rank in RANKS)
    return Statistic(float(np.mean(values)), float(np.std(values)), ranks)


def contents(path: str | os.PathLike[str]) -> str:
    """The text of a measured file.

    Raises:
        InputError: unreadable, binary, too large, or empty.
    """
    text = read_text(path, MAX_BYTES)
    if not text.strip():
        raise InputError(str(path), "", "an empty file", "a benchmark's results, or a trace")
    return text
