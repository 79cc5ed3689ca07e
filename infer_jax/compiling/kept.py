"""The folder of compiled programs kept between processes: names, contents and size.

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
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import numpy as np
from jaxlib import version as jaxlib_version

FORMAT = "infer_jax program 3"
CONFIG: Any = jax.config  # whose fields type checkers do not know
_asking = Lock()
MOST, MOST_BYTES = 256, 256_000_000  # files, and bytes in all: the least recently used go
HEAD_BYTES = 1_000_000  # of the line of JSON; those of the library have a tenth of it
# a link is not followed, and a pipe is opened without waiting for somebody to write into it
OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
OPEN |= getattr(os, "O_BINARY", 0)


def folder() -> Path | None:
    """``programs`` in the folder of JAX's compilation cache; None where there is none.

    None also where it is a link, or another user could have written into it.
    """
    chosen = CONFIG.jax_compilation_cache_dir
    if not chosen or not CONFIG.jax_enable_compilation_cache or "://" in chosen:
        return None
    place = Path(chosen) / "programs"
    try:
        about = os.lstat(place)
    except FileNotFoundError:
        return place
    except OSError:
        return None
    return place if stat.S_ISDIR(about.st_mode) and is_private(about) else None


def is_private(about: os.stat_result) -> bool:
    """Whether this user alone can have written a file or folder, by its owner and mode.

    True on systems without such owners, whose user folders have rights of their own.
    """
    if not hasattr(os, "getuid"):
        return True
    return about.st_uid == os.getuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def key(asked: object) -> str:
    """The name of a program: of the question, and of all that its machine code depends on."""
    with _asking:  # threads that begin together read the sources once
        world = _world()
    text = json.dumps([asked, _settings(), *world], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def load(name: str) -> tuple[Any, bytes] | None:
    """((structure of the answer, places of the arguments), program), or None."""
    place = folder()
    if place is None:
        return None
    path = place / name
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
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or not is_private(about) or about.st_size > MOST_BYTES:
            raise OSError(f"{path} is no program of this user")
        return file.read()


def store(name: str, answer: object, program: bytes) -> None:
    """Keep a program; in silence where that cannot be done."""
    place = folder()
    if place is None:
        return
    head = {"format": FORMAT, "answer": answer, "name": name}
    head["digest"] = _digest(name, answer, program)
    temporary = ""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place, prefix=".")
        with os.fdopen(handle, "wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + program)
        os.replace(temporary, place / name)
        prune(place)
    except OSError:  # a full disk, a folder that may not be written
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def prune(place: Path) -> None:
    """Delete the least recently used files beyond ``MOST`` and ``MOST_BYTES``."""
    entries = [x for x in os.scandir(place) if x.is_file(follow_symlinks=False)]
    seen = [(entry.stat(follow_symlinks=False), Path(entry.path)) for entry in entries]
    seen.sort(key=lambda each: -each[0].st_mtime_ns)
    held = 0
    for rank, (about, path) in enumerate(seen):
        held += about.st_size
        if rank >= MOST or (rank and held > MOST_BYTES):
            path.unlink(missing_ok=True)


def _digest(name: str, answer: object, program: bytes) -> str:
    return hashlib.sha256(json.dumps([name, answer]).encode() + program).hexdigest()


def _settings() -> dict[str, str]:
    """What is set in JAX, whose tracing and compiling read it, and the flags of XLA."""
    place = ("jax_compilation_cache", "jax_persistent_cache", "jax_logging", "jax_platforms")
    held = {name: repr(x) for name, x in CONFIG.values.items() if not name.startswith(place)}
    x64 = repr(CONFIG.jax_enable_x64)  # of this thread
    return {**held, "x64": x64, "flags": os.environ.get("XLA_FLAGS", "")}


@cache
def _world() -> tuple[str, ...]:
    """Sources of the package, versions of what it stands on, the processor."""
    root, sources = str(Path(__file__).parents[1]), hashlib.sha256()
    for place, inner, names in os.walk(root):
        inner.sort()
        for name in sorted(name for name in names if name.endswith(".py")):
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                code = file.read()
            sources.update(f"{path.removeprefix(root)} {len(code)}\n".encode() + code)
    client = jax.devices()[0].client
    versions = (
        jax.__version__,
        jaxlib_version.__version__,
        np.__version__,
        platform.python_version(),
    )
    return (sources.hexdigest(), *versions, client.platform, client.platform_version, _processor())


def _processor() -> str:
    """The processor with its features: machine code is of one kind."""
    processor = platform.machine() + platform.processor()
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read(8192).split("\n\n")[0]
    except OSError:
        return processor
    kept = ("model name", "flags", "Features", "CPU part")
    return processor + "".join(line for line in first.splitlines() if line.startswith(kept))
