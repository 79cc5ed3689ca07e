"""The result of ``codesign``: the design beside its start, in every term."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from infer_jax.design.ascent import TOLERANCE
from infer_jax.design.design import Design
from infer_jax.design.expected import ExpectedDesign
from infer_jax.design.frontier import ChangePath, Flip
from infer_jax.design.problem import estimate_of
from infer_jax.design.quality_wrapper import QualityEstimate
from infer_jax.design.sensitivity import known_outputs
from infer_jax.design.toml import DesignSpec
from infer_jax.errors import InputError
from infer_jax.plots.path import Change, SearchTrack, plot_path
from infer_jax.plots.points import plot_points
from infer_jax.plots.rendering import FigureResult, facts_caption, rent
from infer_jax.plots.style import Figure
from infer_jax.results import Column, Notes, Row, Rows, Section, table
from infer_jax.results.numbers import count
from infer_jax.specs import outputs
from infer_jax.specs.words import name_of
from infer_jax.sweeps.chart import limit_in_words
from infer_jax.sweeps.constraint import Constraint
from infer_jax.sweeps.paths import Point, declared, look
from infer_jax.sweeps.reducers import Best
from infer_jax.verbs import limits
from infer_jax.verbs.codesign_tables import (
    cell,
    expected_sections,
    frontier_sections,
    numeric,
    path_sections,
)

# what is drawn of start and design: its words, unit, what of the SI unit that is, and whether
# more (1) or less (-1) is better
OUTPUTS = {
    "cost": ("price of output tokens", "$/Mtok", 1.0, -1),
    "tpot": ("time per output token", "ms", 1e3, -1),
    "ttft": ("time to first token", "ms", 1e3, -1),
    "throughput": ("throughput per GPU", "tokens/s", 1.0, 1),
    "parameters": ("parameters", "billion", 1e-9, 0),
    "active": ("active parameters", "billion", 1e-9, 0),
    "kv_bytes": ("KV cache of a token", "kB", 1e-3, 0),
    "loss": ("predicted loss", "nats", 1.0, -1),
    "lifetime": ("training and serving", "million $", 1e-6, -1),
}
GAINS = {  # of the title
    "cost": "output tokens {} times cheaper",
    "input_cost": "input tokens {} times cheaper",
    "tpot": "TPOT {} times shorter",
    "ttft": "TTFT {} times shorter",
    "throughput": "{} times the throughput",
}
CONSTRAINTS = {  # in words: of what, what of the SI unit is printed, and in which unit
    "parameters": ("parameters", 1e-9, " billion"),
    "active": ("active parameters", 1e-9, " billion"),
    "aspect": ("hidden size over layers", 1.0, ""),
}
BOUND = "Bold: on a bound of the search; a wider one may change it further."
CAPTION = "The design is rounded and priced exactly. The quality of answers is not predicted."
MOST_STEPS = 12  # of a path that are drawn one by one
TERMS = tuple(output.name for output in outputs(QualityEstimate))
ANSWERS = ("ttft", "tpot", "cost", "throughput")  # of the second estimator


def _ratio(row: Row) -> str | None:
    start, design = numeric(row["start"]), numeric(row["design"])
    return f"{design / start:.3f}" if start and design is not None else None


CHANGES = (
    Column("start", "", "start", cell, left=False),
    Column("design", "", "design", cell, left=False),
    Column("ratio", "", _ratio, left=False),
)


def _short(path: object) -> str:
    """A path without the wrappers around the cases of a mixture."""
    return re.sub(r"^estimator.*\.cases\.(\d+)\.", lambda x: f"case {int(x[1]) + 2}: ", str(path))


FREE = (Column("free", "", "name", _short, left=True), *CHANGES)
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

    spec: DesignSpec
    design: Design
    path: ChangePath
    keep: Best
    second: Row | None
    config: Mapping[str, object] | None
    notes: tuple[str, ...]
    expected: ExpectedDesign | None = None

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
            "start": self.spec.start,
            "terms": one.terms,
            "start_terms": one.start_terms,
            "units": {row["term"]: row["unit"] for row in rows},
            "better": {
                name: declared(name, one.point, one.estimate).more_is_better for name in one.terms
            },
            "second_estimator": second,
            "path": [step._asdict() for step in self.path.steps],
            "interaction": self.path.interaction,
            "searched": one.counts | {"seconds": one.seconds},
            "config": self.config,
            "expected": None if self.expected is None else dataclasses.asdict(self.expected),
            "estimator": self.spec.names[0],
            "trust": [known.fields() for known in self.spec.trusted],
        }
        yield from (known.says for known in self.spec.trusted)
        if second is not None:
            for name in ("design", "start"):
                for text in second[name]["broken"]:
                    by = f"Not feasible by {second['name']}, the second estimator"
                    yield f"{by}: the {name}: {text}."
        yield table(_rows(self.spec.start, self.values), FREE)
        terms = {str(row["term"]): row for row in rows}
        own = [name for name in TERMS if name in terms]
        own += [name for name in terms if ".terms." in name or name.endswith(".need")]
        yield Rows("", [terms[name] for name in own], TERM)
        yield from path_sections(self.path, self.keep.by)
        if second is not None:
            yield from ("", "The same two under the second estimator")
            columns = (*ANSWERS, "feasible")
            start, design = ({k: second[x][k] for k in columns} for x in ("start", "design"))
            yield table(_rows(start, design), FREE)
        if self.expected is not None:
            yield from expected_sections(self.expected, self.keep.by)
        yield ""
        yield (
            f"{self.keep.by} is better by a factor of {one.gain:.3f}. "
            f"{one.counts['restarts']} restarts, {one.counts['gradients']:,} gradients, "
            f"{one.counts['lattice']:,} rounded designs, {one.seconds:.1f} s."
        )
        yield Notes(self.notes)

    def _unit(self, name: str) -> str:
        return declared(name, self.design.point, self.design.estimate).full_unit

    def _figure(self) -> Figure:
        """The start and the design, and the search.

        Raises:
            InputError: nothing moved along gradients; see ``Result.plot``.
        """
        if not self.design.paths:
            raise InputError("plot", "paths", "none", "a design with numbers that move")
        better = GAINS.get(self.keep.by, f"{self.keep.by} {{}} times better")
        spec, changed, known = self.spec, self._changed(), known_outputs()
        point, bound = self.design.point, BOUND * any(change.bound for change in changed)
        with jax.enable_x64(True):
            price = float(point.hardware.price)
        limits = ", ".join(limit_in_words(*x, known) for x in dict(self.keep.under).items())
        facts = [
            f"{count(point.workload.isl)} tokens in, {count(point.workload.osl)} out",
            ", ".join(dict.fromkeys(spec.formats.values())),
            f"{spec.system}, {rent({'': price})}",
            f"limits: {limits}" if limits else "no limits",
            _constraints(spec),
            f"estimator {spec.names[0]}",
        ]
        return plot_path(
            search_of(self.design),
            {
                "what changed": changed,
                "what it brings": _outputs(self.design),
                "one change at a time": self._path(),
            },
            title=f"{spec.model} redesigned: {better.format(f'{self.design.gain:.3g}')}",
            caption=facts_caption(facts, bound, CAPTION),
        )

    def _path(self) -> list[Change]:
        """The objective before and after each step; of many, all of a number at once."""
        unit, sense = self._unit(self.keep.by), -int(self.design.sign)
        changes, gains = list[Change](), dict[object, float]()
        several, ends = len(self.path.steps) > MOST_STEPS, dict[object, str]()
        for i, step in enumerate(self.path.steps):
            key = step.path if several else i
            gains[key] = gains.get(key, 1.0) * step.gain
            ends[key] = f"{name_of(step.path)} \N{RIGHTWARDS ARROW} {cell(step.after)}"
        here = self.design.objective * self.path.total**self.design.sign
        for key, gain in gains.items():
            before, here = here, here / gain**self.design.sign
            changes.append(Change(ends[key], before, here, unit, sense))
        return changes

    def _changed(self) -> list[Change]:
        """The numbers that were free, beside those of the start, and the bounds they lie on."""
        changes: list[Change] = []
        for path, x in self.values.items():
            if not isinstance(x, int | float | np.number) or path not in self.spec.start:
                continue
            axis = self.spec.space.axes.get(path)
            steps = () if axis is None or axis.rule is not None else axis.steps
            steps = [float(step) for step in steps if isinstance(step, int | float)]
            bounds: dict[float, str] = {}
            if steps and min(steps) < max(steps):
                bounds = {min(steps): "least allowed", max(steps): "most allowed"}
            start, bound = self.spec.start[path], bounds.get(float(x), "")
            if start == float(x) and not bound:
                continue
            changes.append(Change(name_of(path), start, float(x), bound=bound))
        return changes


@dataclass(frozen=True, repr=False)
class CodesignResult(FigureResult):
    """The designs of a spec: one, or one for each value of a limit along a frontier.

    ``flips``: where a small change of the limit flips the design.
    """

    designs: tuple[DesignResult, ...]
    flips: tuple[Flip, ...] = ()

    def fields(self) -> Mapping[str, object]:
        """Of one design its own; of a frontier a list."""
        designs = [one.fields() for one in self.designs]
        if len(designs) == 1:
            return designs[0]
        along, flips = self.designs[0].spec.along, [flip._asdict() for flip in self.flips]
        return {"frontier": designs, "along": along, "flips": flips}

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a term of one design; of a frontier one row a design, with all its terms."""
        if len(self.designs) == 1:
            return self.designs[0].rows()
        return [
            {"limits": dict(one.keep.under), "gain": one.design.gain, **one.design.terms}
            for one in self.designs
        ]

    def sections(self) -> Iterator[Section]:
        """Of a frontier its table, then every design after the other."""
        name = self.designs[0].spec.along
        if len(self.designs) > 1 and name:
            limits = [dict(one.keep.under)[name] for one in self.designs]
            yield from frontier_sections(name, limits, [x.design for x in self.designs], self.flips)
        for one in self.designs:
            yield from one.parts()

    def _figure(self) -> Figure:
        """The path to the design; of a frontier, the objective over the limit that varies."""
        first, under = self.designs[0], [dict(one.keep.under) for one in self.designs]
        if len(self.designs) == 1:
            return first._figure()
        name = first.spec.along
        known, designs = known_outputs().get(name), [one.design for one in self.designs]
        at = np.array([(known.factor if known else 1.0) * limits[name] for limits in under])
        series = {"design": (at, np.array([one.objective for one in designs]))}
        met = np.array([one.start_met for one in designs])
        if met.any():
            series["start"] = at[met], np.array([one.start_objective for one in designs])[met]
        title = known.short or known.title if known else name_of(name)
        unit = (
            known.printed_unit
            if known
            else declared(name, designs[0].point, designs[0].estimate).full_unit
        )
        unit = "" if unit == "1" else f", {unit}"
        spec = first.spec
        return plot_points(
            series,
            labels=(f"limit of {title}{unit}", _objective(first.design)),
            title=f"{spec.model} redesigned for limits of {title}",
            caption=facts_caption([spec.system, _constraints(spec), f"estimator {spec.names[0]}"]),
        )


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
        more = declared(name, point, estimate).more_is_better
        if value < limit if more else value > limit:
            word = "at least" if more else "at most"
            broken.append(f"{name} is {value:.4g}, asked for {word} {limit:.4g}")
    for title, phase in estimate.passes.items():
        for name, limit in phase.limits.items():
            text = limits.broken(name, limit)
            if float(limit.need) > float(limit.capacity) and text not in " ".join(broken):
                broken.append(f"{title}: {text}")
    answers = {name: float(getattr(estimate, name)) for name in ANSWERS}
    return {**answers, "broken": broken, "feasible": bool(estimate.feasible) and not broken}


