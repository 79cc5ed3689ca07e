"""Checks of the files that a verb writes, before anything is computed."""

import os
from importlib.util import find_spec
from pathlib import Path

from infer_jax.verbs.problems import refuse

KINDS = (".png", ".svg", ".pdf")


def check(
    out: str | os.PathLike[str],
    kinds: tuple[str, ...] = KINDS,
    otherwise: str = ", or --no-picture",
    option: str = "--out",
) -> None:
    """Refuse a name that no picture, or file of these kinds, can have, before computing.

    Raises:
        InputError: another suffix, a folder, or a folder that cannot be written.
    """
    path = Path(out)
    if path.suffix.lower() not in kinds:
        raise refuse(option, str(out), f"a name that ends in {', '.join(kinds)}")
    try:
        good = path.parent.is_dir() and os.access(path.parent, os.W_OK) and not path.is_dir()
    except (OSError, ValueError):  # a null byte, a name too long
        good = False
    if not good:
        raise refuse(option, str(out), f"a file in a folder that can be written{otherwise}")


def missing() -> str:
    """Why no picture can be drawn, or ""."""
    if find_spec("matplotlib") is None:
        return "No picture: matplotlib is not installed (pip install 'infer_jax[plots]')."
    return ""
