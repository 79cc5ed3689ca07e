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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "infer_jax"
FRONT = ("verbs", "cli", "plots", "pages", "results")
# subjects of later work, which are counted apart: their files. The verbs kernels, measure and
# codesign were there before it, about as large as today; they go with their subjects
LATER = {
    "kernels": ("infer_jax/verbs/kernels*.py", "infer_jax/kernel_timing/*.py"),
    "launch and measure": (
        "infer_jax/verbs/measure*.py", "infer_jax/verbs/deploy.py", "infer_jax/verbs/rollout.py",
        "infer_jax/rollouts/*.py", "tests/unit/rollouts/*.py", "tests/cli/test_deploy.py",
        "tests/unit/launch/test_launched_memory.py", "tests/unit/launch/test_startable_plans.py",
        "tests/unit/calibration/test_first_runs.py", "tests/flags.py",
    ),
    "chips": (
        "infer_jax/verbs/chip*.py", "infer_jax/verbs/codesign*.py", "infer_jax/plots/path.py",
        "infer_jax/silicon/*.py", "infer_jax/verbs/curvatures.py", "infer_jax/design/draws.py",
        "infer_jax/design/expected.py", "infer_jax/design/frontier.py", "experiments/_silicon/*.py",
        "experiments/chip*.py", "experiments/silicon.py", "tests/unit/silicon/*.py",
        "tests/golden/test_chips.py", "tests/golden/test_llmcompass.py",
        "tests/golden/test_silicon_studies.py", "tests/unit/design/test_curvature.py",
        "tests/unit/design/test_expected.py", "tests/unit/design/test_frontier.py",
        "tests/unit/design/test_joint.py",
    ),
    "fleets": (
        "infer_jax/verbs/fleet*.py", "infer_jax/verbs/traffic*.py", "infer_jax/verbs/sessions*.py",
        "infer_jax/verbs/offline*.py", "infer_jax/plots/fleet.py", "infer_jax/plots/traffic.py",
        "infer_jax/fleets/*.py", "infer_jax/arrivals/*.py",
        "infer_jax/physics/scheduling/offline.py",
        "infer_jax/physics/scheduling/session_cache.py", "infer_jax/catalog/traffic_file.py",
        "infer_jax/catalog/trace_forms.py", "experiments/_fleets/*.py", "experiments/fleet*.py",
        "tests/unit/arrivals/*.py", "tests/unit/fleets/*.py", "tests/unit/verbs/test_fleet.py",
        "tests/cli/test_offline.py", "tests/cli/test_sessions.py",
        "tests/golden/test_fleet_claims.py", "tests/referee/test_fleets.py",
        "tests/referee/test_offline_and_replay.py", "tests/unit/physics/test_offline_work.py",
        "tests/unit/physics/test_session_cache.py",
    ),
}  # fmt: skip
APART = "without what stands apart"
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
    "lines of code of the front": 9_599,
    "lines of code of the front without what stands apart": 6_858,
    "lines of code of the package": 41_028,
    "lines of code of the package without what stands apart": 34_509,
    "lines of code of kernels": 548,
    "lines of code of launch and measure": 790,
    "lines of code of chips": 2_065,
    "lines of code of fleets": 3_116,
    "lines of the package": 72_031,
    "lines of the package without what stands apart": 60_472,
    "files of the package": 415,
    "files of the package without what stands apart": 337,
    "lines of experiments": 11_464,
    "lines of experiments without what stands apart": 8_491,
    "lines of tests": 31_957,
    "lines of tests without what stands apart": 25_922,
    "functions and classes with bare names": 13,
    "files that use private modules of JAX": 1,
    "files that ij.plan runs through": 45,
    "functions that ij.plan runs through": 199,
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
        subject: sorted(path for pattern in patterns for path in ROOT.glob(pattern))
        for subject, patterns in LATER.items()
    }


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def all_lines(paths: Iterable[Path]) -> int:
    """Every line of some files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


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
    package, later = files("infer_jax"), later_files()
    front = [x for x in package if x.relative_to(PACKAGE).parts[0].removesuffix(".py") in FRONT]
    code = {path: code_lines(path) for path in package}
    others = {path for paths in later.values() for path in paths}

    def both(name: str, paths: list[Path], count: Callable[[list[Path]], int]) -> dict[str, int]:
        own = [x for x in paths if x not in others]
        return {name: count(paths), f"{name} {APART}": count(own)}

    def lines_of_code(paths: list[Path]) -> int:
        return sum(code.get(x, 0) for x in paths)

    result = {
        **both("lines of code of the front", front, lines_of_code),
        **both("lines of code of the package", package, lines_of_code),
        **{f"lines of code of {k}": lines_of_code(paths) for k, paths in later.items()},
        **both("lines of the package", package, all_lines),
        **both("files of the package", package, len),
        **both("lines of experiments", files("experiments"), all_lines),
        **both("lines of tests", files("tests"), all_lines),
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
    print(f"{'':58}{'today':>10}{'at most':>10}")
    for name, count in result.items():
        print(f"{name:58}{count:10,}{LIMITS[name]:10,}")


if __name__ == "__main__":
    main()
