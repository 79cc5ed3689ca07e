"""Which commands do README and docs print, and what do they say comes out?

Read are fenced blocks, blocks that are indented by four spaces, and code in a line. A block
without a language that follows a command is what the command prints. ``rewritten`` brings such a
block up to date: ``pytest tests/installed/test_pages.py --rewrite``.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCE = re.compile(r"^ *```(\w*)")
CODE = re.compile(r"`([^`]+)`")
NUMBER = re.compile(r"([-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)")
SHELL = ("", "sh", "bash")
FOLDERS = ("experiments/", "examples/", "benchmarks/")


# a verb alone is a name in a sentence, unless it asks for nothing more
WHOLE = ("models", "hardware", "estimators", "doctor", "--install-completion", "--version")


class Command(NamedTuple):
    """One command of a page: its words, where it stands, and the lines shown as its output."""

    words: tuple[str, ...]
    page: str
    line: int
    shown: tuple[str, ...] = ()
    begins: int = 0  # the first of these lines

    @property
    def text(self) -> str:
        """As one would type it."""
        return " ".join(f'"{word}"' if " " in word else word for word in self.words)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


class Piece(NamedTuple):
    """A run of lines of one kind: 'text', 'indented', or the language of a fenced block."""

    kind: str
    line: int
    lines: list[str]


def commands(page: Path) -> list[Command]:
    """Every command of a page, in order."""
    name = str(page.relative_to(ROOT))
    result: list[Command] = []
    for piece, after in _followed(pieces(page.read_text(encoding="utf-8").splitlines())):
        here = [Command(tuple(words), name, line) for words, line in _read(piece)]
        if here and after is not None and (piece.kind != "text" or _leads(piece)):
            here[-1] = here[-1]._replace(shown=tuple(after.lines), begins=after.line)
        result += here
    return result


def pieces(lines: list[str]) -> Iterator[Piece]:
    """The page cut into text, fenced and indented blocks."""
    piece = Piece("text", 1, [])
    fenced = False
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if fence:
            yield piece
            fenced = not fenced
            piece = Piece(f"```{fence[1]}" if fenced else "text", number + 1, [])
            continue
        kind = "indented" if line.startswith("    ") else "text"
        if not fenced and line.strip() and kind != piece.kind:
            begins = not piece.lines or not piece.lines[-1].strip()
            if kind == "text" or begins:  # an indented line of a paragraph or list is text
                yield piece
                piece = Piece(kind, number, [])
        piece.lines.append(line)
    yield piece


def _followed(pieces: Iterator[Piece]) -> Iterator[tuple[Piece, Piece | None]]:
    """Each piece, with the block without a language that follows it."""
    kept = [piece for piece in pieces if any(line.strip() for line in piece.lines)]
    for piece, after in zip(kept, [*kept[1:], None], strict=True):
        yield piece, after if after and after.kind == "```" and not list(_read(after)) else None


def _leads(piece: Piece) -> bool:
    """Whether a paragraph ends in a colon."""
    return " ".join(piece.lines).rstrip().endswith(":")


def _read(piece: Piece) -> Iterator[tuple[list[str], int]]:
    """The commands of a piece, with their lines."""
    if piece.kind == "text":
        whole = "\n".join(piece.lines)
        for code in CODE.finditer(whole):
            line = piece.line + whole.count("\n", 0, code.start())
            yield from ((words, line) for words in split(" ".join(code[1].split())))
    elif piece.kind.removeprefix("```") in SHELL or piece.kind == "indented":
        begun, pending = 0, ""
        for number, line in enumerate(piece.lines, piece.line):
            begun = begun if pending else number
            pending += " " + line.strip().removesuffix("\\")
            if not line.rstrip().endswith("\\"):
                yield from ((words, begun) for words in split(pending))
                pending = ""


def split(text: str) -> Iterator[list[str]]:
    """The commands of ours in one line of a shell."""
    for part in text.split("&&"):
        try:
            words = shlex.split(part, comments=True)
        except ValueError:  # a line of something else
            continue
        program = words[0].rpartition("/")[2] if words else ""
        if len(words) > 1 and words[0].startswith(FOLDERS) and words[0].endswith(".py"):
            program, words = "python", ["python", *words]
        ours = program == "infer-jax" or (
            program == "python" and len(words) > 1 and words[1].startswith(FOLDERS)
        )
        if ours and (len(words) > 2 or words[-1] in WHOLE or words[-1].endswith(".py")):
            yield [program, *words[1:]]


def block(page: str, language: str, having: str) -> str:
    """The first block of a page in a language that has a line with ``having``."""
    for piece in pieces((ROOT / page).read_text(encoding="utf-8").splitlines()):
        if piece.kind == f"```{language}" and any(having in line for line in piece.lines):
            return "\n".join(piece.lines) + "\n"
    raise AssertionError(f"{page} has no block of {language} with {having}")


def difference(shown: Sequence[str], out: str) -> str:
    """Where a page's lines are not those that were printed, in one sentence; empty if they are.

    A line `...` stands for any number of lines; between two of them lines follow each other.
    Lines above the first and below the last may be left out, and so may blank lines, rules and
    spaces. Numbers may differ by one in their last digit, or by a thousandth; counts below 100 not.
    """
    printed = [line for line in out.splitlines() if _says(line)]
    groups: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == "...":
            groups.append([])
        elif _says(line):
            groups[-1].append(line)
    begin = 0
    for group in filter(None, groups):
        fits = [_common(group, printed[at:]) for at in range(begin, len(printed))]
        if len(group) in fits:
            begin += fits.index(len(group)) + len(group)
            continue
        most = max(fits, default=0)
        at = begin + fits.index(most) + most if fits else len(printed)
        nearest = printed[at] if at < len(printed) else "the end"
        return f"the page has\n  {group[most]}\nwhere the command prints\n  {nearest}"
    return ""


LIKE = 0.4  # how alike a line must be to what stands in its place, numbers apart


def rewritten(shown: Sequence[str], out: str) -> list[str] | None:
    """A page's lines with what was printed in their place; None where no place is found.

    Lines between two cuts (`...`) keep their number and take the run of printed lines that they are
    most like, numbers apart, after those of the cut before; blank lines and rules stay.
    """
    printed = [line for line in out.splitlines() if _says(line)]
    fresh, begin = list(shown), 0
    cuts = [i for i, line in enumerate(shown) if line.strip() == "..."]
    for low, high in zip([-1, *cuts], [*cuts, len(shown)], strict=True):
        group = [i for i in range(low + 1, high) if _says(shown[i])]
        if not group:
            continue
        places = range(begin, len(printed) - len(group) + 1)
        likes = [
            sum(_like(shown[i], printed[at + k]) for k, i in enumerate(group)) for at in places
        ]
        if not likes or max(likes) < LIKE * len(group):
            return None
        at = begin + likes.index(max(likes))
        for k, i in enumerate(group):
            indent = len(shown[i]) - len(shown[i].lstrip())
            own = len(printed[at + k]) - len(printed[at + k].lstrip())
            fresh[i] = " " * max(indent - own, 0) + printed[at + k].rstrip()
        begin = at + len(group)
    return fresh


def _like(one: str, other: str) -> float:
    """How alike two lines are, numbers and spaces apart: 1 where only these differ."""
    a, b = (" ".join(NUMBER.sub("0", line).split()) for line in (one, other))
    return 1.0 if a == b else SequenceMatcher(None, a, b, autojunk=False).ratio() - 0.1


def _says(line: str) -> bool:
    return bool(line.strip(" ─━═-"))


def _common(lines: Sequence[str], others: Sequence[str]) -> int:
    """How many lines at the beginning are alike."""
    pairs = zip(lines, others, strict=False)
    return next(
        (i for i, pair in enumerate(pairs) if not _alike(*pair)), min(len(lines), len(others))
    )


def _alike(one: str, other: str) -> bool:
    a, b = (NUMBER.split(" ".join(line.split())) for line in (one, other))
    return len(a) == len(b) and all(
        _close(x, y) if i % 2 else x == y for i, (x, y) in enumerate(zip(a, b, strict=True))
    )


def _close(page: str, printed: str) -> bool:
    x, y = (float(text.replace(",", "")) for text in (page, printed))
    mantissa, _, power = page.lower().partition("e")
    digit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    rounded = "." in page or power or abs(x) >= 100.0  # a small whole number is a count
    return abs(x - y) <= max(1.001 * digit if rounded else 0.0, 1e-3 * abs(x))
