"""How a test runs a verb in this process: code, stdout and stderr."""

import io
import json
import math
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

from infer_jax.cli import runs
from infer_jax.cli.verbs import app
from infer_jax.results import Result
from infer_jax.results.problems import from_command
from infer_jax.verbs.progress import PATIENCE

# a machine that is busy takes longer than a command's patience: then it would say what it does
PATIENCE[:] = [3600.0]


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def run(*words: str) -> Ran:
    """One command, as the shell would call it."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            app(list(words))
        except SystemExit as ended:
            return Ran(int(ended.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("a command ends in SystemExit")


def program(
    *words: str, code: str = "from infer_jax.cli import main; main()", stdout: Any = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """What a command, or other code, leaves behind in a process of its own."""
    asked, err = [sys.executable, "-c", code, *words], subprocess.PIPE
    return subprocess.run(asked, stdout=stdout, stderr=err, text=True, timeout=120)


def answer(*words: str, code: int = 0) -> dict[str, Any]:
    """What a command answers with --json, which must be all it prints, and its exit code."""
    ran = run(*words, "--json")
    assert (ran.code, ran.err) == (code, ""), ran.err
    said = json.loads(ran.out, parse_constant=lambda name: 1 / 0)
    assert next(iter(said.items())) == ("schema", 2)
    return said


def answered_once(*words: str) -> tuple[dict[str, Any], str]:
    """What a command prints with --json, and what without: one answer, computed once."""
    printed, said = runs.show_result, []

    def both(result: Result, *, as_json: bool, **drawn: Any) -> None:
        with redirect_stdout(io.StringIO()) as out:
            printed(result, as_json=True, **drawn)
        said.append(out.getvalue())
        printed(result, as_json=as_json, **drawn)

    with patch.object(runs, "show_result", both):
        ran = run(*words)
    assert (ran.code, ran.err) == (0, ""), ran.err
    return json.loads(said[0], parse_constant=lambda name: 1 / 0), ran.out


def as_command(result: Result) -> tuple[dict[str, Any], str]:
    """What a result says where the command line asks: for JSON, and as text."""
    with from_command():
        return json.loads(json.dumps(result.to_dict())), str(result)


def close(a: Any, b: Any) -> bool:
    """Whether two numbers are one."""
    return math.isclose(a, b, rel_tol=1e-9)
