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
from infer_jax.results import Column, Notes, Section, table
from infer_jax.results.numbers import digits
from infer_jax.specs import outputs
from infer_jax.sweeps.paths import Point, grows, look, unit_of
from infer_jax.sweeps.reducers import Best
from infer_jax.verbs import codesign_picture, limits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TERMS = tuple(output.name for output in outputs(QualityEstimate))
ANSWERS = ("ttft", "tpot", "cost", "throughput")  # of the second estimator


class BeforeAfter(NamedTuple):
    """A line of a table: a number or a name at the start and in the design."""

    name: str
    before: object
    after: object
    unit: str = ""

    @property
    def ratio(self) -> str | None:
        """After over before, of two numbers."""
        if not (_is_number(self.before) and _is_number(self.after)) or not self.before:
            return None
        return f"{float(self.after) / float(self.before):.3f}"  # pyright: ignore


def _is_number(value: object) -> bool:
    numbers = isinstance(value, int | float | np.number | np.ndarray)
    return numbers and not isinstance(value, bool)


def _cell(value: object) -> str:
    return digits(float(value), 5) if _is_number(value) else str(value)  # pyright: ignore


CHANGES = (
    Column("start", "", "before", _cell, left=False),
    Column("design", "", "after", _cell, left=False),
    Column("ratio", "", "ratio", left=False),
)
FREE = (Column("free", "", "name", left=True), *CHANGES)
TERM = (Column("term", "", "name", left=True), Column("unit", "", "unit", left=True), *CHANGES)


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

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a term: the start's, the design's, the unit."""
        one, before = self.design, self.design.start_terms
        return [
            {"term": name, "unit": self._unit(name), "start": before[name], "design": value}
            for name, value in one.terms.items()
        ]

    def sections(self) -> Iterator[Section]:
        """The design, its terms beside the start's, the second estimator, the search, notes."""
        one, terms, start = self.design, self.design.terms, self.asked.start
        under = ", ".join(f"{k} {v:.6g}" for k, v in dict(self.keep.under).items()) or "none"
        yield ""
        yield f"Objective: {self.keep.by}; limits: {under}."
        yield {
            "objective": self.keep.by,
            "limits": dict(self.keep.under),
            "gain": one.gain,
            "start_keeps_limits": one.start_met,
            "design": self.values,
            "start": start,
            "terms": terms,
            "start_terms": one.start_terms,
            "units": {name: self._unit(name) for name in terms},
            "better": {name: grows(name, one.point, one.estimate) for name in terms},
            "second_estimator": None,
            "searched": one.counts | {"seconds": one.seconds},
            "config": self.config,
            "estimator": self.asked.names[0],
            "trust": [known.fields() for known in self.asked.trusted],
        }
        yield from (known.says for known in self.asked.trusted)
        if self.second is not None:
            yield from self._not_feasible(*self.second)
        yield table([BeforeAfter(k, start.get(k), x) for k, x in self.values.items()], FREE)
        yield ""
        names = [name for name in TERMS if name in terms]
        names += [name for name in terms if ".terms." in name or name.endswith(".need")]
        units = {name: self._unit(name) for name in names}
        yield table(
            [
                BeforeAfter(n, one.start_terms[n], terms[n], "" if units[n] == "1" else units[n])
                for n in names
            ],
            TERM,
        )
        if self.second is not None:
            before, after = ({**x.answers, "feasible": x.feasible} for x in self.second)
            yield ""
            yield "The same two under the second estimator"
            yield table([BeforeAfter(name, before[name], after[name]) for name in before], FREE)
        yield ""
        yield (
            f"{self.keep.by} is better by a factor of {one.gain:.3f}. "
            f"{one.counts['restarts']} restarts, {one.counts['gradients']:,} gradients, "
            f"{one.counts['lattice']:,} rounded designs, {one.seconds:.1f} s."
        )
        yield Notes(self.notes)

    def _not_feasible(self, start: SecondEstimate, design: SecondEstimate) -> Iterator[Section]:
        """Start and design under the second estimator, and the limits that they break."""
        name = self.asked.names[1]
        fields = {"name": name, "start": start.fields(), "design": design.fields()}
        yield {"second_estimator": fields}
        for which, second in (("design", design), ("start", start)):
            for text in second.broken:
                yield f"Not feasible by {name}, the second estimator: the {which}: {text}."

    def _unit(self, name: str) -> str:
        return unit_of(name, self.design.point, self.design.estimate)

    def _figure(self) -> "Figure":
        """The start and the design, and the search.

        Raises:
            InputError: nothing moved along gradients; see ``Result.plot``.
        """
        return codesign_picture.of_design(self)


@dataclass(frozen=True, repr=False)
class CodesignResult(Pictured):
    """The designs of a spec: one, or one for each value of a limit along a frontier.

    ``drawn``: the files of the pictures that were asked for.
    """

    designs: tuple[DesignResult, ...]
    drawn: tuple[str, ...] = ()

    def fields(self) -> Mapping[str, object]:
        """Of one design its own; of a frontier a list."""
        designs = [one.fields() for one in self.designs]
        drawn = {"picture": ", ".join(self.drawn)} if self.drawn else {}
        return {**(designs[0] if len(designs) == 1 else {"frontier": designs}), **drawn}

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a term of one design; of a frontier one row a design, with all its terms."""
        if len(self.designs) == 1:
            return self.designs[0].rows()
        return [
            {"limits": dict(one.keep.under), "gain": one.design.gain, **one.design.terms}
            for one in self.designs
        ]

    def sections(self) -> Iterator[Section]:
        """Every design after the other."""
        for one in self.designs:
            yield from one.parts()
        if self.drawn:
            yield Notes([f"Picture: {', '.join(self.drawn)}."])

    def _figure(self) -> "Figure":
        """The path to the design; of a frontier, the objective over the limit that varies."""
        first, *others = self.designs
        return codesign_picture.of_frontier(self.designs) if others else first._figure()


def second_estimates(
    asked: DesignSpec, design: Design, keep: Best
) -> tuple[SecondEstimate, SecondEstimate] | None:
    """The start and the design under the second estimator, where the spec names one."""
    if asked.second is None:
        return None
    start, end = (p._replace(estimator=asked.second) for p in (design.start, design.point))
    return _second(keep, start), _second(keep, end)


def _second(keep: Best, point: Point) -> SecondEstimate:
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
        more = grows(name, point, estimate)
        if value < limit if more else value > limit:
            word = "at least" if more else "at most"
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
