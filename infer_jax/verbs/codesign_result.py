"""The result of ``codesign``: the design beside its start, in every term."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from infer_jax.design.design import Design
from infer_jax.design.problem import estimate_of
from infer_jax.design.quality_wrapper import QualityEstimate
from infer_jax.design.toml import DesignSpec
from infer_jax.errors import InputError
from infer_jax.plots.rendering import FigureResult
from infer_jax.results import Column, Notes, Rows, Section, table
from infer_jax.results.numbers import digits
from infer_jax.specs import outputs
from infer_jax.sweeps.paths import Point, grows, look, unit_of
from infer_jax.sweeps.reducers import Best
from infer_jax.verbs import codesign_figure as figures, limits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TERMS = tuple(output.name for output in outputs(QualityEstimate))
ANSWERS = ("ttft", "tpot", "cost", "throughput")  # of the second estimator
Row = Mapping[str, Any]


def _is_number(value: object) -> bool:
    numbers = isinstance(value, int | float | np.number | np.ndarray)
    return numbers and not isinstance(value, bool)


def _cell(value: Any) -> str:
    return digits(float(value), 5) if _is_number(value) else str(value)


def _ratio(row: Row) -> str | None:
    start, design = row["start"], row["design"]
    if not (_is_number(start) and _is_number(design)) or not start:
        return None
    return f"{float(design) / float(start):.3f}"


CHANGES = (
    Column("start", "", "start", _cell, left=False),
    Column("design", "", "design", _cell, left=False),
    Column("ratio", "", _ratio, left=False),
)
FREE = (Column("free", "", "name", left=True), *CHANGES)
UNIT = Column("unit", "", "unit", lambda unit: "" if unit == "1" else unit, left=True)
TERM = (Column("term", "", "term", left=True), UNIT, *CHANGES)


def _rows(start: Row, design: Row) -> list[Row]:
    return [{"name": name, "start": start.get(name), "design": x} for name, x in design.items()]


@dataclass(frozen=True, repr=False)
class DesignResult(FigureResult):
    """One design: its numbers, every term beside the start's, and both under a second estimator.

    ``second``: that estimator's name and, of "start" and "design", its answers, whether they are
    feasible and the limits that they break; None where the spec names none. ``config`` is the
    design as a Hugging Face config.json, where it can be one.
    """

    asked: DesignSpec
    design: Design
    keep: Best
    second: Row | None
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
        one, under, second = self.design, dict(self.keep.under), self.second
        rows = self.rows()
        yield ""
        names = ", ".join(f"{k} {v:.6g}" for k, v in under.items()) or "none"
        yield f"Objective: {self.keep.by}; limits: {names}."
        yield {
            "objective": self.keep.by,
            "limits": under,
            "gain": one.gain,
            "start_keeps_limits": one.start_met,
            "design": self.values,
            "start": self.asked.start,
            "terms": one.terms,
            "start_terms": one.start_terms,
            "units": {row["term"]: row["unit"] for row in rows},
            "better": {name: grows(name, one.point, one.estimate) for name in one.terms},
            "second_estimator": second,
            "searched": one.counts | {"seconds": one.seconds},
            "config": self.config,
            "estimator": self.asked.names[0],
            "trust": [known.fields() for known in self.asked.trusted],
        }
        yield from (known.says for known in self.asked.trusted)
        if second is not None:
            for name in ("design", "start"):
                for text in second[name]["broken"]:
                    by = f"Not feasible by {second['name']}, the second estimator"
                    yield f"{by}: the {name}: {text}."
        yield table(_rows(self.asked.start, self.values), FREE)
        terms = {str(row["term"]): row for row in rows}
        own = [name for name in TERMS if name in terms]
        own += [name for name in terms if ".terms." in name or name.endswith(".need")]
        yield Rows("", [terms[name] for name in own], TERM)
        if second is not None:
            yield ""
            yield "The same two under the second estimator"
            columns = (*ANSWERS, "feasible")
            start, design = ({k: second[x][k] for k in columns} for x in ("start", "design"))
            yield table(_rows(start, design), FREE)
        yield ""
        yield (
            f"{self.keep.by} is better by a factor of {one.gain:.3f}. "
            f"{one.counts['restarts']} restarts, {one.counts['gradients']:,} gradients, "
            f"{one.counts['lattice']:,} rounded designs, {one.seconds:.1f} s."
        )
        yield Notes(self.notes)

    def _unit(self, name: str) -> str:
        return unit_of(name, self.design.point, self.design.estimate)

    def _figure(self) -> "Figure":
        """The start and the design, and the search.

        Raises:
            InputError: nothing moved along gradients; see ``Result.plot``.
        """
        return figures.draw_design(self)


@dataclass(frozen=True, repr=False)
class CodesignResult(FigureResult):
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
        return figures.draw_frontier(self.designs) if others else first._figure()


def second_estimate(keep: Best, point: Point) -> Row:
    """The answers at a point, the limits that it breaks, and whether it is feasible.

    Limits are those of the objective, and those of the estimator of the point.
    """
    estimate, broken = estimate_of(point), list[str]()
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
    answers = {name: float(getattr(estimate, name)) for name in ANSWERS}
    return {**answers, "broken": broken, "feasible": bool(estimate.feasible) and not broken}
