"""A result as text, for terminals, and as HTML, for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from infer_jax.errors import printable
from infer_jax.results.parts import Column, Lines, Notes, Part, Table

if TYPE_CHECKING:
    from rich.console import Console

WORD, GAP = 12, 2  # characters of a word in a narrow column, and between two columns
WIDTH = 100  # characters of a line where there is no terminal
MARKED = '<tr style="font-weight:bold">'


def as_text(parts: Iterable[Part], width: int = WIDTH) -> str:
    """The parts as lines of at most ``width`` characters, without colour."""
    from io import StringIO

    from rich.console import Console

    written = StringIO()
    console = Console(file=written, width=width, highlight=False, color_system=None)
    show(parts, console)
    return written.getvalue().rstrip("\n")


def show(parts: Iterable[Part], console: "Console", *, notes: bool = True) -> None:
    """Print the parts, within the width of the console; notes where they are wanted."""
    for part in parts:
        if isinstance(part, str):
            console.print(printable(part), markup=False)
        elif isinstance(part, Table):
            _print_table(part, console)
        elif isinstance(part, Lines):
            console.print(printable(part.text), markup=False, soft_wrap=True)
        elif notes:
            listed = list(dict.fromkeys(part.sentences))
            for line in [*([""] if listed else []), *(f"- {sentence}" for sentence in listed)]:
                console.print(printable(line), markup=False)


def _print_table(table: Table, console: "Console") -> None:
    """A table, or records where the console is too narrow for its numbers and words."""
    table, dropped = _narrowed(table, console.width)
    columns, rows, mark = table
    if _narrowest(columns, rows) > console.width:
        _records(columns, rows, console)
        return
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    printed = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    whole_names = _narrowest_named(columns, rows) <= console.width
    for i, column in enumerate(columns):
        printed.add_column(
            Text(printable(f"{column.title}\n{column.unit}".rstrip())),
            justify="left" if column.left else "right",
            # in a narrow terminal words are folded, numbers never, the name of a row last
            no_wrap=not column.left or (i == 0 and whole_names),
            overflow="fold",
        )
    for i, row in enumerate(rows):
        printed.add_row(*(Text(printable(x)) for x in row), style="bold" if i == mark else None)
    console.print(printed)
    if dropped:
        console.print(printable(f"Too narrow for: {', '.join(dropped)}."), markup=False)


def _narrowed(table: Table, width: int) -> tuple[Table, list[str]]:
    """The table without spare columns that do not fit, the rightmost first; and their titles."""
    (columns, rows, mark), dropped = table, list[str]()
    for i in reversed(range(1, len(columns))):
        if columns[i].spare and _narrowest_named(columns, rows) > width:
            dropped.insert(0, columns[i].title)
            columns = [*columns[:i], *columns[i + 1 :]]
            rows = [[*row[:i], *row[i + 1 :]] for row in rows]
    return Table(columns, rows, mark), dropped


def _narrowest_named(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Width of the narrowest table that keeps its first column, the rows' names, in one line."""
    return _narrowest([columns[0]._replace(left=False), *columns[1:]], rows)


def _narrowest(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Width of the narrowest table: numbers unbroken, words folded at ``WORD`` characters."""
    total = -GAP
    for i, column in enumerate(columns):
        cells = [column.title, column.unit, *(row[i] for row in rows)]
        if column.left:  # folds between words, and within words longer than WORD
            total += min(WORD, max(len(w) for cell in cells for w in (cell.split() or [""]))) + GAP
        else:
            total += max(len(cell) for cell in cells) + GAP
    return total


def _records(columns: Sequence[Column], rows: Sequence[Sequence[str]], console: "Console") -> None:
    """Rows one below the other, each under its first cell that is not empty."""
    for row in rows:
        head = next((cell for cell in row if cell.strip()), "")
        lines, titled = [], False
        for column, cell in zip(columns, row, strict=True):
            if cell == head and not titled:
                titled = True
            elif cell.strip():
                name = " ".join(filter(None, (column.title, column.unit)))
                lines.append(f"  {name}: {cell.strip()}" if name else f"  {cell.strip()}")
        for line in (head, *lines):
            console.print(printable(line), markup=False)


def as_html(parts: Iterable[Part]) -> str:
    """The parts as HTML without scripts or links; every text is escaped."""
    return "".join(_part(part) for part in parts)


def _part(part: Part) -> str:
    if isinstance(part, str):
        return f"<p>{_text(part)}</p>" if part else ""
    if isinstance(part, Lines):
        return f"<pre>{_text(part.text)}</pre>"
    if isinstance(part, Notes):
        listed = list(dict.fromkeys(part.sentences))
        return f"<ul>{''.join(f'<li>{_text(s)}</li>' for s in listed)}</ul>" if listed else ""
    return _table(part)


def _table(table: Table) -> str:
    sides = ["left" if column.left else "right" for column in table.columns]
    heads = "".join(
        f'<th style="text-align:{side}">{_text(column.title)}<br>{_text(column.unit)}</th>'
        for column, side in zip(table.columns, sides, strict=True)
    )
    rows = "".join(
        (MARKED if i == table.mark else "<tr>")
        + "".join(
            f'<td style="text-align:{side}">{_text(cell)}</td>'
            for cell, side in zip(row, sides, strict=True)
        )
        + "</tr>"
        for i, row in enumerate(table.rows)
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _text(text: str) -> str:
    return escape(printable(text)).replace("\n", "<br>")
