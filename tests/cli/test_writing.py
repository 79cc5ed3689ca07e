"""What is written is whole or not there, goes through no link, fits, and no terminal obeys it."""

import errno
import io
import json
import os
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

import infer_jax as ij
from infer_jax.catalog import files
from infer_jax.catalog.models import BUNDLED
from infer_jax.cli.runs import print_json
from infer_jax.cli.verbs import app
from infer_jax.errors import InputError, printable
from infer_jax.results import Column, Table
from infer_jax.results.text import show
from infer_jax.verbs.calibrate_result import CalibrateResult
from tests.cli.running import run

FULL = OSError(errno.ENOSPC, "No space left on device")
RUNS = str(Path(__file__).parents[1] / "data/server/runs.csv")
PROGRAM = [sys.executable, "-c", "from infer_jax.cli import main; main()"]


def closed():
    """A pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w")


def test_a_closed_output_is_code_1():
    for out, said in ((None, "standard output is closed"), (closed(), "")):
        err = io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            app(["memory", "--help"])
        assert ended.value.code == 1
        assert said in err.getvalue() and err.getvalue().count("\n") == bool(said)


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX")
def test_a_shell_that_closes_the_output(tmp_path):
    line = " ".join(f"'{word}'" for word in PROGRAM)
    for rest in ("models >&-", "models 2>&- >&-", "models | head -1 >/dev/null"):
        words = ["bash", "-c", f"set -o pipefail; {line} {rest}"]
        ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert ended.returncode in ((0, 1) if "head" in rest else (1,)), rest
        assert "Traceback" not in ended.stderr and ended.stderr.count("\n") <= 1


def full(*_, **__):
    raise FULL


def test_a_full_disk_is_code_1_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "fsync", full)
    ran = run("frontier", "llama-3.1-8b", "--hardware", "h100_sxm", "--total-gpus", "2")
    assert (ran.code, ran.out) == (1, "")
    assert "cannot be written: No space left on device (frontier.png)" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_no_profile_without_its_picture(tmp_path, monkeypatch):
    def fails(*_):
        raise KeyboardInterrupt

    out = [str(tmp_path / "mine.toml"), str(tmp_path / "mine.png")]
    monkeypatch.setattr(CalibrateResult, "draw", fails)
    with pytest.raises(KeyboardInterrupt):
        ij.calibrate("llama-3.1-8b", "h100_sxm", RUNS, parameter="decode_factor", out=out)
    assert os.listdir(tmp_path) == []


def test_no_name_is_obeyed_by_a_terminal(tmp_path):
    """Escapes in the name of a file, an argument, a profile's title and notes."""
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
    config = json.loads((BUNDLED / "llama-3.1-8b.json").read_text())["config"]
    folder = tmp_path / f"model{evil}"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    text = f'base = "h100_sxm"\ntitle = {json.dumps(evil)}\nnotes = {json.dumps(evil)}\n'
    (tmp_path / "mine.toml").write_text(text)
    asked = ("memory", str(folder), "--hardware", "mine.toml", "--tp", "1")
    for words in (
        asked,
        (*asked, "--json"),
        ("hardware", "mine.toml"),
        ("hardware", "mine.toml", "--json"),
        ("models", evil),
        ("memory", str(folder / evil), "--hardware", evil),
        (evil,),
        ("memory", f"--{evil}"),
    ):
        ran = run(*words)
        assert "owned" in ran.out + ran.err
        assert all(line.isprintable() for line in (ran.out + ran.err).split("\n"))


def test_json_says_what_it_spells_out(capsys):
    said = {"a": "\x1b[2J \x7f\x9b \u202e größe 中 \U000e0001", "b": ["\n"]}
    print_json(said)
    out = capsys.readouterr().out
    assert said.items() <= json.loads(out).items()
    assert all(line.isprintable() for line in out.split("\n")) and "größe 中" in out


@pytest.mark.parametrize(
    "value",
    [
        "\x1b[2J\x1b]0;owned\x07",
        "a\nb\rc\td\x00\x7f\x9b31m",
        "\u202egnp.exe\u2066",
        "\ud800",
        "x" * 10**6,
        "é" * 200,
        10**5000,
        [1] * 10**6,
        {"a": {"b": {"c": {"d": {"e": [1, 2, 3]}}}}},
        {str(i): i for i in range(10**5)},
        b"\x1b[2J" * 100,
    ],
    ids=range(11),
)
def test_any_value_is_one_printable_line(value):
    begun = time.process_time()
    said = str(InputError(str(value)[:99] if isinstance(value, str) else "f", "x", value, "a word"))
    assert said.isprintable() and len(said) < 3000
    assert time.process_time() - begun < 0.5
    assert said.endswith("; allowed: a word")


def test_printable():
    assert printable("größe 14 µs — 中文 ✓\nsecond line") == "größe 14 µs — 中文 ✓\nsecond line"
    assert printable("a\x1b[31mb\x9b") == r"a\x1b[31mb\x9b"
    assert printable("a\u00a0b\tc") == "a b c"


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
