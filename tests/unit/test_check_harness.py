"""Comparing a program's points with ours: what is read, what agrees, which exit code."""

import json
import math

import pytest
from typer.testing import CliRunner

from experiments import _claims
from experiments._columns import Output
from experiments.economics import app

POINT = "estimator,model,gpu,n_gpu,batch,latency_s"
# 16-bit Llama 3 8B on one H100 at level 2: 8.03e9 parameters over 0.75 * 3.3e12 bytes/s, and
# four all-reduces of 6 us in each of 32 layers
PARAMETERS = 2 * 128256 * 4096 + 32 * (48 * 128 * 4096 + 32 * 128 * 4096 + 3 * 4096 * 14336)
SECONDS = 2 * PARAMETERS / (0.75 * 3.3e12) + 32 * 4 * 6e-6
# columns in another order, and one that nobody knows
RIGHT = f"latency_s, batch ,gpu,colour,n_gpu,model,estimator\n{SECONDS!r},1,H100,red,1,"
RIGHT += "Llama_3_8B,toy\ninf,1,H100,,1,GPT_4,toy\n1,1,H100,,1,GPT_9,toy\n1,1,abacus,,1,GPT_4,toy"
WRONG = f"{POINT}\ntoy,Llama_3_8B,H100,1,1,{SECONDS * 1.000001!r}\n"
SKIPPED = {"model 'GPT_9' is not the paper's": 1, "gpu 'abacus' is not the paper's": 1}


@pytest.mark.parametrize(
    ("text", "code"),
    [(RIGHT, 0), (WRONG, 1), (None, 2), ("", 2), ("estimator,latency_s\ntoy,1\n", 2),
     (f"{POINT}\ntoy,,,x,1,1", 2)],
)  # fmt: skip
def test_a_file_agrees_or_not_or_cannot_be_read(tmp_path, text, code):
    """The last line is JSON; what cannot be read is one sentence. Absent columns are assumed."""
    file = tmp_path / "points.csv"
    if text is not None:
        file.write_text(text)
    ran = CliRunner().invoke(app, ["check", str(file), "--json"])
    assert ran.exit_code == code
    if code == 2:
        assert ran.stdout == "" and ran.stderr.count("\n") == 1 and "points.csv: " in ran.stderr
        return
    last = json.loads(ran.stdout.splitlines()[-1])
    assert last["agrees"] == (code == 0) and last["disagreements"] == code
    if last["agrees"]:
        assert (last["rows"], last["compared"], last["skipped"]) == (4, 2, SKIPPED)
        assert last["worst_error"]["latency_s"] < 1e-14 and last["ignored_columns"] == ["colour"]


def test_unknown_tables_exit_2():
    said = "command line: table is '7'; allowed: 1, 2, 3, 4, 5, 6\n"
    assert CliRunner().invoke(app, ["tables", "7"]).stderr == said


@pytest.mark.parametrize(
    ("theirs", "ours", "error"), [(2.0, 3.0, 0.0), (2.0, 1.5, 0.25), (0.0, 0.0, 0.0)]
)
def test_what_must_be_reached_may_be_passed(theirs, ours, error):
    assert Output(least=True).error(theirs, ours) == error


@pytest.mark.parametrize(
    ("term", "value", "allowed"),
    [
        ("3 +- 2%", 3.05, True),
        ("3 +- 0.01", 3.05, False),
        ("2 .. 3", 3.0, True),
        ("< 2", 2.0, False),
        ("> 2", 2.5, True),
        ("= never", "ever", False),
        ("", math.nan, True),
        ("4 +- 25%", math.nan, False),
    ],
)
def test_a_term_allows_what_it_says(term, value, allowed):
    assert _claims.holds(term, value) is allowed
