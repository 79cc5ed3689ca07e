"""Prints answers on the command line, as text or as one JSON object."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from infer_jax.cli.runtime import hushed
from infer_jax.results import Column as Column, Notes, Part, Result, Table
from infer_jax.results.numbers import plain
from infer_jax.results.result import SCHEMA
from infer_jax.results.text import show

if TYPE_CHECKING:
    from rich.console import Console


def show_result(
    result: Result, *, as_json: bool, picture: str | None = None, lacking: str = ""
) -> None:
    """Print a result, as JSON where that is asked for, and the file of its picture.

    ``lacking``: why there is no picture, where one was asked for.
    """
    if as_json:
        drawn = {} if picture is None else {"picture": picture}
        drawn |= {"picture": None, "why_no_picture": lacking} if lacking else {}
        print_json({**result.to_dict(), **drawn})
        return
    parts = [*result.parts()]
    if last := f"Picture: {picture}." if picture is not None else lacking:
        said = [x for part in parts if isinstance(part, Notes) for x in part.sentences]
        above: list[Part] = [part for part in parts if not isinstance(part, Notes)]
        parts = [*above, Notes([*said, last])]
    show(parts, _console(), notes=not hushed())


def print_json(fields: Mapping[str, object]) -> None:
    """Print one JSON object; a number that is not finite is null."""
    text = json.dumps(
        plain({"schema": SCHEMA, **fields}), indent=2, allow_nan=False, ensure_ascii=False
    )
    print("\n".join(line if line.isprintable() else _spelt(line) for line in text.split("\n")))


def _spelt(line: str) -> str:
    """A line of JSON; what a terminal would obey stands within strings, as its number there."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def say(*sentences: str) -> None:
    """Print sentences, each on lines of its own, within the width of the terminal."""
    _print(*sentences)


def notes(sentences: Iterable[str]) -> None:
    """Print what was assumed, one item a sentence, unless --quiet."""
    _print(Notes(list(sentences)))


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], mark: int = -1) -> None:
    """Print a table; row number ``mark`` stands out."""
    _print(Table(columns, rows, mark))


def _print(*parts: Part) -> None:
    show(parts, _console(), notes=not hushed())


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)
