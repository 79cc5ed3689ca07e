"""How does the command line print an answer: as text, or as one JSON object?"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from infer_jax.cli.runtime import hushed, prepare
from infer_jax.results import Column as Column, Notes, Part, Result, Table
from infer_jax.results.numbers import plain
from infer_jax.results.text import show

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 2  # of JSON: counts up where a field goes or changes its meaning; docs/command-line.md


def answer(
    verb: Callable[..., Result], options: Mapping[str, object], *, every_device: bool = False
) -> Result:
    """Ask ``verb`` with the options of the command line, and print what it answers.

    ``options``: as the command has them; ``as_json`` is not the verb's own.
    ``every_device``: wake accelerators, too.
    """
    prepare(every_device=every_device)
    given = {name: value for name, value in options.items() if name != "as_json"}
    result = verb(**given)
    if options.get("as_json"):
        as_json(result.to_dict())
    else:
        show(result.parts(), _console(), notes=not hushed())
    return result


def as_json(fields: Mapping[str, object]) -> None:
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