def search_of(design: Design) -> SearchTrack:
    """The last of a design's searches as it is drawn."""
    path = design.paths[-1]
    best, objective = int(path.ends[0]), np.exp(path.objective * design.sign)
    return SearchTrack(
        restarts=objective,
        best=objective[:, best],
        holds=path.excess[:, best] <= TOLERANCE,
        start=design.start_objective if design.start_met else None,
        design=design.objective,
        objective=_objective(design),
    )


def _constraints(spec: DesignSpec) -> str:
    """What constraints hold the design to, in words."""
    texts: list[str] = []
    for one in (one for one in spec.space.where if isinstance(one, Constraint)):
        of, factor, unit = " over ".join(map(name_of, one.ratio)), 1.0, ""
        if not one.ratio and one.value in CONSTRAINTS:
            of, factor, unit = CONSTRAINTS[one.value]
        ends = [
            f"{word} {factor * x:.3g}"
            for word, x in (("at least", one.at_least), ("at most", one.at_most))
            if isinstance(x, int | float)
        ]
        if of and ends:
            texts.append(f"{of} {' and '.join(ends)}{unit}")
    return f"held: {', '.join(texts)}" if texts else ""


def _outputs(design: Design) -> list[Change]:
    """The outputs of a design beside those of the start."""
    before, after = design.start_terms, design.terms
    dense = after.get("active") == after.get("parameters")
    return [
        Change(title, factor * before[name], factor * after[name], unit, sense)
        for name, (title, unit, factor, sense) in OUTPUTS.items()
        if name in after and not (name == "active" and dense)
    ]


def _objective(design: Design) -> str:
    """The sought term and its unit."""
    unit = declared(design.by, design.point, design.estimate).full_unit
    return design.by if unit in ("", "1") else f"{design.by} ({unit})"
