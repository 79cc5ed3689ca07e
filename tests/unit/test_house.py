"""The rooms of the house: imports go one way, and importing it stays light."""

import ast
import re
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import infer_jax
from benchmarks import house
from infer_jax.physics import attention
from infer_jax.physics.attention import kind

PACKAGE = Path(infer_jax.__file__).parent


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax of a file, which is parsed once for all tests."""
    return ast.parse(path.read_text())


# a room may import from those before it
ORDER = ("errors", "on_demand", "typed_jax", "compiling", "bibtex", "results", "specs", "catalog",
         "physics", "legal", "footprint", "arrivals", "replays", "engines", "estimators",
         "silicon", "doctor", "plots", "sweeps", "planning", "servers", "fleets", "launch",
         "calibration", "rollouts", "kernel_timing", "design", "pages", "verbs", "cli")  # fmt: skip
OPTIONAL = {"matplotlib", "flax", "optax", "optimistix", "pyarrow", "scipy", "pandas", "yaml"}
OPTIONAL |= {"jinja2", "vl_convert"}
# kinds of attention, their laws and cores by name
CORES = {name: x for name, x in vars(kind).items() if isinstance(x, kind.Core)}
KINDS = {one.__name__ for row in attention.KINDS.items() for one in row} | {"KINDS"} | set(CORES)
# where kinds of attention may be told apart: their specs, readers and laws, and the files that
# reproduce InferSim's own accounting
APART = ("specs/", "physics/attention/")
APART += tuple(f"catalog/{name}" for name in ("huggingface/", "published/", "kernel_tables.py"))
APART += tuple(f"estimators/kernels/{name}.py" for name in ("published", "published_pass"))
# what a layer or its row has to be looked up or multiplied by, and not to be asked for its kind
ANSWERS = {"core", "family", "recurrent", "launches", "state"}
FREE = {"catalog": {"estimators", "physics"}}  # rooms that may not be imported at all
ANY = 150  # lines of the package that say ``Any``


def rooms():
    """(room, file, imported room) for every import of the package within itself."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts in (("__init__",), ("__main__",)):
            continue
        for node in ast.walk(tree_of(path)):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
                if node.module == "infer_jax":
                    names = [f"infer_jax.{x.name}" for x in node.names if x.name in ORDER]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                if name.startswith("infer_jax."):
                    yield parts[0], path.relative_to(PACKAGE), name.split(".")[1]


def test_imports_go_one_way():
    for room, path, imported in rooms():
        assert room in ORDER, f"a new room: give it a place in ORDER and in docs/design.md: {room}"
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


def trees():
    """(file, its tree) of every file in which kinds of attention are not told apart."""
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE).as_posix()
        if not where.startswith(APART):
            yield where, tree_of(path)


def test_kinds_of_attention_are_named_in_their_room_alone():
    rooms = ("infer_jax.specs", "infer_jax.physics.attention")
    for where, tree in trees():
        named: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(rooms):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute):
                room = ast.unparse(node.value).endswith(("specs", "att", "attention"))
                named |= {node.attr} if room else set()
        assert not named & KINDS, f"{where} names {named & KINDS}: ask physics.attention.of(...)"


def conditions(tree: ast.AST):
    """Every expression that decides what is computed."""
    for node in ast.walk(tree):
        match node:
            case ast.If() | ast.IfExp() | ast.While() | ast.Assert():
                yield node.test
            case ast.comprehension():
                yield from node.ifs
            case ast.Match():
                yield node.subject
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                yield node
            case ast.Call() if ast.unparse(node.func) in CHOOSERS and node.args:
                yield node.args[0]


CHOOSERS = {"jnp.where", "jnp.select", "lax.select", "lax.cond", "lax.switch", "any", "all"}


def answers(tree: ast.AST, names: Collection[str] = ()) -> bool:
    """Whether an expression has one of ``ANSWERS`` of a layer, or a name of one."""
    return any(
        (isinstance(x, ast.Attribute) and x.attr in ANSWERS)
        or (isinstance(x, ast.Name) and x.id in names)
        for x in ast.walk(tree)
    )


