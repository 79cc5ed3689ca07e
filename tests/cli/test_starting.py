"""Programs of their own: what they import, keep, leave behind, and how they end."""

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import infer_jax
from infer_jax.cli.table import VERBS, function_of, line_of
from infer_jax.compiling import cache_folder
from tests.cli.running import program


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_verb_says_of_itself_is_one_line(verb):
    line = " ".join((inspect.getdoc(function_of(verb)) or "").split("\n\n")[0].split())
    assert line_of(verb) == line
    assert VERBS[verb].example.split()[0] == verb


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
