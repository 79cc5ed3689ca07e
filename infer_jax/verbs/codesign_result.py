"""The result of ``codesign``: the design beside its start, in every term."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infer_jax.design.design import Design
from infer_jax.design.quality_wrapper import QualityEstimate
from infer_jax.design.toml import DesignSpec
from infer_jax.design.violations import estimate_of
from infer_jax.errors import InputError
from infer_jax.estimators import Estimate
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Column, Notes, Part, Table
from infer_jax.results.numbers import digits
from infer_jax.specs import outputs
from infer_jax.sweeps.paths import Point, grows, look, unit_of
from infer_jax.sweeps.reducers import Best
from infer_jax.verbs import codesign_picture, limits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TERMS = tuple(output.name for output in outputs(QualityEstimate))
ANSWERS = ("ttft", "tpot", "cost", "throughput")  # of the second estimator


class SecondEstimate(NamedTuple):
    """A point under the second estimator: its answers, and the limits that it breaks."""

    answers: dict[str, float]
    broken: list[str]
    feasible: bool

    def fields(self) -> dict[str, object]:
        """For JSON."""
        return {**self.answers, "broken": self.broken, "feasible": self.feasible}


@dataclass(frozen=True, repr=False)
class DesignResult(Pictured):
    """One design: its numbers, every term beside the start's, and both under a second estimator.

    ``second`` has start and design under that estimator, None where the spec names none;
    ``config`` is the design as a Hugging Face config.json, where it can be one.
    """

    asked: DesignSpec
    design: Design
    keep: Best
    second: tuple[SecondEstimate, SecondEstimate] | None
    config: Mapping[str, object] | None
    notes: tuple[str, ...]

    @property
    def values(self) -> dict[str, object]:
        """The numbers and names that the design is made of, by their paths."""
        return {k: v for k, v in self.design.values.items() if "vectors" not in k}

    def fields(self) -> Mapping[str, object]:
        """Terms in SI units, which stand beside them."""
        one, terms = self.design, self.design.terms
        second = None
        if self.second is not None:
            start, design = (priced.fields() for priced in self.second)
            second = {"name": self.asked.names[1], "start": start, "design": design}
        return {
            "objective": self.keep.by,
            "limits": dict(self.keep.under),
            "gain": one.gain,
            "start_keeps_limits": one.start_met,
            "design": self.values,
            "start": self.asked.start,
            "terms": terms,
            "start_terms": one.start_terms,
            "units": {name: unit_of(name, one.point, one.estimate) for name in terms},
            "better": {name: grows(name, one.point, one.estimate) for name in terms},
            "second_estimator": second,
            "searched": one.counts | {"seconds": one.seconds},
            "config": self.config,
            "estimator": self.asked.names[0],
            "trust": [known.fields() for known in self.asked.trusted],
            "notes": list(self.notes),
        }

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a term: the start's, the design's, the unit."""
        one, before = self.design, self.design.start_terms
        return [
            {
                "term": name,
                "unit": unit_of(name, one.point, one.estimate),
                "start": before[name],
                "design": value,
            }
            for name, value in one.terms.items()
        ]

    def parts(self) -> Iterator[Part]:
        """The design, its terms beside the start's, the second estimator, the search, notes."""
        under = ", ".join(f"{k} {v:.6g}" for k, v in dict(self.keep.under).items()) or "none"
        yield ""
        yield f"Objective: {self.keep.by}; limits: {under}."
        for known in self.asked.trusted:
            yield known.says
        if self.second is not None:
            for which, priced in zip(("design", "start"), reversed(self.second), strict=True):
                for text in priced.broken:
                    name = self.asked.names[1]
                    yield f"Not feasible by {name}, the second estimator: the {which}: {text}."
        start = self.asked.start
        rows = [(name, start.get(name), value) for name, value in self.values.items()]
        yield Table(_columns("free"), [_row(*row) for row in rows])
        yield ""
        yield self._terms()
        if self.second is not None:
            yield ""
            yield "The same two under the second estimator"
            yield _beside(*self.second)
        one = self.design
        yield ""
        yield (
            f"{self.keep.by} is better by a factor of {one.gain:.3f}. "
            f"{one.counts['restarts']} restarts, {one.counts['gradients']:,} gradients, "
            f"{one.counts['lattice']:,} rounded designs, {one.seconds:.1f} s."
        )
        yield Notes(self.notes)

    def _figure(self) -> "Figure":
        """The start and the design, and the search.

        Raises:
            InputError: nothing moved along gradients; see ``Result.plot``.
        """
        return codesign_picture.of_design(self)

    def _terms(self) -> Table:
        now, before = self.design.terms, self.design.start_terms
        named = [n for n in TERMS if n in now]
        named += [n for n in now if ".terms." in n or n.endswith(".need")]
        rows = []
        for name in named:
            unit = unit_of(name, self.design.point, self.design.estimate)
            term, *cells = _row(name, before[name], now[name])
            rows.append([term, "" if unit == "1" else unit, *cells])
        first, *others = _columns("term")
        return Table([first, Column("unit", left=True), *others], rows)


