"""How does an answer look: a table whose headers name units, sentences, or one JSON object?"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from infer_jax.cli.runtime import hushed
from infer_jax.errors import printable
from infer_jax.estimators import Limit

WORD, GAP = 12, 2  # letters of a word in a narrow column, and between two columns
SCHEMA = 1  # of JSON: counts up where a field goes or changes its meaning; docs/command-line.md


class Column(NamedTuple):
    """A column: its title, its unit (printed under the title) and where its text stands."""

    title: str
    unit: str = ""
    left: bool = False


def as_json(answer: dict[str, Any]) -> None:
    """Print one JSON object; a number that is not finite is null."""
    text = json.dumps(
        plain({"schema": SCHEMA, **answer}), indent=2, allow_nan=False, ensure_ascii=False
    )
    print("\n".join(line if line.isprintable() else _spelt(line) for line in text.split("\n")))


def _spelt(line: str) -> str:
    """A line of JSON; what a terminal would obey stands within strings, as its number there."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def plain(value: Any) -> Any:
    """``value`` in what JSON has: NumPy numbers become numbers, tuples become lists."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if number == int(number) and abs(number) < 2**53 else number


def say(*sentences: str) -> None:
    """Print sentences, each on lines of its own, within the width of the terminal."""
    for sentence in sentences:
        _console().print(printable(sentence), markup=False)


def lines(text: str) -> None:
    """Print lines as they stand, to be copied, however narrow the terminal."""
    _console().print(printable(text), markup=False, soft_wrap=True)


def notes(sentences: Iterable[str]) -> None:
    """Print what was assumed, one item a sentence, unless --quiet."""
    if hushed():
        return
    listed = list(dict.fromkeys(sentences))
    say(*([""] if listed else []), *(f"- {sentence}" for sentence in listed))


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], mark: int = -1) -> None:
    """Print a table; row number ``mark`` stands out.

    Where the terminal is too narrow for its numbers and words, each row is printed as a record.
    """
    if _least(columns, rows) > _console().width:
        _records(columns, rows)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(
            Text(printable(f"{column.title}\n{column.unit}".rstrip())),
            justify="left" if column.left else "right",
            # where a terminal is narrow words give way, numbers do not
            no_wrap=not column.left,
            overflow="fold",
        )
    for i, row in enumerate(rows):
        made.add_row(*(Text(printable(cell)) for cell in row), style="bold" if i == mark else None)
    _console().print(made)


def _least(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Letters of the narrowest table: numbers in one piece, of words at most ``WORD`` letters."""
    total = -GAP
    for i, column in enumerate(columns):
        cells = [column.title, column.unit, *(row[i] for row in rows)]
        if column.left:  # folds between words, and within those that are longer
            total += min(WORD, max(len(w) for cell in cells for w in (cell.split() or [""]))) + GAP
        else:
            total += max(len(cell) for cell in cells) + GAP
    return total


def _records(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print rows one below the other, each under its first cell that says something."""
    for row in rows:
        head = next((cell for cell in row if cell.strip()), "")
        lines, titled = [], False
        for column, cell in zip(columns, row, strict=True):
            if cell == head and not titled:
                titled = True
            elif cell.strip():
                name = " ".join(filter(None, (column.title, column.unit)))
                lines.append(f"  {name}: {cell.strip()}" if name else f"  {cell.strip()}")
        say(head, *lines)


def digits(value: Any, count: int = 3) -> str:
    """A number with ``count`` significant digits, never in powers of ten below 1e15.

    >>> digits(0.0123456), digits(1234567.0), digits(16.0), digits(4.03)
    ('0.0123', '1234567', '16', '4.03')
    """
    value = float(value)
    if value == 0 or not math.isfinite(value) or not 1e-6 <= abs(value) < 1e15:
        return f"{value:.{count}g}"
    places = max(0, count - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text and value == round(value) else text


def size(count: Any) -> str:
    """Bytes in the decimal unit that suits them.

    >>> size(16.06e9), size(-2.5e6)
    ('16.1 GB', '-2.50 MB')
    """
    value = float(count)
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= factor:
            return f"{digits(value / factor)} {unit}"
    return f"{value:.0f} bytes"


def known(power: Any) -> Callable[[Any], Any]:
    """What keeps a power or an energy, or makes it None where a chip's ``power`` is not known.

    >>> known(700.0)(3.0), known(0.0)(0.0)
    (3.0, None)
    """
    return (lambda x: x) if float(power) > 0.0 else lambda x: None


def or_unknown(value: Any, count: int = 3) -> str:
    """``digits`` of a number, or "unknown" for None.

    >>> or_unknown(12.345), or_unknown(None)
    ('12.3', 'unknown')
    """
    return "unknown" if value is None else digits(value, count)


def limit_of(name: str, limit: Limit) -> dict[str, Any]:
    """A limit for JSON: bytes where it is one of memory, else plain numbers."""
    unit = "_bytes" if name.endswith("memory") else ""
    return {
        f"need{unit}": limit.need,
        f"capacity{unit}": limit.capacity,
        f"slack{unit}": limit.capacity - limit.need,
        "met": bool(limit.need <= limit.capacity),
    }


def broken(name: str, limit: Limit) -> str:
    """By how much a limit is exceeded, in words."""
    said = size if name.endswith("memory") else digits
    short = float(limit.need - limit.capacity)
    return (
        f"{name} needs {said(limit.need)} of {said(limit.capacity)}: {said(short)} short"
        f" ({short / max(float(limit.capacity), 1e-300):.1%})"
    )


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False)