def forks(tree: ast.AST) -> set[int]:
    """Lines that branch on what a layer answers of its kind."""
    fields = {name for spec in attention.KINDS for name in spec.__dataclass_fields__} | ANSWERS
    spelled = {name for core in CORES.values() for name in core}
    lines: set[int] = set()
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        assigned = (n for n in ast.walk(function) if isinstance(n, ast.Assign) and answers(n.value))
        names = {t.id for n in assigned for t in n.targets if isinstance(t, ast.Name)}
        lines |= {test.lineno for test in conditions(function) if answers(test, names)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            said = {x.value for x in ast.walk(node) if isinstance(x, ast.Constant)}
            lines |= {node.lineno} if said & spelled else set()
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            probed = {x.value for x in node.args[1:2] if isinstance(x, ast.Constant)}
            lines |= {node.lineno} if probed & fields else set()
    return lines


def test_no_line_branches_on_a_kind_of_attention():
    """Outside the room a kind is numbers, or a name to look a law, a curve or a table up by."""
    result = {where: lines for where, tree in trees() if (lines := forks(tree))}
    # families of measured kernels, which are rows of a machine and no layers
    timed = ("kernel_timing/",)
    result = {where: x for where, x in result.items() if not where.startswith(timed)}
    assert not result


def test_names_on_demand_are_those_that_type_checkers_read():
    stubs = list(PACKAGE.rglob("__init__.pyi"))
    assert len(stubs) >= 7
    for stub in stubs:
        package = ".".join((PACKAGE.name, *stub.parent.relative_to(PACKAGE).parts))
        room = import_module(package)
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    home = import_module(node.module)
                    assert getattr(room, alias.name) is getattr(home, alias.name)
                    assert alias.asname == alias.name and alias.name in dir(room)
        assert all(hasattr(room, name) for name in dir(room))
        assert not hasattr(room, "no_such_name")


READERS = {"open", "np.load", "csv.reader", "csv.DictReader"}
READERS |= {f"{kind}.{verb}" for kind in ("json", "tomllib", "yaml", "pickle") for verb in
            ("load", "loads", "safe_load")}  # fmt: skip
# what knows size, depth and range, and what reads only files of its own
FOREIGN = {"catalog/foreign.py", "catalog/files.py"}
OWN = {"doctor.py", "compiling/store.py", "cli/verbs.py", "pages/charts.py"}


def test_files_of_others_are_read_in_one_place():
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name in FOREIGN | OWN:
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in READERS, f"{name} reads a file by itself"


def test_functions_and_files_are_short():
    """A function has at most 60 lines, a verb's list of options aside; a file 400, a command 200.

    The options of a public verb are said one a line, as its command says them, and again in its
    docstring; what it computes with is imported in its body, so that its help needs no JAX, and
    those lines are no code of it.
    """
    for path in PACKAGE.rglob("*.py"):
        where, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        most = 200 if where.startswith("cli/") else 400
        assert text.count("\n") <= most, f"{where}: over {most} lines"
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                marks = {ast.unparse(mark) for mark in node.decorator_list}
                begins = node.body[1].lineno if "verb" in marks else node.lineno
                lines = (node.end_lineno or begins) - begins + 1
                if "verb" in marks:
                    imports = [x for x in node.body if isinstance(x, ast.Import | ast.ImportFrom)]
                    lines -= sum((x.end_lineno or x.lineno) - x.lineno + 2 for x in imports[:1])
                    lines -= sum((x.end_lineno or x.lineno) - x.lineno + 1 for x in imports[1:])
                assert lines <= 60, f"{where}: {node.name} has {lines} lines"


def test_no_name_is_both_a_module_and_an_object_of_its_package():
    """Else ``from infer_jax.room import name`` is either, by the order of imports."""
    for init in PACKAGE.rglob("__init__.py"):
        beside = [path for path in init.parent.glob("*.py") if path != init]
        modules = {x.stem for x in beside} | {x.parent.name for x in init.parent.glob("*/*.py")}
        package = ".".join((PACKAGE.name, *init.parent.relative_to(PACKAGE).parts))
        names: set[str] = set()
        stub = init.with_suffix(".pyi")
        lazy = ast.parse(stub.read_text()).body if stub.exists() else []
        for node in ast.parse(init.read_text()).body + lazy:
            match node:
                case ast.ImportFrom() if node.module != package:
                    names |= {alias.asname or alias.name for alias in node.names}
                case ast.FunctionDef() | ast.ClassDef():
                    names.add(node.name)
                case ast.Assign():
                    names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        assert not names & modules, f"{package}: {names & modules}"
    modules = {path.stem for path in PACKAGE.iterdir()}
    public = {x for x in dir(infer_jax) if not isinstance(getattr(infer_jax, x), ModuleType)}
    assert not public & modules


def test_types_are_said():
    """``Any`` stands only where a tree is truly any: on at most ``ANY`` lines."""
    lines = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\bAny\b", line)
    ]
    assert len(lines) <= ANY, lines


def test_the_house_grows_only_on_purpose():
    """``python -m benchmarks.house`` prints the counts beside these limits."""
    if not (house.ROOT / "experiments").exists():
        pytest.skip("installed without the checkout")
    counts = house.counts()
    assert counts.keys() == house.LIMITS.keys()
    assert {name: count for name, count in counts.items() if count > house.LIMITS[name]} == {}


def test_what_stands_apart_is_there_and_counted_once():
    """Each pattern of ``house.LATER`` has files, and no file is of two subjects."""
    for patterns in house.LATER.values():
        assert all(any(house.ROOT.glob(pattern)) for pattern in patterns), patterns
    paths = [path for files in house.later_files().values() for path in files]
    assert paths and len(paths) == len(set(paths))
