"""Where compiled programs are kept, and how a process begins to keep them."""

import os
import sys
from pathlib import Path

import jax

from infer_jax.compiling.kept import is_private


def keep_programs(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep compiled programs in a folder, so that the next process need not compile them.

    Call it before anything is computed. The commands keep theirs in ``cache_folder()``, which is
    taken where no ``folder`` is given. It sets JAX's own compilation cache, for all that the
    process compiles, and silences JAX's log unless JAX_LOGGING_LEVEL is set, because XLA logs a
    harmless error for every program that it loads from the folder. Returns the folder, or
    None where none can be written.
    """
    place = _writable(Path(folder)) if folder is not None else cache_folder()
    if not os.environ.get("JAX_LOGGING_LEVEL"):
        jax.config.update("jax_logging_level", "CRITICAL")
    if place is not None:
        jax.config.update("jax_compilation_cache_dir", str(place))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return place


def cache_folder() -> Path | None:
    """The folder of compiled programs; None where no such folder can be written.

    $JAX_COMPILATION_CACHE_DIR, else ``infer_jax`` in the user's cache folder. That is made for the
    user alone, and not taken where others can write into it: what lies there is run.
    """
    try:
        chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
        if chosen:
            return _writable(Path(chosen))
        place = _writable(_user_cache() / "infer_jax")
        return place if place is not None and is_private(place.stat()) else None
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
