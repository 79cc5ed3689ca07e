"""Each picture of README and docs is drawn by a command above it, is small, and is described."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pictures"
SMALL = 200_000  # bytes

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="installed without the checkout")


@pytest.fixture(scope="module")
def drawing():
    pytest.importorskip("PIL")
    return runpy.run_path(str(ROOT / "docs" / "pictures.py"))


def test_every_picture_has_its_command_and_every_file_its_place(drawing):
    shown = list(drawing["shown"]())
    studies = set(FOLDER.glob("silicon_*"))  # by experiments/silicon.py, with their pages
    assert {one.path for one in shown} == set(FOLDER.glob("*.*")) - studies
    assert all(path.stat().st_size < SMALL for path in studies)
    for path, command in shown:
        asked = ("--out", "frontier", "offload")
        assert any(word in command.words for word in asked), f"{path.name} by {command}"
        assert path.stat().st_size < SMALL, path.name


def test_a_picture_says_what_it_shows(drawing):
    """Title and caption are in the file, for those who do not see it."""
    from PIL import Image

    for path, _ in drawing["shown"]():
        with Image.open(path) as image:
            title, said = image.info.get("Title"), image.info.get("Description", "")
            assert title and len(said) >= len(title), path.name
            assert image.width <= 2000, path.name


def test_a_verb_that_draws_is_in_the_gallery(drawing):
    """With the command above its picture; so is every picture that another page shows."""
    text = ROOT.joinpath("docs", "gallery.md").read_text(encoding="utf-8")
    here = [one for one in drawing["shown"]() if f"(pictures/{one.path.name})" in text]
    assert all(one.command.text in text for one in here)
    pages = [page.read_text(encoding="utf-8") for page in ROOT.glob("docs/**/*.md")]
    names = {found[2] for page in pages for found in drawing["IMAGE"].finditer(page)}
    assert names == {one.path.name for one in here}
    verbs = {one.command.words[1] for one in here}
    drawn = "plan frontier estimate memory compare sensitivity replay sweep calibrate codesign"
    assert verbs >= {*drawn.split(), "kernels", "layout", "offload"}
    with pytest.raises(SystemExit, match=r"no page shows nothing\.png"):
        drawing["main"](["nothing.png"])
