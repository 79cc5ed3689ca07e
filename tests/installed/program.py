"""The installed command, as a user has it: a process of its own in an empty folder.

``call`` starts one; ``Imported`` has copies of a process that has imported the package already,
which is a second of each of the many commands of the pages.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

WHEEL = os.environ.get("INFER_JAX_PROGRAM", "")  # another installation's infer-jax
LONGEST = 600.0  # seconds of one command
OURS = ("INFER_JAX_X64", "COLUMNS")


class Ended(NamedTuple):
    """What a command left: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str


def program() -> Path:
    """``infer-jax`` of INFER_JAX_PROGRAM, else the one beside this Python."""
    return Path(WHEEL or Path(sys.executable).parent / "infer-jax")


def world(home: Path) -> dict[str, str]:
    """The environment of somebody whose home is ``home``, and whose programs lie with the tests'.

    A program that a test of the same sources has compiled is loaded. How quickly programs are
    compiled stays as the run of the tests has it (XLA_FLAGS): with ``.ci/run --slow`` it is the
    compiler's default.
    """
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    if WHEEL:  # it must find its own package
        kept.pop("PYTHONPATH", None)
    return kept | {"HOME": str(home), "XDG_CACHE_HOME": str(home), "MPLBACKEND": "agg"}


def call(words: list[str], folder: Path, env: dict[str, str], longest: float = LONGEST) -> Ended:
    """One command in ``folder``, without anything to read from."""
    ran = subprocess.run(
        words, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=longest,
    )  # fmt: skip
    return Ended(ran.returncode, ran.stdout, ran.stderr)


# imports the package, then answers every line with the exit code of a copy of itself that ran it
IMPORTED = """
import json, os, signal, sys
sys.path[:] = [place for place in sys.path if place]
from infer_jax.cli import main
import jax, infer_jax.cli.verbs, infer_jax.verbs.inputs
from infer_jax.compiling import store
store.MAX_FILES, store.MAX_BYTES = 100_000, 100_000_000_000  # the tests' programs lie there, too
import matplotlib.backends.backend_agg, matplotlib.figure, typer
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
os.chdir(asked["folder"])
os.environ["COLUMNS"] = asked["columns"]
for number, file in enumerate(asked["files"]):
    os.dup2(os.open(file, os.O_RDWR), number)
signal.alarm(asked["longest"])
sys.argv[:] = ["infer-jax", *asked["words"]]
main()
"""


class Imported:
    """The installed package in a process that has imported it and computed nothing yet."""

    def __init__(self, folder: Path, env: dict[str, str]):
        pipe = subprocess.PIPE
        python = str(program().parent / "python")
        self.process = subprocess.Popen(
            [python, "-c", IMPORTED], cwd=folder, env=env, stdin=pipe, stdout=pipe, text=True
        )

    def call(self, words: list[str], folder: Path, columns: str, longest: float = LONGEST) -> Ended:
        """``infer-jax`` with these words in ``folder``, without anything to read from."""
        with tempfile.TemporaryDirectory() as place:
            out, err = (Path(place) / name for name in ("out", "err"))
            for file in (out, err):
                file.touch()
            files = [os.devnull, str(out), str(err)]
            asked = {"words": words, "folder": str(folder), "files": files, "columns": columns}
            asked |= {"longest": int(longest)}
            assert self.process.stdin and self.process.stdout
            print(json.dumps(asked), file=self.process.stdin, flush=True)
            code = int(self.process.stdout.readline())
            return Ended(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))

    def end(self) -> None:
        """No more commands."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)
