"""How long does a command take from a shell: with no programs kept, and the second time?

    python benchmarks/starting.py [--runs 3] [--json] [NAME ...]

Each command is a process of its own. The first runs with an empty folder of programs, the second
with what the first left there; ``import jax`` beside them is what no command can be faster than.
Wall seconds, and processor seconds (user and system), which vary less where a machine is shared:
medians.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

MODEL = ("llama-3.1-70b", "--hardware", "h100_sxm")
COMMANDS = {
    "--version": ("--version",),
    "--help": ("--help",),
    "estimate": ("estimate", *MODEL, "--tp", "8", "--batch", "32"),
    "estimate, all splits": ("estimate", *MODEL, "--total-gpus", "16", "--estimator", "economics"),
    "plan": ("plan", *MODEL, "--total-gpus", "8", "--tpot", "30ms"),
    "plan, arrivals": ("plan", *MODEL, "--request-rate", "3", "--tpot", "30ms"),
    "plan, DeepSeek-V3": ("plan", "deepseek-v3", "--hardware", "h200_sxm", "--total-gpus", "16"),
    "memory": ("memory", *MODEL, "--tp", "4"),
    "layout": ("layout", "palm-540b", "--hardware", "tpu_v4", "--total-gpus", "64"),
    "kernels": ("kernels", "deepseek-v3", "--hardware", "h800_sxm", "--ep", "32", "--deepep"),
    "frontier": ("frontier", *MODEL, "--total-gpus", "16", "--no-picture"),
    "sensitivity": ("sensitivity", *MODEL, "--tp", "8", "--batch", "32"),
    "compare": ("compare", *MODEL, "--tp", "8", "--estimator", "serving", "--estimator", "kernels"),
    "offload": ("offload", "opt-175b", "--hardware", "t4_host", "--no-picture"),
    "report": ("report", *MODEL, "--tpot", "30ms"),
    "models": ("models",),
    "hardware": ("hardware",),
}


class Took(NamedTuple):
    """Seconds of one process: on the wall, and of the processor."""

    wall: float
    processor: float


def took(words: list[str], folder: str) -> Took:
    """One process, its answer thrown away.

    Raises:
        SystemExit: it fails.
    """
    chosen = {"JAX_COMPILATION_CACHE_DIR": os.path.join(folder, "programs")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    ended = subprocess.run(
        words, cwd=folder, env=os.environ | chosen, stdout=subprocess.DEVNULL, stderr=-1
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode:
        raise SystemExit(f"{' '.join(words)}: {ended.stderr.decode()}")
    return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def median(rows: list[Took]) -> Took:
    """The median of each column."""
    return Took(*(statistics.median(column) for column in zip(*rows, strict=True)))


def measure(runs: int, names: list[str]) -> dict[str, dict[str, Took]]:
    """Medians of the first and the second call of every command, turn by turn."""
    result: dict[str, dict[str, list[Took]]] = {}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            alone = took([sys.executable, "-c", "import jax"], folder)
        result.setdefault("import jax", {}).setdefault("second", []).append(alone)
        for name in names:
            words = COMMANDS[name]
            with tempfile.TemporaryDirectory() as folder:
                for call in ("first", "second"):
                    row = took([sys.executable, "-m", "infer_jax", *words], folder)
                    result.setdefault(name, {}).setdefault(call, []).append(row)
    return {
        name: {call: median(rows) for call, rows in calls.items()} for name, calls in result.items()
    }


def main() -> None:
    """Print one row a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*COMMANDS, []])
    asked = parser.parse_args()
    result = measure(asked.runs, asked.names or list(COMMANDS))
    if asked.json:
        rows = {n: {call: t._asdict() for call, t in calls.items()} for n, calls in result.items()}
        print(json.dumps(rows, indent=1))
        return
    print("| seconds | first, wall | processor | second, wall | processor |\n|---|---|---|---|---|")
    for name, calls in result.items():
        first = calls.get("first")
        begun = "| |" if first is None else f"{first.wall:.2f} | {first.processor:.2f} |"
        second = calls["second"]
        print(f"| {name} | {begun} {second.wall:.2f} | {second.processor:.2f} |")


if __name__ == "__main__":
    main()
