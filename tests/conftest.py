"""What every test starts from: 64-bit numbers unless INFER_JAX_X64 is 0, and fixed examples.

Compiled programs are kept for all processes of a run, and for the next one: in
$JAX_COMPILATION_CACHE_DIR, else in pytest's own cache folder (``pytest --cache-clear`` empties it).
"""

import gc
import os
import tempfile
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from itertools import count
from typing import Any

import jax
import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")


def pytest_addoption(parser):
    """``--rewrite`` brings what pages print up to date (tests/installed/test_pages.py)."""
    parser.addoption("--rewrite", action="store_true", help="write what commands print into pages")


def pytest_configure(config):
    """Keep every program, however quickly it was compiled; processes that tests start do, too.

    Traces are many objects that stay: searching them all for garbage takes an eighth of a run, so
    that it is searched between files alone, where memory has grown.
    """
    gc.disable()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = getattr(config, "cache", None)  # none with `-p no:cacheprovider`
        folder = cache.mkdir("programs") if cache else tempfile.mkdtemp(prefix="programs")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_sessionstart():
    """What JAX does for every program and need not here; a release that names it otherwise does.

    ``jnp.where`` is a part of what calls it, not a function of its own: XLA puts it there in any
    case; until then it is a twelfth of tracing and compiling. ``LOWERED`` programs share a context
    of MLIR: making and ending one takes 4 of the 5 ms in which a small program is lowered.
    """
    with suppress(AttributeError, ImportError):
        names = ("util", "reductions", "ufuncs")
        modules: list[Any] = [import_module(f"jax._src.numpy.{name}") for name in names]
        inline = jax.jit(modules[0]._where.__wrapped__, inline=True)
        for module in modules:
            module._where = inline
    with suppress(AttributeError, ImportError):
        mlir: Any = import_module("jax._src.interpreters.mlir")
        numbers, make, context = count(), mlir.make_ir_context, mlir.ir.Context
        shared = lru_cache(maxsize=1)(lambda _: make())

        def make_context() -> Any:
            # a program that the lowering of another one needs must not stand in that
            return make() if context.current else shared(next(numbers) // LOWERED)

        mlir.make_ir_context = make_context


LOWERED = 200  # a context holds the constants of all its programs


def pytest_sessionfinish():
    """A process that ends is not searched for garbage: a second of each million objects, twice."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _wide_numbers():
    """Tests compare with references in float64; INFER_JAX_X64=0 runs them in float32."""
    jax.config.update("jax_enable_x64", os.environ.get("INFER_JAX_X64", "1") != "0")


@pytest.fixture(autouse=True, scope="session")
def _compiled_quickly():
    """A program of a test has few rows: what optimising it would save is less than it takes."""
    from infer_jax.compiling import QUICK, programs

    programs.BRISK = QUICK


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Where tests run side by side, those of one file and estimator stay in one process.

    It keeps what it compiled for them, also for variants of that estimator that are of the same
    structure. (With pytest 9.2 pytest-xdist 3.8 reads no groups itself.)
    """
    from xdist.scheduler import LoadScopeScheduling

    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = group
    return scheduling


TOGETHER = ("tests/cli/report",)  # folders whose files share fixtures that take seconds


def group(nodeid: str) -> str:
    """The file of a test, or its folder; and in contracts the family of the estimator it is of."""
    from tests.contract.cases import ESTIMATORS, JOBS

    file, _, rest = nodeid.partition("::")
    folder = file.rpartition("/")[0]
    file = folder if folder in TOGETHER else file
    values = rest.partition("[")[2].rstrip("]").split("-") if "/contract/" in file else ()
    named = [value.partition(".")[0] for value in values if value in {**ESTIMATORS, **JOBS}]
    return " ".join([file, *named[:1]])


@pytest.fixture(autouse=True, scope="session")
def _every_program():
    """The folder holds what a user's commands need: tests have more programs, and none may go."""
    from infer_jax.compiling import store

    store.MAX_FILES, store.MAX_BYTES = 100_000, 100_000_000_000


MOST_PIECES = 50_000  # of memory: Linux gives a process 65,530 (vm.max_map_count)
GROWN = 4 << 30  # bytes: a search goes through millions of objects and gives little back


@pytest.fixture(autouse=True, scope="module")
def _room_for_programs():
    """Compiled programs take pieces of memory, a test process tens of thousands in all.

    Beyond ``MOST_PIECES`` all are let go after a file; the next ones load what they need. What is
    garbage goes where memory has grown by ``GROWN``; what stays then is not searched again.
    """
    yield
    if pieces_of_memory() > MOST_PIECES:
        from infer_jax.compiling import programs

        programs._programs.clear()
        jax.clear_caches()
    if resident() > _resident[-1] + GROWN:
        gc.collect()
        gc.freeze()
        _resident.append(resident())


_resident = [0]  # bytes of memory after each search for garbage


def resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as sizes:
            return int(sizes.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def pieces_of_memory() -> int:
    """Mappings of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            return sum(1 for _ in maps)
    except OSError:
        return 0


@pytest.fixture
def x64():
    """For tests that make no sense in float32."""
    if not jax.config.read("jax_enable_x64"):
        pytest.skip("needs 64-bit numbers, which INFER_JAX_X64=0 turned off")
