"""Compiled programs are kept where that can be done, and commands work where it cannot."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.cli.starting import MANY, cache_folder, once


def test_chosen_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "a" / "b"))
    assert cache_folder() == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="the folder of Linux")
def test_user_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "infer_jax"


@pytest.mark.parametrize("where", ["file/below", "nu\0ll"])
def test_no_folder_is_no_error(tmp_path, monkeypatch, where):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("infer_jax.cli.starting._user_cache", lambda: Path(tmp_path / where))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    assert cache_folder() is None


@pytest.mark.parametrize("points", [1, 2, MANY])
def test_once_is_jit(points):
    def function(x):
        return jnp.sum(jnp.exp(-x) * x), {"twice": 2.0 * x}

    x = np.linspace(0.0, 3.0, 5)
    total, parts = once(function, x, points=points)
    assert isinstance(total, np.ndarray | np.floating)
    np.testing.assert_allclose(total, jax.jit(function)(x)[0], rtol=1e-12)
    np.testing.assert_array_equal(parts["twice"], 2.0 * x)


def test_second_command_is_silent_and_equal(tmp_path):
    """XLA complains of programs that it loads from the folder; no user should read that."""
    words = [sys.executable, "-c", "from infer_jax.cli import main; main()"]
    words += ["memory", "llama-3.1-8b", "--hardware", "h100_sxm", "--json"]
    first, second = (
        subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        for _ in range(2)
    )
    assert (first.returncode, first.stderr) == (0, "")
    assert (second.returncode, second.stderr) == (0, "")
    assert first.stdout == second.stdout


def test_importing_the_library_leaves_jax_as_it_is(tmp_path):
    code = (
        "import jax; before = dict(jax.config.values); import infer_jax, infer_jax.cli; "
        "assert before.items() <= dict(jax.config.values).items()"
    )
    words = [sys.executable, "-c", code]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
