"""Draws the pictures of README and docs anew, each by the command that stands above it.

    python docs/pictures.py             # all of them
    python docs/pictures.py plan.png sweep.png

A picture `![...](pictures/NAME.png)` of a page is the file NAME.png that the last command before it
writes. Notebooks are run, too (docs/notebooks.py). Where commands answer otherwise than before,
after a new fit, say, this is run once.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from PIL import Image, PngImagePlugin  # noqa: E402

from tests.installed.pages import PAGES, Command, commands  # noqa: E402
from tests.installed.program import call, program, world  # noqa: E402
from tests.installed.runs import reader  # noqa: E402

IMAGE = re.compile(r"!\[[^\]]*\]\(((?:docs/)?pictures/([\w.-]+))\)")
COLOURS = 128  # of a PNG: a third of the bytes, and no difference to be seen


class Shown(NamedTuple):
    """A picture of a page: its file, and the command that draws it."""

    path: Path
    command: Command


def shown() -> Iterator[Shown]:
    """Every picture of README and docs, once, in the order of the pages."""
    seen: set[Path] = set()
    for page in PAGES:
        asked = commands(page)
        for number, text in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for found in IMAGE.finditer(text):
                path = (page.parent / found[1]).resolve()
                before = [command for command in asked if command.line <= number]
                if path in seen:
                    continue
                assert before, f"{page.name}:{number}: no command draws {path.name}"
                named = [command for command in before if path.name in command.text]
                seen.add(path)
                yield Shown(path, (named or before)[-1])


def draw(words: tuple[str, ...], wanted: list[Path]) -> None:
    """Run a command in a folder with the files that the pages speak of, and keep its pictures."""
    with TemporaryDirectory() as base:
        folder = Path(base, "here")
        reader(folder)
        first, *rest = words
        asked = [str(program()) if first == "infer-jax" else sys.executable]
        for word in rest:
            asked += sorted(map(str, folder.glob(word))) if "*" in word else [word]
        ended = call(asked, folder, world(Path(base)) | {"COLUMNS": "100"}, 3600.0)
        if ended.code:
            raise SystemExit(f"{' '.join(words)}\n{ended.err}")
        for path in wanted:
            (drawn,) = folder.rglob(path.name)
            small(drawn, path)


def small(drawn: Path, path: Path) -> None:
    """Store a PNG with few colours; what it says of itself is kept."""
    with Image.open(drawn) as image:
        said = PngImagePlugin.PngInfo()
        for name in ("Title", "Description"):
            said.add_text(name, str(image.info.get(name, "")))
        few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(path, optimize=True, pnginfo=said)


def main(names: list[str]) -> None:
    """Draw the pictures of these names, or all of them."""
    every = list(shown())
    unknown = set(names) - {one.path.name for one in every}
    if unknown:
        raise SystemExit(f"no page shows {', '.join(sorted(unknown))}")
    by_command: dict[tuple[str, ...], list[Path]] = {}
    for path, command in every:
        if path.name in names or not names:
            by_command.setdefault(command.words, []).append(path)
    for words, wanted in by_command.items():
        print(", ".join(path.name for path in wanted), "by", " ".join(words), flush=True)
        draw(words, wanted)
    if not names:
        subprocess.run([sys.executable, ROOT / "docs" / "notebooks.py"], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
