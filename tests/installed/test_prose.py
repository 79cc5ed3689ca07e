"""A paragraph with a measured number says where it comes from: a command, a page or a paper."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installed.pages import PAGES, ROOT, pieces

# numbers that read as results: with a unit of time, share, rate or size
NUMBER = re.compile(
    r"(?<![\w.])\d[\d,]*(?:\.\d+)? ?(?:%|ms\b|µs\b|s\b(?! of a)|tokens/s|GB/s|times\b|x\b)"
)
# a command, a link, an option of a command, a paper or one of its tables
SOURCE = re.compile(
    r"`(?:python|infer|bash|pytest|\.venv|tests|experiments|benchmarks)"
    r"|\]\(|arXiv|20[12]\d|Table \d|Figure \d|--[a-z]"
)
# derivations and records of measurements, which name their commands once a section
SECTIONS = ("docs/theories", "docs/calibration.md", "docs/codesign.md")
# definitions, and bounds of what is read
PLAIN = ("docs/formats.md", "docs/notation.md", "docs/hardware-profiles.md", "docs/notebooks")
ALWAYS = ("80 %", "1 %", "10 %")  # the bands' share, and steps by which numbers are moved


def unsourced(page: Path) -> Iterator[str]:
    """Paragraphs and list items of a page's prose with a measured number and no source."""
    for piece in pieces(page.read_text(encoding="utf-8").splitlines()):
        if piece.kind != "text":
            continue
        for paragraph in re.split(r"\n\s*\n|\n(?=[*|-] )", "\n".join(piece.lines)):
            outside = re.sub(r"`[^`]*`", "", paragraph)  # of commands, which readers choose
            found = [x for x in NUMBER.findall(outside) if x not in ALWAYS]
            if found and not paragraph.lstrip().startswith("|") and not SOURCE.search(paragraph):
                yield f"{', '.join(found)}: {paragraph[:80]}"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if not str(page.relative_to(ROOT)).startswith((*SECTIONS, *PLAIN))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_number_says_where_it_comes_from(page):
    assert not list(unsourced(page))
