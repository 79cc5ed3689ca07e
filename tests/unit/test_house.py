"""The rooms of the house: imports go one way, and importing it stays light."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import infer_jax
from infer_jax.physics import attention

PACKAGE = Path(infer_jax.__file__).parent
# a room may import from those before it
ORDER = (
    "errors",
    "compiling",
    "citation",
    "results",
    "specs",
    "catalog",
    "physics",
    "legal",
    "footprint",
    "estimators",
    "replay",
    "doctor",
    "plots",
    "sweeps",
    "planning",
    "launch",
    "calibration",
    "kernel_timing",
    "design",
    "pages",
    "verbs",
    "cli",
)
OPTIONAL = {"matplotlib", "flax", "optax", "optimistix", "pyarrow", "scipy", "pandas", "yaml"}
KINDS, SPECS = {kind.__name__ for kind in attention.KINDS}, "infer_jax.specs"
# where kinds of attention may be told apart: their specs, readers and laws, and the variants that
# reproduce an author's own accounting
APART = ("specs", "catalog", "physics/attention", "estimators/kernels/published.py")
APART += tuple(f"estimators/kernels/{name}.py" for name in ("budget", "missing", "tables"))
FREE = {"catalog": {"estimators", "physics"}}  # rooms that may not be imported at all


ANY = 150  # lines of the package that say ``Any``


def rooms():
    """(room, file, imported room) for every import of the package within itself."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts in (("__init__",), ("__main__",)):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                if name.startswith("infer_jax."):
                    yield parts[0], path.relative_to(PACKAGE), name.split(".")[1]


def test_every_room_is_known():
    found = {room for room, _, _ in rooms()}
    assert found <= set(ORDER), (
        f"a new room: give it a place in ORDER and in docs/design.md: {found}"
    )


def test_imports_go_one_way():
    for room, path, imported in rooms():
        assert ORDER.index(imported) <= ORDER.index(room), f"{path} imports {imported}"
        assert imported not in FREE.get(room, ()), f"{path} imports {imported}"


def test_import_is_light():
    """No optional package, and at most 1.5 s of processor beyond jax's own import."""
    code = """if True:
        import sys, time
        import jax
        begun = time.process_time()
        before = set(sys.modules)
        import infer_jax, infer_jax.calibration, infer_jax.design, infer_jax.planning
        for name in dir(infer_jax):
            getattr(infer_jax, name)
        print(time.process_time() - begun, *(set(sys.modules) - before))
    """

    def imported() -> tuple[float, set[str]]:
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        seconds, *modules = ran.stdout.split()
        return float(seconds), set(modules)

    seconds, modules = imported()
    assert "infer_jax.specs" in modules
    assert not modules & OPTIONAL
    # a busy machine takes longer for the same work: the best of three counts
    assert seconds < 1.5 or any(imported()[0] < 1.5 for _ in range(2))


def test_modules_say_which_question_they_answer():
    for path in PACKAGE.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_kinds_of_attention_are_told_apart_in_their_room_alone():
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE).as_posix()
        if where.startswith(APART):
            continue
        named: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(SPECS):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("specs"):
                named.add(node.attr)
        assert not named & KINDS, f"{where} names {named & KINDS}: ask physics.attention.of(...)"


# names that estimators go by
ESTIMATORS = {"estimator", "theory", "target", "decoder", "inner", "second", "innermost"}


def calls():
    """(file, function, its first argument's last name, the call's text) of every named call."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                first = ast.unparse(node.args[0]).rpartition(".")[2]
                yield path.relative_to(PACKAGE).as_posix(), ast.unparse(node.func), first, node


def test_what_an_estimator_is_stands_in_its_class():
    """``Estimator`` and ``Wrapper`` answer; nobody looks for attributes, names or targets."""
    for where, called, first, _ in calls():
        probes = called == "hasattr" or (called == "getattr" and first in ESTIMATORS)
        assert not (probes and (where.startswith("estimators/") or first in ESTIMATORS)), where
        assert called != "SimpleNamespace", f"{where}: an object without a class"
    for path in PACKAGE.rglob("*.py"):
        where, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        assert "__name__.lower()" not in text, f"{where}: a class says its name to others"
        if where != "estimators/estimator.py":
            walks = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.While)]
            assert not any("target" in ast.unparse(n.test) for n in walks), f"{where}: innermost"


def test_estimators_have_no_imports_for_the_type_checker_alone():
    """Numbers and laws stand in ``coefficients.py``, passes import that, the model is on top."""
    for path in (PACKAGE / "estimators").rglob("*.py"):
        assert "TYPE_CHECKING" not in path.read_text(), f"{path}: a cycle"


READERS = {"open", "np.load", "csv.reader", "csv.DictReader"}
READERS |= {f"{kind}.{verb}" for kind in ("json", "tomllib", "yaml", "pickle") for verb in
            ("load", "loads", "safe_load")}  # fmt: skip
# what knows size, depth and range, and what reads only files of its own
FOREIGN = {"catalog/foreign.py", "catalog/files.py", "catalog/archives.py"}
OWN = {"doctor.py", "compiling/kept.py", "cli/verbs.py"}


def test_files_of_others_are_read_in_one_place():
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name in FOREIGN | OWN:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in READERS, f"{name} reads a file by itself"


def test_functions_and_files_are_short():
    """A function has at most 60 lines, a verb's list of options aside; a file 400, a command 200.

    The options of a public verb are said one a line, as its command says them.
    """
    for path in PACKAGE.rglob("*.py"):
        where, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        most = 200 if where.startswith("cli/") else 400
        assert text.count("\n") <= most, f"{where}: over {most} lines"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                marks = {ast.unparse(mark) for mark in node.decorator_list}
                begins = node.body[0].lineno if "verb" in marks else node.lineno
                lines = (node.end_lineno or begins) - begins + 1
                assert lines <= 60, f"{where}: {node.name} has {lines} lines"


def test_types_are_said():
    """``Any`` stands only where a tree is truly any: on at most ``ANY`` lines."""
    lines = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\bAny\b", line)
    ]
    assert len(lines) <= ANY, lines
