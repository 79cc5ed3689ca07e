"""The installed command, as a user has it: a process of its own in an empty folder."""

import os
import subprocess
import sys
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
