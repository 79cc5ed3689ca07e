"""Comparing a program's points with ours: what is read, what agrees, which exit code."""

import contextlib
import io
import json
import math
from typing import NamedTuple

import pytest

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


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def run(*words) -> Ran:
    """One command of the economics experiment, as the shell would call it."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        app([str(word) for word in words])
    return Ran(int(ended.value.code or 0), out.getvalue(), err.getvalue())


POINT = "estimator,model,gpu,n_gpu,batch,latency_s"
# 16-bit Llama 3 8B on one H100 at level 2: 8.03e9 parameters over 0.75 * 3.3e12 bytes/s, and
# four all-reduces of 6 us in each of 32 layers
PARAMETERS = 2 * 128256 * 4096 + 32 * (48 * 128 * 4096 + 32 * 128 * 4096 + 3 * 4096 * 14336)
SECONDS = 2 * PARAMETERS / (0.75 * 3.3e12) + 32 * 4 * 6e-6


def test_a_file_that_agrees_exits_0_and_ends_with_json(tmp_path):
    file = tmp_path / "points.csv"
    lines = [POINT, f"toy,Llama_3_8B,H100,1,1,{SECONDS!r}", "toy,GPT_4,H100,1,1,inf"]
    file.write_text("\n".join([*lines, "toy,GPT_9,H100,1,1,1", "toy,GPT_4,abacus,1,1,1"]))
    ran = run("check", file, "--json")
    assert (ran.code, ran.err) == (0, "")
    last = json.loads(ran.out.splitlines()[-1])
    assert (last["rows"], last["compared"], last["agrees"]) == (4, 2, True)
    assert last["skipped"] == {
        "model 'GPT_9' is not the paper's": 1,
        "gpu 'abacus' is not the paper's": 1,
    }
    assert last["worst_error"]["latency_s"] < 1e-14


def test_a_file_that_disagrees_exits_1(tmp_path):
    file = tmp_path / "points.csv"
    file.write_text(f"{POINT}\ntoy,Llama_3_8B,H100,1,1,{SECONDS * 1.000001!r}\n")
    ran = run("check", file, "--json")
    assert ran.code == 1 and json.loads(ran.out.splitlines()[-1])["disagreements"] == 1


@pytest.mark.parametrize(
    "text", [None, "", "estimator,latency_s\ntoy,1\n", f"{POINT}\ntoy,,,x,1,1"]
)
def test_a_file_that_cannot_be_read_exits_2_with_one_sentence(tmp_path, text):
    file = tmp_path / "points.csv"
    if text is not None:
        file.write_text(text)
    ran = run("check", file, "--json")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1 and "points.csv: " in ran.err


def test_unknown_tables_exit_2():
    assert run("tables", 7).err == "command line: table is '7'; allowed: 1, 2, 3, 4, 5, 6\n"


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
