"""What an answer is made of: sentences, fields, facts, rows, lines to copy, and notes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from infer_jax.results.numbers import cell, number

Format = Callable[..., str]
Row = Mapping[str, Any]  # of an answer, by the names of its columns


class Column(NamedTuple):
    """A column of a table.

    Args:
        title: its title.
        unit: printed under the title.
        value: the key or attribute of a row that it prints, with dots where deeper; or a function
            of the row. A key that a row lacks is blank.
        format: how a value is printed; None is blank.
        left: whether its text stands left; texts do where this is None.
        spare: whether it is left out where the terminal is too narrow for all.
        if_any: whether it is left out where no row has a value.
    """

    title: str
    unit: str = ""
    value: str | Callable[..., object] = ""
    format: Format = cell
    left: bool | None = None
    spare: bool = False
    if_any: bool = False

    def of(self, row: object) -> object:
        """The value of one row."""
        if callable(self.value):
            return self.value(row)
        for key in self.value.split("."):
            row = row.get(key) if isinstance(row, Mapping) else getattr(row, key)
        return row


class Table(NamedTuple):
    """Rows of text under columns; row number ``mark`` is printed in bold."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    mark: int = -1


def table(rows: Sequence[object], columns: Sequence[Column], mark: int = -1) -> Table:
    """Rows of any kind as a table of text.

    >>> table([{"kernel": "attention", "mfu": 0.42}], [Column("", "", "kernel"),
    ...     Column("MFU", "%", "mfu", lambda x: f"{100 * x:g}")]).rows
    [['attention', '42']]
    """
    heads, cells = [], []
    for column in columns:
        values = [column.of(row) for row in rows]
        if column.if_any and all(x is None for x in values):
            continue
        text = all(isinstance(x, str) for x in values)
        heads.append(column._replace(left=text if column.left is None else column.left))
        cells.append(["" if x is None else column.format(x) for x in values])
    return Table(heads, [list(row) for row in zip(*cells, strict=True)], mark)


class Lines(NamedTuple):
    """Lines to copy, printed unchanged however narrow the terminal is."""

    text: str


class Notes(NamedTuple):
    """What was assumed, one item a sentence; not printed where only the answer is wanted."""

    sentences: Sequence[str]


class Fact(NamedTuple):
    """A number or a word of an answer: ``key`` in JSON ("": none), printed where it has a title.

    ``note``: what stands beside it, such as a limit and whether it is met.
    """

    key: str
    value: object
    title: str = ""
    unit: str = ""
    format: Format = number
    note: str = ""

    @property
    def text(self) -> str:
        """The value as it is printed."""
        return self.format(self.value)


ANSWERS = (Column("answer", "", "title"), Column("value", "", "text", left=False),
           Column("unit", "", "unit"))  # fmt: skip


class Answers(NamedTuple):
    """Answers: fields of JSON, and a table of those that have a title."""

    facts: Sequence[Fact]
    columns: Sequence[Column] = ANSWERS

    def fields(self) -> dict[str, object]:
        """The facts by their keys in JSON."""
        return {fact.key: fact.value for fact in self.facts if fact.key}

    def table(self) -> Table:
        """The facts that are printed."""
        return table([fact for fact in self.facts if fact.title], self.columns)


class Rows(NamedTuple):
    """Rows of one kind: the list ``key`` of JSON ("": none), printed under ``columns`` if any."""

    key: str
    rows: Sequence[object]
    columns: Sequence[Column] = ()
    mark: int = -1

    def fields(self) -> dict[str, object]:
        """The rows under their key in JSON."""
        return {self.key: list(self.rows)} if self.key else {}

    def table(self) -> Table:
        """The rows as they are printed."""
        return table(self.rows, self.columns, self.mark)


# a sentence is a plain string; "" is an empty line
Part = str | Table | Lines | Notes
Section = Part | Mapping[str, object] | Answers | Rows
