"""Verbs are listed without importing them, and what is listed is what they are."""

import inspect
import os
import signal
import subprocess
import sys

import pytest

import infer_jax
from infer_jax.cli.table import VERBS, function_of, line_of

PROGRAM = "from infer_jax.cli import main; main()"


def program(*words: str, code: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own."""
    asked = [sys.executable, "-c", code, *words]
    return subprocess.run(asked, capture_output=True, text=True, timeout=120)


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
    *(f"infer_jax.{room}" for room in ("calibration", "design", "kernel_timing", "sweeps")),
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


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("module", ["typer", "jax"])
def test_interrupted_while_importing_is_130_without_traceback(module):
    """Ctrl-C while a module is imported, which takes most of a short command's time."""
    code = f"""if True:
        import signal, sys, time
        signal.signal(signal.SIGINT, signal.default_int_handler)

        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name == {module!r}:
                    print("importing", flush=True)
                    time.sleep(100)

        sys.meta_path.insert(0, Slow())
    """
    words = [sys.executable, "-c", f"{code}\n{PROGRAM}", "estimators"]
    with subprocess.Popen(words, stdout=-1, stderr=-1, text=True) as asked:
        assert asked.stdout is not None
        assert asked.stdout.readline() == "importing\n"
        asked.send_signal(signal.SIGINT)
        errors = asked.communicate(timeout=120)[1]
    assert (asked.returncode, errors) == (130, "")
