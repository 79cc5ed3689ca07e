"""Programs of their own: what they import, keep, write and leave behind, and how they end."""

import errno
import inspect
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

import infer_jax
import infer_jax as ij
from infer_jax.catalog import files
from infer_jax.catalog.models import BUNDLED
from infer_jax.cli.runs import print_json
from infer_jax.cli.table import VERBS, function_of, line_of
from infer_jax.cli.verbs import app
from infer_jax.compiling import cache_folder
from infer_jax.errors import InputError
from infer_jax.results import Column, Table
from infer_jax.results.text import show
from infer_jax.verbs.calibrate_result import CalibrateResult
from tests.cli.running import program, run


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_verb_says_of_itself_is_one_line(verb):
    line = " ".join((inspect.getdoc(function_of(verb)) or "").split("\n\n")[0].split())
    assert line_of(verb) == line


def test_every_verb_of_the_library_is_a_command_and_the_others_have_their_module():
    own = {name for name, verb in VERBS.items() if not verb.module}
    homes = {x: getattr(getattr(infer_jax, x), "__module__", "") for x in dir(infer_jax)}
    assert own == {name for name, home in homes.items() if home == f"infer_jax.verbs.{name}"}


def test_help_imports_no_jax():
    """Of no verb, all asked in one process."""
    code = f"""if True:
        import contextlib, io, sys
        from infer_jax.cli import main
        for words in ([], ["--version"], *([verb, "--help"] for verb in {tuple(VERBS)})):
            sys.argv[1:] = words
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
                main()
        print(*sys.modules)
    """
    ran = program(code=code)
    assert ran.returncode == 0, ran.stderr
    names = set(ran.stdout.split())
    assert "infer_jax.cli.verbs" in names
    assert not names & {"jax", "numpy", "flax", "infer_jax.catalog"}


# what a question of one configuration has no use for
UNUSED = {
    *("matplotlib", "optax", "optimistix", "pandas", "pyarrow", "scipy"),
    *(f"infer_jax.catalog.{room}" for room in ("measurements", "traces")),
    *(f"infer_jax.{room}" for room in ("calibration", "design", "kernel_timing")),
    *(f"infer_jax.{room}" for room in ("replays", "servers", "sweeps")),
    "infer_jax.pages.page",
    *(f"infer_jax.verbs.{x}" for x in ("calibrate", "codesign", "measure", "report", "sweep")),
}


def test_an_answer_imports_what_it_uses():
    answers = (f"infer_jax.verbs.{x}_result" for x in ("estimate", "plan", "memory", "kernels"))
    ran = program(code=f"import sys, {', '.join(answers)}; print(*sys.modules)")
    names = set(ran.stdout.split())
    assert "infer_jax.verbs.inputs" in names, ran.stderr
    assert not names & UNUSED


def test_module_is_the_program():
    ended = subprocess.run(
        [sys.executable, "-m", "infer_jax", "--version"], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (0, f"infer-jax {infer_jax.__version__}\n")


IMPORTING = """
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "{}":
            print("up", flush=True)
            time.sleep(100)

sys.meta_path.insert(0, Slow())
from infer_jax.cli import main
"""
WORKING = """
from infer_jax.cli import main
from infer_jax.cli.verbs import app
app.command("work")(lambda: (print("up", flush=True), time.sleep(100)))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(
    "code", [IMPORTING.format("typer"), IMPORTING.format("jax"), WORKING], ids=["typer", "jax", ""]
)
def test_an_interrupt_is_130_without_traceback(code):
    """While a module is imported, which takes most of a short command's time, and at work.

    What a shell starts in the background ignores the signal unless told otherwise.
    """
    told = "import signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler)"
    word = "work" if code is WORKING else "estimators"
    words = [sys.executable, "-c", f"{told}{code}main()", word]
    with subprocess.Popen(words, stdout=-1, stderr=-1, text=True) as asked:
        assert asked.stdout is not None
        assert asked.stdout.readline() == "up\n"
        asked.send_signal(signal.SIGINT)
        errors = asked.communicate(timeout=120)[1]
    assert (asked.returncode, errors) == (130, "")


def test_programs_are_kept_where_they_are_asked_to_else_where_the_user_keeps_caches(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "a" / "b"))
    assert cache_folder() == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert cache_folder() == tmp_path / "infer_jax"
    (tmp_path / "file").write_text("in the way")
    for where in ("file/below", "nu\0ll"):  # no folder is no error
        place = Path(tmp_path / where)
        monkeypatch.setattr("infer_jax.compiling.store._user_cache", lambda place=place: place)
        assert cache_folder() is None


# counts what is traced, lowered and compiled, or loaded from JAX's own cache of programs
COUNTING = """
import atexit, sys
import jax.monitoring
seen = []
jax.monitoring.register_event_duration_secs_listener(lambda name, _, **more: seen.append(name))
jax.monitoring.register_event_listener(lambda name, **more: seen.append(name))
atexit.register(lambda: print(*sorted({x for x in seen if "compil" in x}), file=sys.stderr))
from infer_jax.cli import main
main()
"""
H100, LLAMA = ("--hardware", "h100_sxm"), "llama-3.1-8b"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("estimate", LLAMA, *H100, "--tp", "1"), marks=pytest.mark.slow),
        ("plan", LLAMA, *H100, "--total-gpus", "2", "--isl", "1000"),
        pytest.param(("kernels", LLAMA, *H100), marks=pytest.mark.slow),
        pytest.param(("sensitivity", LLAMA, *H100, "--tp", "1"), marks=pytest.mark.slow),
        pytest.param(
            ("frontier", LLAMA, *H100, "--total-gpus", "2", "--no-picture"), marks=pytest.mark.slow
        ),
    ],
)
def test_second_command_traces_nothing_is_silent_and_equal(words, tmp_path, monkeypatch):
    """Neither traced, lowered, compiled nor looked up; and the same numbers to the last bit."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs of this test"))
    first, second = (program(*words, "--json", code=COUNTING) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "jaxpr_trace_duration" in first.stderr  # the events are called so
    assert second.stderr == "\n"
    assert first.stdout == second.stdout


KEEPING = """
import sys
import jax.monitoring
seen = []
jax.monitoring.register_event_duration_secs_listener(lambda name, _, **more: seen.append(name))
import infer_jax as ij
assert str(ij.keep_programs(sys.argv[1])) == sys.argv[1]
print(float(ij.estimate("llama-3.1-8b", "h100_sxm", tp=1).estimate.tpot))
print("compiled" if any("compile" in name or "trace" in name for name in seen) else "loaded")
"""


def test_a_python_program_keeps_its_programs_where_it_asks_for_that(tmp_path):
    ran = [program(str(tmp_path / "kept"), code=KEEPING) for _ in range(2)]
    assert [each.stderr for each in ran] == ["", ""]
    (first, how), (again, loaded) = (each.stdout.split() for each in ran)
    assert (how, loaded) == ("compiled", "loaded") and first == again


def test_importing_the_library_leaves_jax_as_it_is():
    code = (
        "import jax; before = dict(jax.config.values); import infer_jax, infer_jax.cli; "
        "assert before.items() <= dict(jax.config.values).items()"
    )
    ended = program(code=code)
    assert ended.returncode == 0, ended.stderr


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
