"""The notebooks run, and their pages have the cells and what they answer."""

import csv
import json
import re
import runpy
from pathlib import Path

import pytest

from tests.installed.pages import difference

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "notebooks"
FEW = {"ten_million": ("POINTS", "2e4")}  # where a run is smaller than the page's
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
IMAGE = re.compile(r"!\[(.+)\]\((.+)\)")

pytestmark = [
    pytest.mark.skipif(not FOLDER.exists(), reason="installed without the checkout"),
    pytest.mark.usefixtures("x64"),
]


@pytest.mark.parametrize("name", ["which_gpu", "how_far", "ten_million", "design_for_a_chip"])
def test_a_notebook_runs_and_its_page_says_what_it_answers(name, tmp_path, monkeypatch):
    for package in ("matplotlib", "pandas", "optimistix", "optax"):
        pytest.importorskip(package)
    few = name in FEW
    if few:
        monkeypatch.setenv(*FEW[name])
    written = FOLDER.joinpath(f"{name}.md").read_text(encoding="utf-8")
    notebooks = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))
    ran = "\n\n".join(notebooks["page"](FOLDER / f"{name}.py", tmp_path))
    stored, new = ([(k, x) for k, x in BLOCK.findall(text)] for text in (written, ran))
    again = f"run `python docs/notebooks.py {name}`"
    assert [x for k, x in stored if k == "python"] == [x for k, x in new if k == "python"], again
    shown, drawn = (IMAGE.findall(text) for text in (written, ran))
    assert drawn and [x for _, x in shown] == [x for _, x in drawn], again
    for (_, place), picture in zip(shown, sorted(tmp_path.iterdir()), strict=True):
        assert (FOLDER / place).is_file() and picture.read_bytes()[:4] == b"\x89PNG"
    if not few:
        said, answers = ([x for k, x in pair if k == "text"] for pair in (stored, new))
        for one, other in zip(said, answers, strict=True):
            assert not difference(one.splitlines(), other), again


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
