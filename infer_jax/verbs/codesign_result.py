"""The result of ``codesign``: the design beside its start, in every term."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infer_jax.design.ascent import KEPT
from infer_jax.design.design import Design
from infer_jax.design.quality_wrapper import QualityEstimate
from infer_jax.design.sensitivity import known_outputs
from infer_jax.design.toml import DesignSpec
from infer_jax.design.violations import estimate_of
from infer_jax.errors import InputError
from infer_jax.estimators import Estimate
from infer_jax.plots.pictured import Pictured, dated
from infer_jax.results import Column, Notes, Part, Table
from infer_jax.results.numbers import digits
from infer_jax.specs import outputs
from infer_jax.sweeps.best import Best
from infer_jax.sweeps.paths import Point, grows, look, unit_of
from infer_jax.verbs import limits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from infer_jax.plots.path import Change, Track

TERMS = tuple(output.name for output in outputs(QualityEstimate))
ANSWERS = ("ttft", "tpot", "cost", "throughput")  # of the second estimator
# what is drawn of start and design: its words, unit, and what of the SI unit that is
DRAWN = {
    "cost": ("output tokens", "$/Mtok", 1.0),
    "tpot": ("time per output token", "ms", 1e3),
    "ttft": ("time to first token", "ms", 1e3),
    "throughput": ("throughput per GPU", "tokens/s", 1.0),
    "parameters": ("parameters", "billion", 1e-9),
    "active": ("active parameters", "billion", 1e-9),
    "kv_bytes": ("KV cache of a token", "kB", 1e-3),
    "loss": ("predicted loss", "nats", 1.0),
    "lifetime": ("training and serving", "million $", 1e-6),
}
CAPTION = (
    "Below: all restarts, relaxed (no steps, kinks smoothed where the estimator can); a thin line "
    "breaks a limit. The design is rounded and priced by the exact model."
)


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
        """All restarts by step, and where the numbers of the best one went.

        Raises:
            InputError: nothing moved along gradients; see ``Result.plot``.
        """
        if not self.design.paths:
            raise InputError("plot", "paths", "none", "a design with numbers that move")
        from infer_jax.plots.path import plot_path
        from infer_jax.plots.style import words

        track, one = track_of(self.design), self.design
        title = words(f"{self.asked.model} redesigned: {self.keep.by} {one.gain:.3g} times better")
        work = one.point.workload
        under = ", ".join(_limit(name, x) for name, x in dict(self.keep.under).items())
        formats = ", ".join(dict.fromkeys(self.asked.formats.values()))
        price = float(one.point.hardware.price)
        caption = (
            f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out; "
            f"{formats + '; ' if formats else ''}{self.asked.system}, ${price:g} an "
            f"hour and GPU; {'limits: ' + under if under else 'no limits'}; "
            f"estimator {self.asked.names[0]}. {CAPTION}"
        )
        said = words(dated(caption))
        return plot_path(track, changes=self._changes(), title=title, caption=said)

    def _changes(self) -> "dict[str, list[Change]]":
        """The numbers that are free, and what the design brings, beside the start's."""
        from infer_jax.plots.names import named
        from infer_jax.plots.path import Change

        start, one = self.asked.start, self.design
        free = [
            Change(named(path), float(start[path]), float(value))
            for path, value in self.values.items()
            if isinstance(value, int | float | np.number) and path in start
        ]
        before, after = one.start_terms, one.terms
        dense = after.get("active") == after.get("parameters")
        brings = [
            Change(said, factor * before[name], factor * after[name], unit)
            for name, (said, unit, factor) in DRAWN.items()
            if name in after and not (name == "active" and dense)
        ]
        return {"what changed": free, "what it brings": brings}

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
    """The designs of a spec: one, or one for each value of a limit along a frontier."""

    designs: tuple[DesignResult, ...]

    def fields(self) -> Mapping[str, object]:
        """Of one design its own; of a frontier a list."""
        every = [one.fields() for one in self.designs]
        return every[0] if len(every) == 1 else {"frontier": every}

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

    def _figure(self) -> "Figure":
        """The path to the design; of a frontier, ``designs[i].plot()``."""
        first, *others = self.designs
        if others:
            many = f"{len(self.designs)} designs"
            raise InputError("plot", "designs", many, "designs[i].plot() of one of them")
        return first._figure()


def track_of(design: Design) -> "Track":
    """The last of a design's paths as ``plots.path`` draws it."""
    from infer_jax.plots.path import Track

    path, unit = design.paths[-1], unit_of(design.by, design.point, design.estimate)
    winner = int(path.ends[0])
    return Track(
        objective=np.exp(path.objective * design.sign),
        kept=path.excess <= KEPT,
        winner=winner,
        values=path.values[:, winner],
        names=design.moving,
        start=design.start_objective if design.start_met else None,
        final=design.objective,
        label=design.by if unit in ("", "1") else f"{design.by} ({unit})",
    )


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


def _limit(name: str, value: float) -> str:
    """A limit in the words and unit of its output; by its name where it is none."""
    output = known_outputs().get(name)
    if output is None:
        return f"{name} {value:g}"
    unit = "" if output.printed_unit == "1" else f" {output.printed_unit}"
    return f"{output.short or output.title} {output.factor * value:g}{unit}"


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
