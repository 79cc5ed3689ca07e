"""A measured number of a page stands in what a command wrote, or in a publication that it cites.

Printed blocks are held to what commands print by test_pages.py.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.installed.pages import PAGES, ROOT, Piece, commands, pieces

VALUE = r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
UNIT = (
    r"%|per cent\b|[mµun]?s\b(?! of a)|seconds?\b|minutes?\b|hours?\b|(?:tokens|tok|requests)/s"
    r"|[KMGT]i?B\b(?:/s)?|[kM]?W\b|[kMmµp]?J\b|USD\b|times\b|x\b(?! \d)"
)
# one or several with a unit of time, share, rate, size, power, energy or money behind them
NUMBER = re.compile(
    rf"(?<![\w.$])(?:\$({VALUE})"
    rf"|({VALUE}(?:(?:,? to |,? and |,? or |, ){VALUE})*) ?(?P<unit>{UNIT}))"
)
PUBLISHED = re.compile(
    r"arXiv|https?://|\w/[\w-]+ #\d|(?:Table|Figure|Fig\.|Section|Appendix|Eq\.) [\dA-Z]"
    r"|[A-Z][a-z]+(?: et al\.| and [A-Z][a-z]+)?,? \(?(?:19|20)\d\d\b"
)
COMMAND = re.compile(
    r"infer-jax [a-z]|python -m (?:infer_jax|\w+\.)|(?:experiments|benchmarks)/\w+\.py"
)
PARAGRAPHS = r"\n\s*\n|\n(?= *[*-] | *\||#| *\d\. )"
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
CODE = re.compile(r"`[^`]*`")
# definitions, and bounds of what is read; and what a command writes whole (test_silicon_studies.py)
PLAIN = ("docs/formats.md", "docs/notation.md", "docs/hardware-profiles.md", "docs/silicon/")
ALWAYS = {"80", "1", "10"}  # per cent: the bands' share, and steps by which numbers are moved


def values(text: str) -> set[float]:
    """All numbers of a text."""
    return {float(x.replace(",", "")) for x in re.findall(VALUE, text)}


@cache
def written(page: Path) -> dict[str, set[float]]:
    """The numbers that commands wrote on a page, by the anchor of their section.

    These are blocks below a command, doctests, and tables in a section that names a command; what
    readers give to commands is there, too.
    """
    sections: dict[str, set[float]] = {"": set()}
    shown = {place.begins + i for place in commands(page) for i in range(len(place.shown))}
    anchor = ""
    for piece in pieces(page.read_text(encoding="utf-8").splitlines()):
        for number, line in enumerate(piece.lines, piece.line):
            if is_heading(piece, line):
                anchor = heading_anchor(line)
                sections[anchor] = set()
            elif number in shown or piece.kind not in ("text", "```"):
                sections[anchor] |= values(line)
    for anchor, row in written_rows(page):
        sections[anchor] |= values(row)
    return sections


def written_rows(page: Path) -> Iterator[tuple[str, str]]:
    """The rows of tables below a command of their section, with its anchor."""
    anchor, commanded = "", False
    for piece in pieces(page.read_text(encoding="utf-8").splitlines()):
        for line in piece.lines:
            if is_heading(piece, line):
                anchor, commanded = heading_anchor(line), False
            commanded = commanded or bool(COMMAND.search(line))
            if commanded and piece.kind == "text" and line.startswith("|"):
                yield anchor, line


def is_heading(piece: Piece, line: str) -> bool:
    """Whether a line begins a section."""
    return piece.kind == "text" and line.startswith("#")


def heading_anchor(line: str) -> str:
    """The anchor that a page's heading gets."""
    words = re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower())
    return "#" + words.replace(" ", "-")


def sources(page: Path, anchor: str, paragraph: str) -> set[float]:
    """The numbers written in a paragraph's section, and in the sections that it links to."""
    result = written(page)[anchor].union(*map(values, CODE.findall(paragraph)))
    for file, link in LINK.findall(paragraph):
        linked = (page.parent / file).resolve() if file else page
        if linked.suffix == ".md" and linked.is_file():
            result |= written(linked).get(link, set())
    return result


def stands_in(text: str, unit: str, numbers: set[float]) -> bool:
    """Whether a number of prose is one of these to its digits, a share also as a part of 1."""
    value, half = float(text.replace(",", "")), 0.501 * 10.0 ** -len(text.partition(".")[2])
    scales = (1, 100) if unit == "%" else (1,)
    return any(abs(scale * x - value) <= half for x in numbers for scale in scales)


def unsourced(page: Path) -> Iterator[str]:
    """Paragraphs, list items and rows of a page with a measured number that nothing wrote."""
    rows, anchor = {row for _, row in written_rows(page)}, ""
    for piece in pieces(page.read_text(encoding="utf-8").splitlines()):
        if piece.kind != "text":
            continue
        for paragraph in re.split(PARAGRAPHS, "\n".join(piece.lines)):
            if paragraph.startswith("#"):
                anchor = heading_anchor(paragraph.partition("\n")[0])
            if PUBLISHED.search(paragraph) or paragraph.rstrip() in rows:
                continue
            prose = " ".join(CODE.sub("`", paragraph).split())
            missing = [
                x
                for match in NUMBER.finditer(prose)
                for x in re.findall(VALUE, match[0])
                if x not in ALWAYS
                and not stands_in(x, match["unit"] or "", sources(page, anchor, paragraph))
            ]
            if missing:
                yield f"{', '.join(missing)}: {prose}"


def is_plain(page: Path) -> bool:
    """Whether a page has definitions alone, or was written by a command."""
    return str(page.relative_to(ROOT)).startswith(PLAIN)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if not is_plain(page)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_measured_number_stands_where_a_command_wrote_it(page):
    assert not list(unsourced(page))
