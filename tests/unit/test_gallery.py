"""`python -m experiments all`: a step that fails costs nothing but itself, and the page says so."""

import os
import re
from html import unescape
from pathlib import Path

import pytest

from experiments import _gallery
from experiments._gallery import STEPS, Step, app

pytest.importorskip("matplotlib")

# stands for Python: $3 is the experiment
PROGRAM = """#!/bin/sh
case $3 in
  economics) echo "a table & <numbers>"; exit 1;;
  kernels) kill -9 $$;;
  offloading) cp "{picture}" "$6";;
  *) echo fine; echo '{{"agrees": true}}';;
esac
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    from infer_jax.plots.style import panels, save, style

    picture = tmp_path / "drawn.png"
    with style():
        save(panels(1, "A title", "Agrees: 1 < 2. Does not: 2.")[0], picture)
    path = tmp_path / "python"
    path.write_text(PROGRAM.format(picture=picture))
    path.chmod(0o755)
    monkeypatch.setattr(_gallery.sys, "executable", str(path))
    return path


def ran(*words):
    with pytest.raises(SystemExit) as ended:
        app([*words], standalone_mode=False)
    return ended.value.code


def test_every_step_is_told_whatever_the_others_do(program, tmp_path, monkeypatch):
    steps = (
        Step("economics", "tables"),
        Step("kernels", "tables"),
        Step("offloading", "figures", draws=True),
        Step("partitioning", "tables", (tmp_path / "authors.csv",)),
        Step("chapter"),
        Step("validation", heavy="hours"),
    )
    monkeypatch.setattr(_gallery, "STEPS", steps)
    out = tmp_path / "out"
    assert ran("--out", str(out)) == 1
    text = (out / "index.html").read_text(encoding="utf-8")
    assert "Not fine: economics.tables, kernels.tables." in text
    states = {"economics.tables": "disagrees", "kernels.tables": "failed", "chapter": "agrees",
              "offloading.figures": "drawn", "partitioning.tables": "skipped",
              "validation": "skipped"}  # fmt: skip
    for name, state in states.items():
        assert f'<h3 id="{name}">{name}: <span class="{state}">' in text
    assert "no authors.csv in a folder named shared" in text
    assert "a table &amp; &lt;numbers&gt;" in text and '{"agrees"' not in text
    ((source, said),) = re.findall(r'<img src="([^"]+)" alt="([^"]+)"', text)
    assert Path(out / source).is_file()
    assert unescape(said) == "A title. Agrees: 1 < 2. Does not: 2."
    assert ran("--out", str(out), "--skip", "economics", "--skip", "kernels.tables") == 0
    assert ran("--out", str(out), "--only", "validation") == 0  # a heavy one, as it is named


def test_a_name_that_is_none_is_one_sentence(tmp_path, capsys):
    assert ran("--only", "economy", "--out", str(tmp_path)) == 2
    output = capsys.readouterr().err
    assert output.count("\n") == 1 and "economics" in output
    assert ran("--only", "chapter", "--skip", "chapter", "--out", str(tmp_path)) == 2
    assert os.listdir(tmp_path) == []


def test_steps_are_commands_that_there_are():
    for step in STEPS:
        assert (_gallery.HERE / f"{step.experiment}.py").is_file()
        assert _gallery._doc(step.experiment)
        assert not step.command or _gallery._doc(step.experiment, step.command), step.name
