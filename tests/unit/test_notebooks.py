"""Notebooks, examples, pages with doctests run as they are printed; pictures have commands."""

import base64
import csv
import doctest
import json
import re
import runpy
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import infer_jax
from tests.installed.pages import difference

ROOT = Path(infer_jax.__file__).parents[1]
EXAMPLES, DOCS = ROOT / "examples", ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
EVERY = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
PAGES = [p for p in EVERY if p.exists() and "\n>>> " in p.read_text(encoding="utf-8")]

pytestmark = [
    pytest.mark.skipif(not EXAMPLES.exists(), reason="installed without the checkout"),
    pytest.mark.usefixtures("x64"),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_pages_with_doctests_run(page):
    """Blocks of a page in turn, in one namespace; those that begin with >>> are compared."""
    names = {"__name__": "page"}
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if not block.startswith(">>> "):
            exec(compile(block, str(page), "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(block, names, page.stem, str(page), 0)
        runner = doctest.DocTestRunner()
        output: list[str] = []
        runner.run(test, out=output.append, clear_globs=False)
        assert runner.summarize(verbose=False).failed == 0, "".join(output)
        names.update(test.globs)


def test_there_are_pages_and_examples_to_run():
    assert {p.stem for p in PAGES} >= {"README", "write-an-estimator", "gradients"}
    assert len(list(EXAMPLES.glob("*.py"))) == 3
    assert all(len(p.read_text().splitlines()) < 64 for p in EXAMPLES.glob("*.py"))


def main(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


def test_massive_sweep(capsys):
    main("massive_sweep")(4e3)
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{3 * 4 * 12 * 28:,} points")
    result = [tuple(map(float, row.split()[:3])) for row in rows]
    assert {prompt for prompt, *_ in result} == {512, 2048, 8192, 32768}
    # along a frontier what is slower is cheaper
    for (prompt, speed, cost), (other, slower, cheaper) in pairwise(result):
        assert prompt != other or (slower < speed and cheaper < cost)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("architecture_search", "optax", "codesign"), ("calibrate_server", "optimistix", "fit")],
)
def test_an_example_without_its_extra_ends_in_one_sentence(name, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said = str(ended.value)
    assert package in said and f"[{extra}]" in said and "\n" not in said


def test_calibrate_server(capsys):
    main("calibrate_server")()
    *_, before, after, measured = (x.split() for x in capsys.readouterr().out.splitlines())
    for column in (-2, -1):
        truth = float(measured[column])
        first = abs(float(before[column]) - truth)
        # no further away than before by more than five runs leave open
        assert abs(float(after[column]) - truth) <= max(first, 0.05 * truth)


FOLDER = ROOT / "docs" / "notebooks"
FEW = {"ten_million": ("POINTS", "2e4")}  # where a run is smaller than the file's


@pytest.mark.parametrize("name", ["which_gpu", "how_far", "ten_million", "design_for_a_chip"])
def test_a_notebook_runs_and_its_file_says_what_it_answers(name, monkeypatch):
    for package in ("matplotlib", "pandas", "optimistix", "optax", "nbformat", "PIL"):
        pytest.importorskip(package)
    import nbformat

    few = name in FEW
    if few:
        monkeypatch.setenv(*FEW[name])
    stored: Any = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(stored)
    new = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))["notebook"](FOLDER / f"{name}.py")
    again = f"run `python docs/notebooks.py {name}`"
    said, ran = ([(x.cell_type, x.source) for x in book.cells] for book in (stored, new))
    assert said == ran, again
    said, ran = (answers(book) for book in (stored, new))
    assert [set(x) for x in said] == [set(x) for x in ran], again
    pictures = [x["image/png"] for x in ran if "image/png" in x]
    assert pictures and all(base64.b64decode(x)[:4] == b"\x89PNG" for x in pictures)
    for one, other in zip(said, ran, strict=True):
        assert few or not difference(one["text/plain"].splitlines(), other["text/plain"]), again


def answers(book: Any) -> list[Any]:
    """The outputs of a notebook by MIME type, in order."""
    outputs = [x for cell in book.cells for x in cell.get("outputs", ())]
    return [x.data if "data" in x else {"text/plain": x.text} for x in outputs]


def test_the_measured_runs_are_those_of_their_source():
    """Counts, and means of the requests of each file of inferencex-profiling, as published."""
    source = ROOT.parent / "shared" / "data" / "measured" / "h200_gpt_oss"
    if not source.is_dir():
        pytest.skip("the published files are not here")
    text = ROOT.joinpath("examples", "gpt_oss_h200.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert [int(row["concurrency"]) for row in rows] == [2**k for k in range(9)]
    for row in rows:
        path = source / f"results_exp_sweep_c{row['concurrency']}.json"
        said = json.loads(path.read_text(encoding="utf-8"))
        many = said["completed"]
        want = [many, said["total_input_tokens"] / many, said["total_output_tokens"] / many]
        assert [float(row[x]) for x in ("completed", "isl", "osl")] == pytest.approx(want, abs=0.5)
        assert float(row["ttft_mean_ms"]) == pytest.approx(said["mean_ttft_ms"], abs=0.051)
        assert float(row["tpot_mean_ms"]) == pytest.approx(said["mean_tpot_ms"], abs=0.0051)


def test_a_picture_shows_itself_in_a_notebook():
    """IPython shows an object by this method, without pyplot."""
    pytest.importorskip("matplotlib")
    from infer_jax.plots.style import panels, style

    with style():
        figure, _ = panels(1, "A title", "A caption.")
    assert figure._repr_png_()[:4] == b"\x89PNG"  # pyright: ignore[reportAttributeAccessIssue]


PICTURES = ROOT / "docs" / "pictures"
SMALL = 200_000  # bytes


@pytest.fixture(scope="module")
def drawing():
    pytest.importorskip("PIL")
    return runpy.run_path(str(ROOT / "docs" / "pictures.py"))


def test_every_picture_has_its_command_and_every_file_its_place(drawing):
    shown = list(drawing["shown"]())
    studies = set(PICTURES.glob("silicon_*"))  # by experiments/silicon.py, with their pages
    assert {one.path for one in shown} == set(PICTURES.glob("*.*")) - studies
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
