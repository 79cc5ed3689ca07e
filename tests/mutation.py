"""Do the tests notice small faults? Mutations drawn over the package, and which are killed.

``python -m tests.mutation --count 200`` changes one operator, number, minimum or default at
a time in a copy of the checkout and runs the tests that name its module, as CI runs them, until
one fails. mutmut and cosmic-ray run all tests, or those of a coverage map, for each mutation: all
take a quarter of an hour here, and lines of programs that JAX traces once are in no such map.
Each result is a line of the file ``--out``; a draw that was stopped carries on from there.
"""

import ast
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from experiments import _report

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".pytest_cache", ".hypothesis", "__pycache__")
FILES = 14  # test files for a mutation, those that name its module most often first
# packages whose faults these folders see
FOLDERS = {
    "physics": ("unit/physics", "contract"),
    "estimators": ("unit/estimators", "contract"),
    "specs": ("unit/specs", "contract"),
    "verbs": ("cli", "unit/verbs"),
    "cli": ("cli",),
    "pages": ("cli/report",),
    "replays": ("unit/replays", "referee"),
}
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min"}
FLAGS = re.compile(r'^export XLA_FLAGS="(.*)"$|^XLA_FLAGS\+="(.*)"$', re.MULTILINE)


class Mutation(NamedTuple):
    """One change of one line: from column ``begin`` to ``end``, other text."""

    file: str
    line: int
    begin: int
    end: int
    before: str
    after: str

    def apply(self, root: Path) -> None:
        """Write the changed file below ``root``."""
        path = root / self.file
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        own = lines[self.line - 1].encode()
        changed = own[: self.begin] + self.after.encode() + own[self.end :]
        lines[self.line - 1] = changed.decode()
        write_module(path, "".join(lines))


def write_module(path: Path, text: str) -> None:
    """Write a module and forget what Python compiled of it.

    Python believes a compiled file by the second and the size of its source, which two mutations
    of a line, tried one right after the other, share.
    """
    path.write_text(text, encoding="utf-8")
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def mutations(file: Path, root: Path) -> Iterator[Mutation]:
    """Every mutation of a file, of expressions on one line."""
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        after = _changed(node) if isinstance(node, ast.expr) else None
        if after is None or not isinstance(node, ast.expr) or node.lineno != node.end_lineno:
            continue
        before, end = ast.get_source_segment(text, node) or "", node.end_col_offset or 0
        place = str(file.relative_to(root)), node.lineno, node.col_offset, end
        yield Mutation(*place, before, f"({after})")


def _changed(node: ast.AST) -> str | None:
    """Another expression in the place of this one, if it is of a kind that is changed."""
    other: Any = copy.deepcopy(node)
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return repr(value + 1 if isinstance(value, int) else 1.1 * value + 0.1)
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in SWAPS:
            other.op = SWAPS[type(operator)]()
        case ast.Compare(ops=[operator, *_]) if type(operator) in SWAPS:
            other.ops[0] = SWAPS[type(operator)]()
        case ast.Attribute(attr=name) if name in NAMES:
            other.attr = NAMES[name]
        case ast.Name(id=name) if name in NAMES:
            other.id = NAMES[name]
        case _:
            return None
    return ast.unparse(other)


def drawn(root: Path, count: int, seed: int) -> list[Mutation]:
    """Mutations of the package, equally likely, none twice."""
    every = [
        m for file in sorted((root / "infer_jax").rglob("*.py")) for m in mutations(file, root)
    ]
    return random.Random(seed).sample(every, min(count, len(every)))


def choose_tests(file: str, root: Path) -> list[str]:
    """Test files for a module: those that name it, then those of its package's folders."""
    path = Path(file)
    package = path.parts[1] if len(path.parts) > 2 else ""
    folders = FOLDERS.get(package, (f"unit/{package}" if package else "unit",))
    name = re.compile(rf"\b{path.stem}\b")
    ranks = {}
    for test in sorted((root / "tests").rglob("test_*.py")):
        short = str(test.relative_to(root / "tests"))
        if short.startswith("installed"):
            continue
        named = len(name.findall(test.read_text(encoding="utf-8"))) + 5 * bool(name.search(short))
        near = any(short.startswith(folder) for folder in folders)
        if named or near:
            ranks[str(test.relative_to(root))] = (not (named and near), -named, test.stat().st_size)
    return sorted(ranks, key=lambda test: ranks[test])[:FILES]


def killer(mutation: Mutation, root: Path, seconds: float) -> str | None:
    """The first test that fails, "no end" after so many seconds; None where all pass."""
    flags = "".join(
        a or b for a, b in FLAGS.findall((root / ".ci/run").read_text(encoding="utf-8"))
    )
    own = {"XLA_FLAGS": flags, "PYTHONPATH": str(root), "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0"}
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    try:
        ran = subprocess.run(
            [*words, *choose_tests(mutation.file, root)],
            cwd=root, env={**os.environ, **own}, timeout=seconds, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "no end"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return failed[1] if failed else (None if ran.returncode in (0, 5) else "no start")


def try_each(chosen: list[Mutation], root: Path, out: Path, seconds: float) -> list[dict[str, str]]:
    """Each mutation and its killer, those of ``out`` first, which every further one ends."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    results = [json.loads(line) for line in lines]
    for mutation in chosen[len(results) :]:
        before = (root / mutation.file).read_text(encoding="utf-8")
        mutation.apply(root)
        found = killer(mutation, root, seconds)
        write_module(root / mutation.file, before)
        what = {"place": f"{mutation.file}:{mutation.line}", "before": mutation.before}
        results.append({**what, "after": mutation.after, "killer": found or ""})
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(results[-1]) + "\n")
    return results


def main(
    count: Annotated[int, typer.Option(help="Mutations to draw.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    seconds: Annotated[float, typer.Option(help="Most for the tests of one.")] = 180.0,
    out: Annotated[Path, typer.Option(help="Results, a line each.")] = Path("mutations.jsonl"),
) -> None:
    """Draw mutations, run the tests of each, and print which survive."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "copy"
        shutil.copytree(ROOT, root, ignore=LEFT_OUT)
        if (ROOT.parent / "shared").exists():
            (Path(folder) / "shared").symlink_to((ROOT.parent / "shared").resolve())
        results = try_each(drawn(root, count, seed), root, out, seconds)
    every, killed = Counter[str](), Counter[str]()
    for result in results:
        package = result["place"].split("/")[1].partition(":")[0]
        every[package] += 1
        killed[package] += result["killer"] not in ("", "no end")
    rows = [(name, killed[name], every[name]) for name in sorted(every)]
    rows.append(("all", killed.total(), every.total()))
    _report.show("Mutations that a test notices", ("package", "killed", "of"), rows)
    left = [(r["place"], r["before"], r["after"]) for r in results if not r["killer"]]
    _report.show("Survivors", ("place", "before", "after"), left)


if __name__ == "__main__":
    typer.run(main)
