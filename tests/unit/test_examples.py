"""Examples and the pages of the docs that have doctests run as they are printed."""

import doctest
import re
import runpy
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import infer_jax

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
