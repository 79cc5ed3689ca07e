"""Checks of the files that a verb writes, and what captions of pictures say."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from infer_jax.catalog import System
from infer_jax.catalog.files import takes_file
from infer_jax.estimators import Estimator, Trust
from infer_jax.plots.plan_chart import PlanChart
from infer_jax.plots.rendering import KINDS, FigureResult, facts_caption, picture_endings, rent
from infer_jax.results import option
from infer_jax.results.numbers import count
from infer_jax.results.problems import refuse
from infer_jax.specs import Hardware, Workload
from infer_jax.verbs.inputs import HardwareLike, Setup

Place = str | os.PathLike[str]
Names = Place | Sequence[Place]  # of files


def check(
    out: Place, kinds: Sequence[str] = KINDS, *, page: bool = False, unasked: bool = False
) -> None:
    """Check, before computing, that a picture or file of these kinds can be written there.

    ``page``: an .html file is a page of charts, which needs packages of its own; ``unasked``: it is
    written where nobody asks for it, but not where matplotlib is missing.

    Raises:
        InputError: another suffix, a folder, or a folder that cannot be written; a package is not
            installed.
    """
    ending = Path(out).suffix.lower()
    if ending not in kinds:
        raise refuse("out", str(out), picture_endings(kinds))
    if not takes_file(out):
        otherwise = f", or {option('no_picture')}" if unasked else ""
        raise refuse("out", str(out), f"a file in a folder that can be written{otherwise}")
    if page and ending == ".html":
        from infer_jax.pages import vega  # which needs packages that pictures do not

        vega.check()
    elif not unasked and ending in KINDS and (lacking := missing()):
        raise refuse("out", str(out), lacking)


def split(
    out: Names | None, data: str, is_data: Callable[[str], bool]
) -> tuple[str | None, tuple[str, ...]]:
    """The file of the answer's data among the names of ``out``, and those of its pictures.

    ``data``: what the former ends in, in words; ``is_data``: whether a name is of that kind. All
    pictures are checked, before anything is computed.

    Raises:
        InputError: a name of neither kind, two of data, a picture that cannot be written.
    """
    if out is None:
        return None, ()
    names = [os.fspath(x) for x in ([out] if isinstance(out, str | os.PathLike) else out)]
    drawn = tuple(name for name in names if Path(name).suffix.lower() in KINDS)
    rest = [name for name in names if name not in drawn]
    allowed = f"{data}, or for a picture {picture_endings()}"
    for name in rest:
        if not is_data(name):
            raise refuse("out", name, allowed)
    if len(rest) > 1:
        raise refuse("out", rest[1], f"a second picture alone: {picture_endings()}")
    for name in drawn:
        check(name)
    return (rest[0] if rest else None), drawn


def check_profile(path: Path, hardware: HardwareLike, start: Estimator) -> None:
    """Check, before anything is computed, that the profile can be written.

    Raises:
        InputError: a file that cannot be written, or the profile that the fit starts from; an
            estimator whose coefficients stand in no table of a profile.
    """
    allowed = ""
    if not takes_file(path):
        allowed = "a .toml file in a folder that can be written"
    elif isinstance(hardware, Hardware):
        allowed = "with a system by name or file, over whose profile the new one stands"
    elif not start.table:
        allowed = "with an estimator that has a table of a profile"
    else:
        base = hardware.path if isinstance(hardware, System) else Path(hardware)
        if base.exists() and path.exists() and path.samefile(base):
            allowed = f"another file than {option('hardware')}, which it starts from"
    if allowed:
        raise refuse("out", str(path), allowed)


def missing() -> str:
    """Why no picture can be drawn, or ""."""
    if find_spec("matplotlib") is None:
        return "No picture: matplotlib is not installed (pip install 'infer_jax[plots]')."
    return ""


def caption(setup: Setup | Sequence[Setup], work: Workload | None, name: str, *more: str) -> str:
    """The facts below a picture: lengths, format, price, estimator, ``more``, and the date."""
    every = [setup] if isinstance(setup, Setup) else setup
    formats = ", ".join(dict.fromkeys(one.model.quantisation for one in every))
    by = f"estimator{'s' * (' and ' in name)} {name}" if name else ""
    return facts_caption((lengths(work), formats, rents(every), by), *more)


def lengths(work: Workload | None) -> str:
    """Tokens in and out, in words."""
    return "" if work is None else f"{count(work.isl)} tokens in, {count(work.osl)} out"


@dataclass(frozen=True, repr=False)
class EstimatorResult(FigureResult):
    """An answer of an estimator about a model on a system, with how far it is trusted."""

    setup: Setup
    estimator: str
    trust: Trust

    @property
    def names(self) -> dict[str, object]:
        """What was asked of which estimator, for JSON."""
        return {**self.setup.names, "estimator": self.estimator, "trust": self.trust.fields()}

    def caption(self, work: Workload | None, *more: str) -> str:
        """The facts below the picture of the answer."""
        return caption(self.setup, work, self.estimator, *more)


def brief(formats: str) -> str:
    """The format of the matrices alone, in a word.

    >>> brief("fp8 (1 byte, 8-bit products); the rest bfloat16; KV cache bfloat16")
    'fp8'
    """
    return formats.partition(";")[0].partition(" (")[0]


def rents(every: Sequence[Setup]) -> str:
    """The rent of a GPU of each system, in words."""
    return rent({one.system.name: float(one.hardware.price) for one in every})


def plans_title(model: str, systems: Sequence[str]) -> str:
    """The title of a chart of plans."""
    where = ", ".join(dict.fromkeys(systems))
    return f"{model} on {where}: speed of a request against cost"


def plans_caption(
    chart: PlanChart, work: Workload, formats: Iterable[str], rents: str, estimator: str, *more: str
) -> str:
    """The facts below a chart of plans, ``more`` after the lengths, and what its marks are."""
    weights = f"weights in {'; '.join(dict.fromkeys(map(brief, formats)))}"
    ends = "The shading ends at the speed that slow servers reach." * bool(chart.band())
    facts = (lengths(work), *more, weights, rents, f"estimator {estimator}")
    return facts_caption(facts, chart.marks(), ends)
