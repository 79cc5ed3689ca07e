"""How large is the house, and does it speak the field's language?

    python -m benchmarks.house [--json]

Counts lines, files and names of the checkout, and what one ``ij.plan`` runs through. The limits
that CI holds stand beside them (``tests/unit/test_house.py``).
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "infer_jax"
FRONT = ("verbs", "cli", "plots", "pages", "results")
# subjects of later work, which are counted apart: files of the package. The verbs kernels, measure
# and codesign were there before it, about as large as today; they go with their subjects
LATER = {
    "kernels": ("verbs/kernels*.py", "kernel_timing/*.py"),
    "launch and measure": (
        "verbs/measure*.py", "verbs/deploy.py", "verbs/rollout.py", "rollouts/*.py",
    ),
    "chips": (
        "verbs/chip*.py", "verbs/codesign*.py", "plots/path.py", "silicon/*.py",
        "verbs/curvatures.py", "design/draws.py", "design/expected.py",
        "design/frontier.py",
    ),
    "fleets": (
        "verbs/fleet*.py", "verbs/traffic*.py", "verbs/sessions*.py", "verbs/offline*.py",
        "plots/fleet.py", "plots/traffic.py", "fleets/*.py", "arrivals/*.py",
        "physics/scheduling/offline.py", "physics/scheduling/session_cache.py",
        "catalog/traffic_file.py", "catalog/trace_forms.py",
    ),
}  # fmt: skip
# participles, adverbs and pronouns that name no quantity, action or thing of the field
BARE = re.compile(
    "about|ahead|alone|apart|asked|begun|beside|both|come|counted|drawn|each|either|everything|far|"
    "fed|found|given|gone|held|hushed|kept|known|lawful|least|liked|many|met|most|named|near|noted|"
    "one|opened|paid|place|places|pulled|room|said|seen|shown|spent|sure|taken|there|told|tried|"
    "wanted|whole|wholly|worded"
)
PRIVATE = re.compile(r"\bjax\._src|\bfrom jaxlib import _|\bjaxlib\._")
# at most so much of each
LIMITS = {
    "lines of code of the front": 9_748,
    "lines of code of the front without what stands apart": 7_000,
    "lines of code of the package": 41_735,
    "lines of code of the package without what stands apart": 35_186,
    "lines of code of kernels": 551,
    "lines of code of launch and measure": 817,
    "lines of code of chips": 2_059,
    "lines of code of fleets": 3_122,
    "lines of the package": 73_023,
    "files of the package": 461,
    "lines of experiments": 11_383,
    "lines of tests": 33_326,
    "functions and classes with bare names": 13,
    "files that use private modules of JAX": 1,
    "files that ij.plan runs through": 57,
    "functions that ij.plan runs through": 249,
}
PLAN = """
import sys
import infer_jax as ij
ij.plan("qwen3-8b", "h200_sxm", total_gpus=2, tpot=0.02, mode="aggregated")  # imports, compiles
seen = set()
def trace(frame, event, _):
    code = frame.f_code
    if event == "call" and "/infer_jax/" in code.co_filename and code.co_name[0] != "<":
        seen.add((code.co_filename, code.co_firstlineno))
sys.setprofile(trace)
ij.plan("llama-3.1-8b", "h100_sxm", total_gpus=2, tpot=0.02, mode="aggregated")
sys.setprofile(None)
print(len({file for file, _ in seen}), len(seen))
"""


def files(folder: str) -> list[Path]:
    """Python files below a folder of the checkout."""
    return sorted((ROOT / folder).rglob("*.py"))


def code_lines(path: Path) -> int:
    """Lines that are not blank, a comment, a docstring or an import at the top of the module."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    count = sum(bool(x.strip()) and not x.strip().startswith("#") for x in text.splitlines())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            count -= _lines(node.body[0])
    imports = (x for x in tree.body if isinstance(x, ast.Import | ast.ImportFrom))
    return count - sum(map(_lines, imports))


def later_files() -> dict[str, list[Path]]:
    """The files of every subject of ``LATER``."""
    return {
        subject: sorted(path for pattern in patterns for path in PACKAGE.glob(pattern))
        for subject, patterns in LATER.items()
    }


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def all_lines(folder: str) -> int:
    """Every line of the Python files below a folder."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files(folder))


def bare_names() -> Iterator[tuple[str, str]]:
    """(file, name) of every function and class of the package with a bare name."""
    for path in files("infer_jax"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            has_name = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if has_name and BARE.fullmatch(node.name.lstrip("_").casefold()):
                yield str(path.relative_to(ROOT)), node.name


def private_users() -> list[str]:
    """Files that name private modules of JAX."""
    every = (path for path in files("infer_jax") if PRIVATE.search(path.read_text("utf-8")))
    return [str(path.relative_to(ROOT)) for path in every]


def plan_trace() -> tuple[int, int]:
    """Files and distinct functions that ``ij.plan`` of a new model and system runs through."""
    ran = subprocess.run(
        [sys.executable, "-c", PLAN], cwd=ROOT, capture_output=True, text=True, check=True
    )
    here, functions = map(int, ran.stdout.split())
    return here, functions


def counts(plan: bool = True) -> dict[str, int]:
    """What is counted, by the names of ``LIMITS``; ``plan``: also what ``ij.plan`` runs through."""
    package = files("infer_jax")
    front = [x for x in package if x.relative_to(PACKAGE).parts[0].removesuffix(".py") in FRONT]
    later, code = later_files(), {path: code_lines(path) for path in package}
    apart = {path for paths in later.values() for path in paths}
    result = {
        "lines of code of the front": sum(code[x] for x in front),
        "lines of code of the front without what stands apart": sum(
            code[x] for x in front if x not in apart
        ),
        "lines of code of the package": sum(code.values()),
        "lines of code of the package without what stands apart": sum(
            code[x] for x in package if x not in apart
        ),
        **{f"lines of code of {k}": sum(code[x] for x in paths) for k, paths in later.items()},
        "lines of the package": all_lines("infer_jax"),
        "files of the package": len(package),
        "lines of experiments": all_lines("experiments"),
        "lines of tests": all_lines("tests"),
        "functions and classes with bare names": len(list(bare_names())),
        "files that use private modules of JAX": len(private_users()),
    }
    if plan:
        through = ("files that ij.plan runs through", "functions that ij.plan runs through")
        result |= dict(zip(through, plan_trace(), strict=True))
    return result


def main() -> None:
    """Print the table, or JSON."""
    result = counts()
    if "--json" in sys.argv:
        print(json.dumps(result))
        return
    print(f"{'':54}{'today':>10}{'at most':>10}")
    for name, count in result.items():
        print(f"{name:54}{count:10,}{LIMITS[name]:10,}")


if __name__ == "__main__":
    main()
