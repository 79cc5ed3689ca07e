"""Checks of the files that a verb writes, and what captions of pictures say."""

import os
from importlib.util import find_spec
from pathlib import Path

from infer_jax.specs import Workload
from infer_jax.verbs.inputs import Given
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


def caption(asked: Given, work: Workload | None, estimator: str, *more: str) -> str:
    """What stands below a picture: lengths, the format of the model, the estimator, and more."""
    from infer_jax.plots.style import words

    lengths = []
    if work is not None:
        lengths.append(f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out")
    by = "estimators" if " and " in estimator else "estimator"
    formats = asked.model.quantisation
    said = "; ".join([*lengths, *([formats] if formats else []), f"{by} {estimator}"])
    return words(" ".join([f"{said}.", *more]))
