"""Comparing a program's points with ours: what is read, what agrees, which exit code."""

import json
import math

import pytest
from typer.testing import CliRunner

from experiments import _check, _claims, _columns
from experiments._columns import Input, Output
from experiments.economics import app

TIE = 7.0


def product(key, rows):
    """x * y; infeasible below x = 1, unknown at x = 13, a tie at x = 7 (either side is right)."""

    def one(x, y):
        value = x * y if x >= 1 else math.inf
        sides = ({"area": value}, {"area": math.inf}) if x == TIE else ()
        values = {"area": value, "shape": "square" if x == y else "oblong"}
        return _check.Answer(values, tuple({**values, **side} for side in sides))

    return [one(row["x"], row["y"]) for row in rows]


RECIPE = _check.Recipe(
    source="a rectangle",
    inputs={"x": Input(_columns.positive), "y": Input(_columns.positive, absent=2.0)},
    outputs={"area": Output(), "shape": Output(read=str)},
    evaluate=product,
    group=lambda row: "x is 13" if row["x"] == 13 else row["x"] > 2,
    most=2,
)


@pytest.fixture
def compare(tmp_path):
    """Compares the lines of a CSV file."""

    def run(*lines: str) -> _check.Report:
        path = tmp_path / "points.csv"
        path.write_text("\n".join(lines) + "\n")
        return _check.compare(path, RECIPE)

    return run


def test_columns_come_in_any_order_may_be_missing_and_unknown_ones_are_named(compare):
    for lines in (
        ("x,y,area,shape", "2,3,6,oblong", "3,3,9,square"),
        ("shape,area,y,x", "oblong,6,3,2", "square,9,3,3"),
        (" area , x ", "4,2", "6,3"),
    ):
        report = compare(*lines)
        assert report.agrees and report.compared == 2
    assert report.read.assumed == {"y": 2.0} and report.cells == {"area": 2}
    report = compare("x,colour,area,when", "2,red,4,now")
    assert report.agrees and report.read.ignored == ["colour", "when"]


def test_ties_agree_with_either_side_and_are_counted_apart(compare):
    report = compare("x,area", "7,14", "7,inf", "2,4")
    assert report.agrees and (report.ties, report.turned) == (2, 1)
    assert report.worst["area"] == (0.0, 4)


POINT = "estimator,model,gpu,n_gpu,batch,latency_s"
# 16-bit Llama 3 8B on one H100 at level 2: 8.03e9 parameters over 0.75 * 3.3e12 bytes/s, and
# four all-reduces of 6 us in each of 32 layers
PARAMETERS = 2 * 128256 * 4096 + 32 * (48 * 128 * 4096 + 32 * 128 * 4096 + 3 * 4096 * 14336)
SECONDS = 2 * PARAMETERS / (0.75 * 3.3e12) + 32 * 4 * 6e-6
RIGHT = f"{POINT}\ntoy,Llama_3_8B,H100,1,1,{SECONDS!r}\ntoy,GPT_4,H100,1,1,inf"
WRONG = f"{POINT}\ntoy,Llama_3_8B,H100,1,1,{SECONDS * 1.000001!r}\n"
SKIPPED = {"model 'GPT_9' is not the paper's": 1, "gpu 'abacus' is not the paper's": 1}


@pytest.mark.parametrize(
    ("text", "code"),
    [(f"{RIGHT}\ntoy,GPT_9,H100,1,1,1\ntoy,GPT_4,abacus,1,1,1", 0), (WRONG, 1), (None, 2), ("", 2),
     ("estimator,latency_s\ntoy,1\n", 2), (f"{POINT}\ntoy,,,x,1,1", 2)],
)  # fmt: skip
def test_a_file_agrees_or_not_or_cannot_be_read(tmp_path, text, code):
    """The last line is JSON; what cannot be read is one sentence."""
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
        assert last["worst_error"]["latency_s"] < 1e-14


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
