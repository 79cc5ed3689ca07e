"""Compiled programs are kept where that can be done, and commands work where it cannot."""

import subprocess
import sys
from pathlib import Path

import pytest

from infer_jax.compiling import cache_folder


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
    asked = [sys.executable, "-c", COUNTING, *words, "--json"]
    first, second = (
        subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        for _ in range(2)
    )
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
    words = [sys.executable, "-c", KEEPING, str(tmp_path / "kept")]
    ran = [
        subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        for _ in range(2)
    ]
    assert [each.stderr for each in ran] == ["", ""]
    (first, how), (again, loaded) = (each.stdout.split() for each in ran)
    assert (how, loaded) == ("compiled", "loaded") and first == again


def test_importing_the_library_leaves_jax_as_it_is(tmp_path):
    code = (
        "import jax; before = dict(jax.config.values); import infer_jax, infer_jax.cli; "
        "assert before.items() <= dict(jax.config.values).items()"
    )
    words = [sys.executable, "-c", code]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
