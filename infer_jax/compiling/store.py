"""The folder of compiled programs between processes: where it is, and what lies in it.

A file is one line of JSON (its own name, the structure of the answer with the places of the
arguments that the program reads, the digest of it all) and the program as XLA writes it. It lies
beside JAX's own compilation cache. Programs are machine code that is run, so only files that this
user alone can have written are read, from a folder of which the same is true; a file that is
damaged, renamed, or of other sources, versions or processors counts as absent. Other bytes that
take long to load are kept the same way under a name of their own, such as the script that draws a
page's charts.
"""

import hashlib
import json
import os
import platform
import stat
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import numpy as np

from infer_jax.compiling.jax_internals import JAXLIB_VERSION

FORMAT = "infer_jax program 3"
CONFIG: Any = jax.config  # whose fields type checkers do not know
_environment_lock = Lock()
MAX_FILES, MAX_BYTES = 256, 256_000_000  # in all: the least recently used go
HEAD_BYTES = 1_000_000  # of the line of JSON; those of the library have a tenth of it
# a link is not followed, and a pipe is opened without waiting for somebody to write into it
OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
OPEN |= getattr(os, "O_BINARY", 0)


def keep_programs(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep compiled programs in a folder, so that the next process need not compile them.

    Call it before anything is computed. The commands keep theirs in ``cache_folder()``, which is
    taken where no ``folder`` is given. It sets JAX's own compilation cache, for all that the
    process compiles, and silences JAX's log unless JAX_LOGGING_LEVEL is set, because XLA logs a
    harmless error for every program that it loads from the folder. Returns the folder, or
    None where none can be written.
    """
    chosen = _writable(Path(folder)) if folder is not None else cache_folder()
    if not os.environ.get("JAX_LOGGING_LEVEL"):
        jax.config.update("jax_logging_level", "CRITICAL")
    if chosen is not None:
        jax.config.update("jax_compilation_cache_dir", str(chosen))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return chosen


def cache_folder() -> Path | None:
    """The folder of compiled programs; None where no such folder can be written.

    $JAX_COMPILATION_CACHE_DIR, else ``infer_jax`` in the user's cache folder. That is made for the
    user alone, and not taken where others can write into it: what lies there is run.
    """
    try:
        chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
        if chosen:
            return _writable(Path(chosen))
        own = _writable(_user_cache() / "infer_jax")
        return own if own is not None and is_private(own.stat()) else None
    except (RuntimeError, OSError):  # no home folder
        return None


def _writable(folder: Path) -> Path | None:
    """The folder, made where it is absent; None where it cannot be written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if os.access(folder, os.W_OK | os.X_OK) else None
    except (OSError, ValueError):
        return None


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def programs_folder() -> Path | None:
    """``programs`` in the folder of JAX's compilation cache; None where there is none.

    None also where it is a link, or another user could have written into it.
    """
    chosen = CONFIG.jax_compilation_cache_dir
    if not chosen or not CONFIG.jax_enable_compilation_cache or "://" in chosen:
        return None
    directory = Path(chosen) / "programs"
    try:
        status = os.lstat(directory)
    except FileNotFoundError:
        return directory
    except OSError:
        return None
    return directory if stat.S_ISDIR(status.st_mode) and is_private(status) else None


def is_private(status: os.stat_result) -> bool:
    """Whether this user alone can have written a file or folder, by its owner and mode.

    True on systems without such owners, whose user folders have rights of their own.
    """
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def key(program: object) -> str:
    """The name of a program: of its description, and of all that its machine code depends on."""
    with _environment_lock:  # threads that begin together read the sources once
        environment = _environment()
    # settings of JAX, which tracing and compiling read, and flags of XLA
    other = ("jax_compilation_cache", "jax_persistent_cache", "jax_logging", "jax_platforms")
    settings = {name: repr(x) for name, x in CONFIG.values.items() if not name.startswith(other)}
    settings["x64"] = repr(CONFIG.jax_enable_x64)  # of this thread
    settings["flags"] = os.environ.get("XLA_FLAGS", "")
    text = json.dumps([program, settings, *environment], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def load(name: str) -> tuple[Any, bytes] | None:
    """((structure of the answer, places of the arguments), program), or None."""
    directory = programs_folder()
    if directory is None:
        return None
    path = directory / name
    try:
        first, _, program = _read(path).partition(b"\n")
        head = json.loads(first) if len(first) <= HEAD_BYTES else {}
        expected = FORMAT, name, _digest(name, head["answer"], program)
        if (head["format"], head["name"], head["digest"]) != expected:
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    with suppress(OSError):  # a file system that may only be read
        os.utime(path)  # used now
    return head["answer"], program


def _read(path: Path) -> bytes:
    """The bytes of a file of this user's, of a size that is kept here.

    Raises:
        OSError: it is absent, no plain file, another user's, or too large.
    """
    with os.fdopen(os.open(path, OPEN), "rb") as file:
        status = os.fstat(file.fileno())
        own = stat.S_ISREG(status.st_mode) and is_private(status)
        if not own or status.st_size > MAX_BYTES:
            raise OSError(f"{path} is no program of this user")
        return file.read(status.st_size)


def store(name: str, answer: object, program: bytes) -> None:
    """Store a program; where that cannot be done, nothing happens."""
    directory = programs_folder()
    if directory is None:
        return
    head = {"format": FORMAT, "answer": answer, "name": name}
    head["digest"] = _digest(name, answer, program)
    temporary = ""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=directory, prefix=".")
        with os.fdopen(handle, "wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + program)
        os.replace(temporary, directory / name)
        prune(directory)
    except OSError:  # a full disk, a folder that may not be written
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def prune(directory: Path) -> None:
    """Delete the least recently used files beyond ``MAX_FILES`` and ``MAX_BYTES``."""
    entries = [x for x in os.scandir(directory) if x.is_file(follow_symlinks=False)]
    files = [(entry.stat(follow_symlinks=False), Path(entry.path)) for entry in entries]
    files.sort(key=lambda file: -file[0].st_mtime_ns)
    total = 0
    for rank, (status, path) in enumerate(files):
        total += status.st_size
        if rank >= MAX_FILES or (rank and total > MAX_BYTES):
            path.unlink(missing_ok=True)


def _digest(name: str, answer: object, program: bytes) -> str:
    return hashlib.sha256(json.dumps([name, answer]).encode() + program).hexdigest()


@cache
def _environment() -> tuple[str, ...]:
    """Sources of the package, versions of what it stands on, the processor."""
    root, sources = str(Path(__file__).parents[1]), hashlib.sha256()
    for directory, inner, names in os.walk(root):
        inner.sort()
        for name in sorted(name for name in names if name.endswith(".py")):
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                code = file.read()
            sources.update(f"{path.removeprefix(root)} {len(code)}\n".encode() + code)
    client = jax.devices()[0].client
    versions = jax.__version__, JAXLIB_VERSION, np.__version__, platform.python_version()
    return (sources.hexdigest(), *versions, client.platform, client.platform_version, _processor())


def _processor() -> str:
    """The processor with its features: machine code is of one kind."""
    processor = platform.machine() + platform.processor()
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read(8192).split("\n\n")[0]
    except OSError:
        return processor
    facts = ("model name", "flags", "Features", "CPU part")
    return processor + "".join(line for line in first.splitlines() if line.startswith(facts))
