"""A kept program answers as the traced one to the last bit, and a bad file is as none."""

import json
import os
import signal
import stat

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.compiling import jax_internals, once, programs, quick, store
from infer_jax.compiling.programs import UndescribableError, described, name_of, rebuilt
from infer_jax.estimators import VARIANTS
from infer_jax.estimators.estimate import decode_context
from infer_jax.footprint import EngineSettings, memory


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of programs, and a process that remembers none."""
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    monkeypatch.setattr(programs, "_programs", {})
    yield tmp_path / "programs"
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture
def world():
    model, system = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
    plan = ij.Plan.of(tp=2)
    return model.architecture, system.hardware, plan, EngineSettings.of(context=4096, sequences=8)


def forget():
    programs._programs.clear()


def same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (np.asarray(a).dtype, np.shape(a)) == (np.asarray(b).dtype, np.shape(b))
        np.testing.assert_array_equal(a, b)


def no_trace(monkeypatch):
    def traced(*_):
        raise AssertionError("traced")

    monkeypatch.setattr(programs, "_compile", traced)


def test_kept_is_traced_to_the_last_bit(folder, world, monkeypatch):
    traced = jax.device_get(jax.jit(memory, compiler_options=quick("cpu"))(*world))
    made = once(memory, *world)
    assert len(list(folder.iterdir())) == 1
    no_trace(monkeypatch)
    same(made, traced)
    same(once(memory, *world), traced)  # remembered
    forget()
    same(once(memory, *world), traced)  # read
    assert list(made.weights) == list(traced.weights)


def test_new_numbers_need_no_new_program(folder, world, monkeypatch):
    arch, hardware, plan, engine = world
    once(memory, *world)
    no_trace(monkeypatch)
    twice = once(memory, arch, hardware, plan.with_(tp=4.0), engine)
    np.testing.assert_allclose(twice.visible, memory(arch, hardware, plan, engine).visible)
    assert float(twice.available) > float(once(memory, *world).available)
    for tp in (4.0, np.float64(4.0), jnp.asarray(4.0)):  # the first and last are weak
        same(once(memory, arch, hardware, plan.replace(tp=tp), engine), twice)


HARMS = "empty", "flipped", "header", "renamed class", "deep", "long header"


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_file_is_as_none(harm, folder, world):
    made = once(memory, *world)
    (path,) = folder.iterdir()
    good = path.read_bytes()
    head, _, code = good.partition(b"\n")
    bad = {
        "empty": b"",
        "flipped": good[:-9] + bytes([good[-9] ^ 1]) + good[-8:],
        "header": head.replace(b"weights", b"weighty") + b"\n" + code,
        "renamed class": head.replace(b":StartupMemory", b":MissingMemory") + b"\n" + code,
        "deep": b'{"answer": ' + b"[" * 200_000 + b"\n" + code,
        "long header": b" " * store.HEAD_BYTES + good,
    }[harm]
    assert bad != good
    path.write_bytes(bad)
    forget()
    same(once(memory, *world), made)
    assert path.read_bytes() == good or store.load(path.name) is not None  # mended


def test_a_program_under_another_name_is_as_none(folder, world):
    """A whole file that was copied over another's would answer other numbers."""
    arch, hardware, plan, engine = world
    once(memory, *world)
    (first,) = folder.iterdir()
    other = memory(arch, hardware, plan, engine.replace(context=np.ones(1)))
    once(memory, arch, hardware, plan, engine.replace(context=np.ones(1)))
    (second,) = set(folder.iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    assert store.load(second.name) is None and store.load(first.name) is not None
    forget()
    answer = once(memory, arch, hardware, plan, engine.replace(context=np.ones(1)))
    np.testing.assert_allclose(answer.visible, other.visible)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners and modes on this system")
@pytest.mark.parametrize("harm", ["open folder", "linked folder", "open file", "link", "pipe"])
def test_what_others_can_write_is_not_run(harm, folder, world):
    made = once(memory, *world)
    (path,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    if harm == "open folder":
        folder.chmod(0o777)
    elif harm == "linked folder":
        folder.rename(folder.parent / "elsewhere")
        folder.symlink_to(folder.parent / "elsewhere", target_is_directory=True)
    elif harm == "open file":
        path.chmod(0o666)
    elif harm == "link":
        path.rename(folder.parent / "elsewhere")
        path.symlink_to(folder.parent / "elsewhere")
    else:
        path.unlink()
        os.mkfifo(path, 0o600)
    assert store.load(path.name) is None
    forget()
    same(once(memory, *world), made)  # compiled anew, and nothing waits


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners on this system")
def test_files_of_another_user_are_not_run(folder, world, monkeypatch):
    once(memory, *world)
    (path,) = folder.iterdir()
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    assert store.load(path.name) is None


def test_the_users_own_folder_is_for_the_user_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setattr(store, "_user_cache", lambda: tmp_path)
    place = store.cache_folder()
    assert place is not None
    assert place == tmp_path / "infer_jax" and stat.S_IMODE(place.stat().st_mode) == 0o700
    place.chmod(0o777)
    assert store.cache_folder() is None


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="timers of POSIX")
@pytest.mark.parametrize("at", ["compile_lowered", "deserialize"])
def test_an_interrupt_waits_for_xla(at, folder, world, monkeypatch):
    """A timer's exception comes once what XLA has made is stored or refused, and is not lost."""
    made = once(memory, *world)
    forget()
    if at != "deserialize":
        (path,) = folder.iterdir()
        path.unlink()
    original = getattr(jax_internals, at)

    def expired(number, frame):
        raise TimeoutError

    def interrupted(*how):
        signal.raise_signal(signal.SIGALRM)
        return original(*how)

    before = signal.signal(signal.SIGALRM, expired)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(jax_internals, at, interrupted)
            with pytest.raises(TimeoutError):
                once(memory, *world)
        assert signal.getsignal(signal.SIGALRM) is expired
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(list(folder.iterdir())) == 1
    no_trace(monkeypatch)
    same(once(memory, *world), made)


def test_another_release_of_jax_compiles_by_its_public_functions(folder, world, monkeypatch):
    """Where private names are gone the answer is the same, and only the kept program is lost."""
    made = once(memory, *world)

    def missing(*_):
        raise AttributeError("no such name")

    for name in ("_compile_with", "compile_lowered"):
        monkeypatch.setattr(jax_internals, name, missing)
        for path in folder.iterdir():
            path.unlink()
        forget()
        same(once(memory, *world), made)
    assert not list(folder.iterdir())


def test_a_program_depends_on_sources_settings_and_structure(folder, world, monkeypatch):
    asked = ["name", described(world)]
    before = store.key(asked)
    assert store.key(asked) == before
    assert store.key(["other", described(world)]) != before
    assert store.key(["name", described((*world, 1.0))]) != before
    with monkeypatch.context() as changed:
        changed.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        assert store.key(asked) != before
    with monkeypatch.context() as changed:
        changed.setattr(store, "_environment", lambda: ("other sources",))
        assert store.key(asked) != before
    with jax.enable_x64(not jax.config.read("jax_enable_x64")):
        assert store.key(asked) != before


def test_the_least_recently_used_go(tmp_path, monkeypatch):
    for i in range(5):
        (tmp_path / str(i)).write_bytes(b"x" * 10)
        os.utime(tmp_path / str(i), (i, i))
    # the last written stays
    for limit, most, left in (("FILES", 3, "234"), ("BYTES", 25, "34"), ("BYTES", 5, "4")):
        monkeypatch.setattr(store, f"MAX_{limit}", most)
        store.prune(tmp_path)
        assert {p.name for p in tmp_path.iterdir()} == {*left}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_estimator_has_a_name(name):
    """Else its commands would trace anew, in silence."""
    coefficients = ij.load_system("h100_sxm").coefficients
    tree = (ij.make(name, coefficients), ij.load_model("deepseek-v3").architecture)
    data = json.loads(json.dumps(described(tree)))
    assert data == described(tree)
    assert jax.tree.structure(rebuilt(data)) == jax.tree.structure(tree)


def test_what_has_no_name_is_refused():
    def local():
        pass

    for thing in (local, lambda: 0, np.sin, jnp.sin, int):
        with pytest.raises(UndescribableError):
            name_of(thing)
    assert name_of(decode_context) == "infer_jax.estimators.estimate:decode_context"
    with pytest.raises(UndescribableError):
        described({1: 2.0})
    for data in (
        {"named": "os:_Environ", "items": []},
        {"record": "infer_jax.catalog.files:Path", "fields": {}},
    ):
        with pytest.raises(UndescribableError):
            rebuilt(data)
