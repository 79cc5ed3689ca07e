"""A result as HTML, for notebooks."""

from collections.abc import Iterable
from html import escape

from infer_jax.errors import printable
from infer_jax.results.parts import Lines, Notes, Part, Table

MARKED = '<tr style="font-weight:bold">'


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
