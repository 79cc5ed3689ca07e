"""Reads cells of measured files: checked numbers and texts, or an error with their place.

``Cells`` is an object of a document or a row of a table: every number it returns is finite, not
negative and below ``MAX_NUMBER``, every text valid Unicode, every list one of objects or numbers.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import csv_rows
from infer_jax.errors import InputError

MAX_BYTES = 512 * 2**20  # detailed results hold every token's time
# nothing measured is larger (nanoseconds of a clock are 2e18) or, above 0, smaller: products and
# quotients of a few such numbers are finite
MAX_NUMBER, MIN_NUMBER = 1e21, 1e-100
RANKS = (50.0, 90.0, 99.0)  # percentiles of values that are known one by one
STATISTIC = r"(mean|avg|std|median|p?(\d+(?:\.\d+)?)(?:_percentile)?)"


@dataclass(frozen=True)
class Statistic:
    """A quantity over the requests of a run: mean, deviation and percentiles, in its SI unit.

    ``percentiles`` holds (percent, value) in ascending order; 50 is the median.
    """

    mean: float | None = None
    std: float | None = None
    percentiles: tuple[tuple[float, float], ...] = ()

    @classmethod
    def over(cls, values: Sequence[float]) -> "Statistic":
        """That of single requests' values; empty where there are none."""
        if not values:
            return cls()
        ranks = tuple((rank, float(np.percentile(values, rank))) for rank in RANKS)
        return cls(float(np.mean(values)), float(np.std(values)), ranks)

    def at(self, percent: float) -> float | None:
        """The value at a percentile that the file holds, or None."""
        return dict(self.percentiles).get(percent)

    @property
    def typical(self) -> float | None:
        """The mean, or the median where a file holds no mean."""
        return self.at(50.0) if self.mean is None else self.mean

    @property
    def values(self) -> tuple[float, ...]:
        """The mean and the percentiles that the file has."""
        mean = () if self.mean is None else (self.mean,)
        return (*mean, *(value for _, value in self.percentiles))

    @property
    def reciprocal(self) -> "Statistic":
        """TPOT (s) of interactivity, in tokens per second and user: 1 over every value.

        InferenceX names a percentile of interactivity after the percentile of TPOT it is the
        reciprocal of, and its mean after the mean; a deviation has no reciprocal.
        """
        ranks = tuple((rank, 1.0 / value) for rank, value in self.percentiles if value > 0.0)
        return Statistic(1.0 / self.mean if self.mean else None, None, ranks)