@dataclass(frozen=True, repr=False)
class CodesignResult(Pictured):
    """The designs of a spec: one, or one for each value of a limit along a frontier.

    ``drawn``: the files of the pictures that were asked for.
    """

    designs: tuple[DesignResult, ...]
    drawn: tuple[str, ...] = ()

    def fields(self) -> Mapping[str, object]:
        """Of one design its own; of a frontier a list."""
        every = [one.fields() for one in self.designs]
        drawn = {"picture": ", ".join(self.drawn)} if self.drawn else {}
        return {**(every[0] if len(every) == 1 else {"frontier": every}), **drawn}

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a term of one design; of a frontier one row a design, with all its terms."""
        if len(self.designs) == 1:
            return self.designs[0].rows()
        return [
            {"limits": dict(one.keep.under), "gain": one.design.gain, **one.design.terms}
            for one in self.designs
        ]

    def parts(self) -> Iterator[Part]:
        """Every design after the other."""
        for one in self.designs:
            yield from one.parts()
        if self.drawn:
            yield Notes([f"Picture: {', '.join(self.drawn)}."])

    def _figure(self) -> "Figure":
        """The path to the design; of a frontier, the objective over the limit that varies."""
        first, *others = self.designs
        return codesign_picture.of_frontier(self.designs) if others else first._figure()


def priced(
    asked: DesignSpec, design: Design, keep: Best
) -> tuple[SecondEstimate, SecondEstimate] | None:
    """The start and the design under the second estimator, where the spec names one."""
    if asked.second is None:
        return None
    start, end = (p._replace(estimator=asked.second) for p in (design.start, design.point))
    return _priced(keep, start), _priced(keep, end)


def _priced(keep: Best, point: Point) -> SecondEstimate:
    estimate = estimate_of(point)
    broken = _broken(keep, point, estimate)
    answers = {name: float(getattr(estimate, name)) for name in ANSWERS}
    return SecondEstimate(answers, broken, bool(estimate.feasible) and not broken)


def _broken(keep: Best, point: Point, estimate: Estimate) -> list[str]:
    """The limits that a point breaks: those asked for, and those of its estimator."""
    broken = []
    for name, limit in dict(keep.under).items():
        try:
            value = float(look(name, point, estimate))
        except (AttributeError, InputError):  # a term of the first estimator alone
            continue
        least = grows(name, point, estimate)
        if value < limit if least else value > limit:
            word = "at least" if least else "at most"
            broken.append(f"{name} is {value:.4g}, asked for {word} {limit:.4g}")
    for title, phase in (("prefill", estimate.prefill), ("decode", estimate.decode)):
        for name, limit in phase.limits.items():
            text = limits.broken(name, limit)
            if float(limit.need) > float(limit.capacity) and text not in " ".join(broken):
                broken.append(f"{title}: {text}")
    return broken


def folder_of(out: str | os.PathLike[str]) -> Path:
    """The folder to write to, made where it is not there.

    Raises:
        InputError: it cannot be made.
    """
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), "--out", error.strerror, "a folder to write to") from None
    return folder


def _columns(first: str) -> list[Column]:
    return [Column(first, left=True), *map(Column, ("start", "design", "ratio"))]


def _row(name: str, before: object, after: object) -> list[str]:
    return [name, _cell(before), _cell(after), _ratio(before, after)]


def _beside(start: SecondEstimate, design: SecondEstimate) -> Table:
    """The answers of both, and whether they are feasible."""
    before = {**start.answers, "feasible": start.feasible}
    after = {**design.answers, "feasible": design.feasible}
    return Table(_columns("free"), [_row(name, before[name], after[name]) for name in before])


def _cell(value: object) -> str:
    if isinstance(value, int | float | np.number | np.ndarray) and not isinstance(value, bool):
        return digits(float(value), 5)
    return "" if value is None else str(value)


def _ratio(before: object, after: object) -> str:
    numbers = []
    for value in (before, after):
        if not isinstance(value, int | float | np.number | np.ndarray) or isinstance(value, bool):
            return ""
        numbers.append(float(value))
    return f"{numbers[1] / numbers[0]:.3f}" if numbers[0] else ""
