"""Where are the authors' runs, kernel tables and configs, where nobody says so?"""

from pathlib import Path
from typing import NamedTuple

from experiments._report import GOLDEN, SHARED
from infer_jax.errors import InputError


class Files(NamedTuple):
    """A CSV of runs, a folder of kernel tables in the authors' layout, one of NAME_config.json."""

    points: Path
    tables: Path
    configs: Path


DATA = SHARED / "data"
ALL = Files(
    SHARED / "golden" / "kernels_points.csv", DATA / "infersim_bench", DATA / "infersim_configs"
)
# the runs that the project carries: on devices without tables, of models with cited configs
CITED = Files(GOLDEN / "kernels_points.csv", GOLDEN / "infersim", GOLDEN / "infersim")


def stored(*given: Path | None) -> Files:
    """What was given; the rest from all the authors' files where they lie, else from the cited."""
    known = ALL if all(path.exists() for path in ALL) else CITED
    return Files(*(one or other for one, other in zip(given, known, strict=True)))


def measured(given: Path | None, option: str) -> Path:
    """The folder of ``--tables`` or ``--configs``, else that beside the checkout.

    Raises:
        InputError: neither is there.
    """
    folder = given or getattr(ALL, option.removeprefix("--"))
    if given is None and not folder.exists():
        raise InputError("command line", option, "missing", "a folder of the authors' files")
    return folder
