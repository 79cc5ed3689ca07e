"""The files of ``templates`` with their @places@ filled in."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "templates"
PLACE = re.compile(r"@(\w+)@")
ALONE = re.compile(r"( *)@(\w+)@")


def fill(name: str, values: Mapping[str, object]) -> str:
    """A template; a place alone on its line takes a text of many lines, or of none."""
    lines: list[str] = []
    for line in (FOLDER / name).read_text("utf-8").splitlines():
        if alone := ALONE.fullmatch(line):
            indent, text = alone[1], str(values[alone[2]])
            lines += [f"{indent}{x}" if x else "" for x in text.splitlines()]
        else:
            lines.append(PLACE.sub(lambda place: str(values[place[1]]), line))
    return "\n".join(lines) + "\n"


def items(words: Iterable[object]) -> str:
    """A list of texts, as YAML takes them.

    >>> print(items(["--port", 8000]))
    - "--port"
    - "8000"
    """
    return "\n".join(f"- {json.dumps(str(word))}" for word in words)


def blocks(texts: Mapping[str, str]) -> str:
    """A mapping of texts of many lines, as YAML takes them."""
    lines: list[str] = []
    for name, text in texts.items():
        lines += [f"{name}: |", *(f"  {line}" if line else "" for line in text.splitlines())]
    return "\n".join(lines)
