"""At 80 and at 50 columns no table has a column of single letters: rows become records."""

from itertools import pairwise

import pytest
from rich.console import Console

from infer_jax.results import Column, Table
from infer_jax.results.text import show
from tests.cli.running import run

COLUMNS = (Column("plan", "prefill > decode", left=True), Column("GPUs"),
           Column("TTFT", "ms"), Column("output", "tok/s/GPU"),
           Column("blended", "$/Mtok"), Column("binds", left=True))  # fmt: skip
ROWS = [["2 x TP4 > 1 x TP8", "16", "1040", "2684", "0.0298", "other prefills"],
        ["1 x PP2", "2", "639", "2386", "0.0335", "feedforward"]]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [("plan", "llama-3.1-8b", "--hardware", "h100_sxm", "--hardware", "mi300x", "--total-gpus",
      "1", "--isl", "1000", "--osl", "101"),
     ("models",), ("hardware",), ("hardware", "tpu_v5e"), ("estimators",), ("frontier", "--help"),
     ("frontier", "llama-3.1-8b", "--hardware", "h100_sxm", "--total-gpus", "8", "--no-picture"),
     ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "2", "--tpot", "5ms"),
     ("memory", "deepseek-v3", "--hardware", "h200_sxm", "--tp", "8"),
     ("compare", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1", "--isl", "1000", "--osl",
      "101", "--estimator", "economics.planned")],
)  # fmt: skip
def test_all_fits_eighty_columns_and_fifty_stack_no_letters(words, monkeypatch):
    for width in (80,) if "--help" in words else (80, 50):
        monkeypatch.setenv("COLUMNS", str(width))
        ran = run(*words)
        lines = ran.out.splitlines()
        assert ran.code == 0 and "\x1b" not in ran.out and "…" not in ran.out
        assert width == 50 or max(map(len, lines)) <= 80
        # a folded word leaves lines of one or two letters under one another
        pairs = pairwise(line.strip() for line in lines)
        short = (a + b for a, b in pairs if 0 < len(a) <= 2 and 0 < len(b) <= 2)
        assert not [letters for letters in short if letters.isalpha()]


def test_a_spare_column_gives_way_to_width_and_is_named(monkeypatch, capsys):
    columns = [COLUMNS[0], COLUMNS[1]._replace(spare=True), *COLUMNS[2:]]
    monkeypatch.setenv("COLUMNS", "62")
    show([Table(columns, ROWS)], Console(highlight=False))
    folded = capsys.readouterr().out
    assert "2 x TP4 > 1 x TP8" in folded and "other prefills" not in folded, "its name folds last"
    assert "Too narrow" not in folded
    monkeypatch.setenv("COLUMNS", "60")
    show([Table(columns, ROWS)], Console(highlight=False))
    whole = capsys.readouterr().out
    assert "2 x TP4 > 1 x TP8" in whole and "other prefills" in whole
    assert whole.endswith("Too narrow for: GPUs.\n") and "GPUs" not in whole.splitlines()[0]
    monkeypatch.setenv("COLUMNS", "100")
    show([Table(columns, ROWS)], Console(highlight=False))
    assert "Too narrow" not in capsys.readouterr().out