@dataclass(frozen=True)
class Cells:
    """A named set of values at a place in a file; line 0 is the whole file.

    "a.b" names b of the object a inside this one, where no cell has the whole name.
    """

    file: str
    line: int
    values: Mapping[str, object]
    unit: str = "line"  # or entry, of a JSON array

    def error(self, name: str, value: object, allowed: str) -> InputError:
        """The error about one cell."""
        at = f"{self.unit} {self.line}, {name}" if self.line else name
        return InputError(self.file, at, value, allowed)

    def value(self, name: str) -> object:
        """What a cell holds; None where it is absent."""
        if name in self.values or "." not in name:
            return self.values.get(name)
        inner: object = self.values
        for key in name.split("."):
            inner = inner.get(key) if isinstance(inner, Mapping) else None
        return inner

    def number(self, name: str, scale: float = 1.0) -> float | None:
        """A number times ``scale``; None where the cell is absent, null or empty.

        Raises:
            InputError: not a number, negative or not finite.
        """
        value = self.value(name)
        return None if value is None or value == "" else self._number(name, value) * scale

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of numbers; empty where the cell is absent or null.

        Raises:
            InputError: not a list of numbers.
        """
        value = self.value(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.error(name, value, "a list of numbers")
        return tuple(self._number(f"{name}[{i}]", x) for i, x in enumerate(value))

    def text(self, name: str) -> str | None:
        """A text; None where the cell is absent, null or empty.

        Raises:
            InputError: not a text.
        """
        value = self.value(name)
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
        value = self.value(name)
        word = "" if value is None else str(value).strip().lower()
        if word not in ("false", "0", "", "true", "1"):
            raise self.error(name, value, "true or false")
        return word in ("true", "1")

    def part(self, name: str) -> "Cells":
        """An object inside this one; empty where absent."""
        value = self.value(name)
        inside: Mapping[str, object] = value if isinstance(value, Mapping) else {}
        return Cells(self.file, self.line, inside, self.unit)

    def parts(self, name: str) -> "list[Cells]":
        """The objects of a list inside this one, their place its own; empty where absent.

        Raises:
            InputError: not a list of objects.
        """
        value = self.value(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(x, Mapping) for x in value):
            raise self.error(name, value, "a list of objects")
        return [Cells(self.file, self.line, x, self.unit) for x in value]

    def statistic(self, templates: Mapping[str, float]) -> Statistic:
        """Cells as one statistic: those with mean, std, median or p99 for ``{}`` in a template.

        ``templates`` have the SI units of their numbers.

        Raises:
            InputError: one of them is not a number.
        """
        known, ranks = dict[str, float](), dict[float, float]()
        for name, template, kind, rank in _statistics(tuple(templates), tuple(self.values)):
            number = self.number(name, templates[template])
            if number is None:
                continue
            if rank is None:
                known[kind] = number
            elif float(rank) <= 100.0:
                ranks[float(rank)] = number
        if "median" in known:
            ranks = {50.0: known["median"]} | ranks
        mean = known.get("mean", known.get("avg"))
        return Statistic(mean, known.get("std"), tuple(sorted(ranks.items())))

    def _number(self, name: str, value: object) -> float:
        try:
            number = np.nan if isinstance(value, bool) else float(value)  # pyright: ignore
        except (TypeError, ValueError, OverflowError):
            number = np.nan
        if not 0.0 <= number < MAX_NUMBER:
            raise self.error(name, value, f"a number of at least 0, below {MAX_NUMBER:g}")
        return number if number > MIN_NUMBER else 0.0


@lru_cache  # equal in all rows of a table
def _statistics(
    templates: tuple[str, ...], names: tuple[str, ...]
) -> list[tuple[str, str, str, str | None]]:
    """Names of a template, each with it, with its statistic and, of a percentile, with its rank."""
    found = []
    for template in templates:
        before, _, after = template.partition("{}")
        pattern = re.compile(f"{re.escape(before)}{STATISTIC}{re.escape(after)}")
        matches = ((name, pattern.fullmatch(name)) for name in names)
        found += [(name, template, match[1], match[2]) for name, match in matches if match]
    return found


def read_rows(
    file: str, text: str, *, exact: bool = False, header: Sequence[str] | None = None
) -> tuple[int, Sequence[str], Iterator[Cells]]:
    """The line of a CSV's header, its names, and the rows below it.

    ``exact``: a row of another length is refused; else what is beyond the header is left out.
    ``header``: the names of a file that begins without any, where the first line is a row.

    Raises:
        InputError: not CSV, or empty.
    """
    rows = csv_rows(file, text)
    at, names = next(rows) if header is None else (0, header)

    def below() -> Iterator[Cells]:
        for line, row in rows:
            cells = Cells(file, line, dict(zip(names, row, strict=False)))
            if exact and len(row) != len(names):
                raise cells.error("number of cells", len(row), f"{len(names)}, as the header has")
            yield cells

    return at, names, below()


def contents(path: str | os.PathLike[str]) -> str:
    """The text of a measured file.

    Raises:
        InputError: unreadable, binary, too large, or empty.
    """
    text = read_text(path, MAX_BYTES)
    if not text.strip():
        raise InputError(str(path), "", "an empty file", "a benchmark's results, or a trace")
    return text
