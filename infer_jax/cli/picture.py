"""Where does the picture of a frontier go, and what if it cannot be drawn?"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from infer_jax.cli.options import refuse

if TYPE_CHECKING:
    from infer_jax.sweeps import Grid

DEFAULT = "frontier.png"
KINDS = (".png", ".svg", ".pdf")


def check(out: str, kinds: tuple[str, ...] = KINDS, otherwise: str = ", or --no-picture") -> None:
    """Refuse a name that no picture, or file of these kinds, can have, before computing.

    Raises:
        InputError: another suffix, a folder, or a folder that cannot be written.
    """
    path = Path(out)
    if path.suffix.lower() not in kinds:
        raise refuse("--out", out, f"a name that ends in {', '.join(kinds)}")
    try:
        good = path.parent.is_dir() and os.access(path.parent, os.W_OK) and not path.is_dir()
    except (OSError, ValueError):  # a null byte, a name too long
        good = False
    if not good:
        raise refuse("--out", out, f"a file in a folder that can be written{otherwise}")


def missing() -> str:
    """Why no picture can be drawn, or ""."""
    if find_spec("matplotlib") is None:
        return "No picture: matplotlib is not installed (pip install 'infer_jax[plots]')."
    return ""


def draw(
    front: "Grid", chosen: int, out: str, title: str, label: str, caption: str, said: str
) -> tuple[str | None, str]:
    """Save the picture of a frontier: (its path or None, a sentence about it).

    ``said``: what the chosen row is, beside its mark.

    Raises:
        InputError: the place cannot be written.
    """
    if missing():
        return None, missing()
    from infer_jax.plots import Curve, plot_frontier
    from infer_jax.plots.style import words

    curve = {words(label): Curve(front, chosen, words(said))}
    plot_frontier(curve, out, title=words(title), caption=words(caption))
    return out, f"Picture: {out}."
