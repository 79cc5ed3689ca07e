"""The parts of a printed result: sentences, tables, lines to copy, and notes."""

from collections.abc import Sequence
from typing import NamedTuple


class Column(NamedTuple):
    """A column: its title, its unit (printed under the title) and where its text stands.

    ``spare``: it is left out where the terminal is too narrow for all.
    """

    title: str
    unit: str = ""
    left: bool = False
    spare: bool = False


class Table(NamedTuple):
    """Rows of text under columns; row number ``mark`` is printed in bold."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    mark: int = -1


class Lines(NamedTuple):
    """Lines to copy, printed unchanged however narrow the terminal is."""

    text: str


class Notes(NamedTuple):
    """What was assumed, one item a sentence; left out where only the answer is wanted."""

    sentences: Sequence[str]


# a sentence is a plain string; "" is an empty line
Part = str | Table | Lines | Notes
