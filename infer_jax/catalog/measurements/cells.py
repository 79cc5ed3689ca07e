"""How is a cell of a measured file read? Numbers and texts with their place, or one sentence.

A file holds one JSON document, or one to a line. ``Cells`` is an object in it (or a row of a
table): every number it gives out is finite and not negative.
"""

import csv
import io
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infer_jax.catalog.files import read_text
from infer_jax.catalog.measurements.run import Statistic
from infer_jax.errors import InputError

LARGEST = 512 * 2**20  # bytes: detailed results hold every token's time
PERCENTILE = re.compile(r"p\d+(?:\.\d+)?")
NAMED = re.compile(r"(mean|median|std|avg|p\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Cells:
    """A named set of values at a place in a file; line 0 is the whole file."""

    file: str
    line: int
    values: Mapping[str, Any]
    unit: str = "line"  # or entry, of a JSON array

    @property
    def place(self) -> dict[str, Any]:
        """File, line and unit, as fields of a record made of these cells."""
        return {"file": self.file, "line": self.line, "unit": self.unit}

    def error(self, name: str, value: Any, allowed: str) -> InputError:
        """What is wrong with one cell."""
        at = f"{self.unit} {self.line}, {name}" if self.line else name
        return InputError(self.file, at, value, allowed)

    def number(self, name: str, scale: float = 1.0) -> float | None:
        """A number times ``scale``; None where the cell is absent, null or empty.

        Raises:
            InputError: not a number, negative or not finite.
        """
        value = self.values.get(name)
        if value is None or value == "":
            return None
        return self._number(name, value) * scale

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
        return value.strip()

    def flag(self, name: str) -> bool:
        """True where the cell says so; False where it is absent or null.

        Raises:
            InputError: neither true nor false.
        """
        value = self.values.get(name)
        shown = str(value).strip().lower()
        if value is None or shown in ("false", "0", ""):
            return False
        if shown in ("true", "1"):
            return True
        raise self.error(name, value, "true or false")

    def part(self, name: str) -> "Cells":
        """An object inside this one; empty where absent."""
        value = self.values.get(name)
        inside: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        return Cells(self.file, self.line, inside, self.unit)

    def statistic(self, name: str, scale: float) -> Statistic:
        """``mean_<name>``, ``median_<name>``, ``std_<name>`` and ``p99_<name>`` as one.

        Raises:
            InputError: one of them is not a number.
        """
        found: dict[str, float] = {}
        for key in self.values:
            head, _, tail = key.partition("_")
            if tail == name and NAMED.fullmatch(head):
                value = self.number(key, scale)
                if value is not None:
                    found[head] = value
        return gathered(found)

    def _number(self, name: str, value: Any) -> float:
        allowed = "a finite number of at least 0"
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise self.error(name, value, allowed)
        try:
            found = float(value)
        except (ValueError, OverflowError):
            raise self.error(name, value, allowed) from None
        if not 0.0 <= found < math.inf:
            raise self.error(name, value, allowed)
        return found


def gathered(found: Mapping[str, float]) -> Statistic:
    """A statistic from values named mean (or avg), std, median and p50, p99 ..."""
    ranks = {50.0: found["median"]} if "median" in found else {}
    ranks |= {float(key[1:]): value for key, value in found.items() if PERCENTILE.fullmatch(key)}
    mean = found.get("mean", found.get("avg"))
    return Statistic(mean, found.get("std"), tuple(sorted(ranks.items())))


def table_rows(file: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of every row of a CSV that is not empty, the header first.

    Raises:
        InputError: not CSV, with the line.
    """
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        at = f"line {reader.line_num}"
        raise InputError(file, at, str(error), "comma-separated values") from None


def documents(path: str | os.PathLike[str], text: str) -> list[tuple[int, Any]]:
    """The JSON documents of a file with their lines: one (line 0), or one to a line.

    Raises:
        InputError: not JSON, with the line.
    """
    try:
        return [(0, json.loads(text))]
    except RecursionError:
        raise InputError(str(path), "", "nested too deeply", "a JSON object") from None
    except ValueError:
        pass
    found = []
    for line, words in enumerate(text.splitlines(), 1):
        if words.strip():
            try:
                found.append((line, json.loads(words)))
            except (ValueError, RecursionError) as error:
                reason = str(error).splitlines()[0]
                where = f"line {line}"
                raise InputError(
                    str(path), where, f"not JSON ({reason})", "JSON, or one object to a line"
                ) from None
    return found


def contents(path: str | os.PathLike[str]) -> str:
    """The text of a measured file.

    Raises:
        InputError: unreadable, binary, too large, or empty.
    """
    text = read_text(path, LARGEST)
    if not text.strip():
        raise InputError(str(path), "", "an empty file", "a benchmark's results")
    return text
