"""Prints answers on the command line, as text or as one JSON object."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from infer_jax.cli.runtime import hushed, prepare
from infer_jax.errors import InputError
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Column as Column, Notes, Part, Result, Table
from infer_jax.results.numbers import plain
from infer_jax.results.result import SCHEMA
from infer_jax.results.text import show
from infer_jax.verbs import pictures

if TYPE_CHECKING:
    from rich.console import Console


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
    _shown(result, options)
    return result


def pictured(verb: Callable[..., Pictured], options: Mapping[str, object]) -> Result:
    """``answer``, with a picture of it in the file ``out`` of the options, where there is one.

    Raises:
        InputError: a file that no picture can be written to, or matplotlib is not installed;
            before anything is computed.
    """
    prepare()
    given = {name: value for name, value in options.items() if name not in ("as_json", "out")}
    out = options["out"]
    if out is None:
        return answer(verb, {**given, "as_json": options["as_json"]})
    pictures.check(str(out), otherwise="")
    if missing := pictures.missing():
        raise InputError("command line", "--out", str(out), missing)
    result = verb(**given)
    result.draw(str(out))
    _shown(result, options, str(out))
    return result


def _shown(result: Result, options: Mapping[str, object], picture: str | None = None) -> None:
    """Print a result, as JSON where that is asked for, and the file of its picture."""
    drawn = {} if picture is None else {"picture": picture}
    if options.get("as_json"):
        as_json({**result.to_dict(), **drawn})
        return
    parts = [*result.parts()]
    if picture is not None:
        said = [x for part in parts if isinstance(part, Notes) for x in part.sentences]
        above: list[Part] = [part for part in parts if not isinstance(part, Notes)]
        parts = [*above, Notes([*said, f"Picture: {picture}."])]
    show(parts, _console(), notes=not hushed())


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
