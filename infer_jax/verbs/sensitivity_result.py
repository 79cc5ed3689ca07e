"""The answer of ``sensitivity``: elasticities at one point or along a frontier, and what-ifs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jax import Array

from infer_jax.catalog import list_systems
from infer_jax.compiling import once
from infer_jax.design.sensitivity import (
    BLENDED,
    Elasticity,
    changed,
    known_outputs,
    outputs_and_fit,
    relative_changes,
)
from infer_jax.design.what_ifs import FIXED, Curvature, worth
from infer_jax.errors import InputError
from infer_jax.estimators.known_errors import BORROWED
from infer_jax.estimators.serving.plan import deployment
from infer_jax.plots.style import Figure
from infer_jax.plots.tornado import TornadoBar, plot_tornado
from infer_jax.results import Column, Notes, Section, option, table
from infer_jax.specs.words import name_of
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import inputs, pictures
from infer_jax.verbs.curvatures import curvature_sections

FRONTIER_AXES = ("tpot", "cost")
SMALL = 1e-3  # elasticities that are not drawn
PARTS = {"arch": "model", "hardware": "hardware", "estimator": "estimator"}
NUMBER = Column("number", "", "path", name_of, left=True)
ELASTICITIES = (
    NUMBER,
    Column("value", "", "value", "{:.4g}".format),
    Column("slope", "", "slope", "{:+.3f}".format),
    Column(
        "below, above", "", lambda e: f"{e.below:+.2f}, {e.above:+.2f}" if e.is_kinked else None
    ),
    Column("step", "%", "jump", lambda x: f"{100 * x:+.1f}" if abs(x) > 1e-4 else ""),
    *(
        Column(title, "%", field, lambda x: "-" if np.isnan(x) else f"{100 * x:+.2f}")
        for title, field in (("+10 %", "tenth"), ("x2", "double"))
    ),
)


class PointSlopes(NamedTuple):
    """A point, and the elasticities there."""

    point: Point
    slopes: Sequence[Elasticity]

    @property
    def load(self) -> dict[str, object]:
        """GPUs and batch."""
        return {"gpus": self.point.plan.instance, "batch": self.point.workload.batch}

    def rows(self) -> list[dict[str, object]]:
        """The elasticities for JSON."""
        return [{**vars(e), "kinked": e.is_kinked} for e in self.slopes]


class OtherChip(NamedTuple):
    """A shipped system in place of the asked one, the layout and the requests held.

    ``changes``: relative changes of the outputs, by name; ``feasible``: whether the model fits;
    ``borrowed``: the generations whose coefficients are used for it, if any.
    """

    name: str
    changes: Mapping[str, float]
    feasible: bool
    borrowed: str | None

    @property
    def title(self) -> str:
        """Its name, marked where its coefficients are borrowed."""
        return f"{BORROWED} {self.name}" if self.borrowed else self.name


@dataclass(frozen=True, repr=False)
class SensitivityResult(pictures.EstimatorResult):
    """Elasticities of the outputs at one point, or ``along`` points of a frontier.

    ``what_if``: relative changes of the outputs, by change; ``chips``: other systems; ``top``:
    printed rows of a table; ``coefficients``: whether those of the estimator are printed;
    ``curvatures``: how elasticities move, where that was asked for.
    """

    points: Sequence[PointSlopes]
    what_if: Mapping[str, Mapping[str, float]]
    chips: Sequence[OtherChip]
    along: bool
    top: int
    coefficients: bool
    curvatures: Sequence[Curvature] = ()

    def elasticity(self, path: str, output: str) -> Elasticity:
        """The elasticity of an output with respect to a number, at the first point.

        Raises:
            InputError: no number of that path moves it.
        """
        of_output = {e.path: e for e in self.points[0].slopes if e.output == output}
        if not of_output:
            known = ", ".join(dict.fromkeys(e.output for e in self.points[0].slopes))
            raise InputError("elasticity", "output", output, known)
        if path not in of_output:
            raise InputError("elasticity", path, "no number of this", ", ".join(of_output))
        return of_output[path]

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row an elasticity."""
        return [{**at.load, **row} for at in self.points for row in at.rows()]

    def sections(self) -> Iterator[Section]:
        """A table of each output, the largest first; or of each number along the frontier."""
        yield f"{self.setup.model.name} on {self.setup.system.name}"
        yield self.trust.says
        yield {
            **self.names,
            "points": [{**at.load, "elasticities": at.rows()} for at in self.points],
            "what_if": self.what_if,
            "chips": [chip._asdict() for chip in self.chips],
            "curvatures": [{**vars(c), "matrix": c.matrix.tolist()} for c in self.curvatures],
        }
        yield from self._along() if self.along else self._outputs()
        yield Notes(self.notes())

    def notes(self) -> list[str]:
        """What is held, and what tables leave out; docs/sensitivity.md has what the columns are."""
        own = f", and the estimator's coefficients ({option('coefficients')})"
        notes = [
            "1 % more of a number gives as many % more of the output as its slope, all else held.",
            f"{option('json')} has the paths of {option('set')}{'' if self.coefficients else own}.",
        ]
        if any("bits" in change for change in self.what_if):
            notes.append("Weights at half the bytes are read so; their matmuls stay as they are.")
        if self.chips:
            notes.append(f"Other chips are as their profiles say; {BORROWED}: borrowed numbers.")
        if unfit := [chip.name for chip in self.chips if not chip.feasible]:
            notes.append(f"It does not fit on so many of {', '.join(unfit)}.")
        if not float(self.points[0].point.hardware.power):
            name = self.setup.system.name
            notes.append(f"J/Mtok is unknown: the profile of {name} has no power.")
        return [*notes, *self.setup.notes]

    def _outputs(self) -> Iterator[Section]:
        """A table of each output at the point, and the what-ifs: changes of all outputs."""
        at, outputs = self.points[0], known_outputs()
        slopes = worth(at.slopes, at.point.arch, self.coefficients)
        for name, output in outputs.items():
            rows = [e for e in slopes if e.output == name][: self.top]
            if rows:
                unit = "" if output.per or output.unit == "1" else f" ({output.unit})"
                yield from ("", f"{output.short}{unit}")
                yield table(rows, ELASTICITIES)
            for one in self.curvatures:
                if one.output == name:
                    yield from curvature_sections(one)
        columns = [
            Column(output.short, "%", name, lambda x: f"{100 * x:+.1f}")
            for name, output in outputs.items()
            if any(name in changes for changes in self.what_if.values())
        ]
        if self.what_if:
            yield from ("", "What if")
            rows = [{"change": name, **changes} for name, changes in self.what_if.items()]
            yield table(rows, (Column("change", "", "change"), *columns))
        fit = [chip for chip in self.chips if chip.feasible][: self.top]
        if fit:
            yield from ("", "Another chip, cheapest first: the same layout and requests")
            rows = [{"chip": chip.title, **chip.changes} for chip in fit]
            if BLENDED in rows[0]:
                columns = [columns[0]._replace(title="blended $", value=BLENDED), *columns]
            yield table(rows, (Column("chip", "", "chip"), *columns))

    def _along(self) -> Iterator[Section]:
        """Slopes by number and point of the frontier, for both of its axes."""
        for name in FRONTIER_AXES:
            rows: dict[str, dict[object, object]] = {}
            weights: dict[str, float] = {}
            for i, at in enumerate(self.points):
                for e in worth(at.slopes, at.point.arch, self.coefficients):
                    if e.output == name:
                        rows.setdefault(e.path, {"path": e.path})[i] = f"{e.slope:+.3f}"
                        weights[e.path] = max(weights.get(e.path, 0.0), e.weight)
            first = sorted(rows, key=lambda path: -weights[path])[: self.top]
            columns = [NUMBER]
            for i, (point, _) in enumerate(self.points):
                gpus, batch = f"{float(point.plan.tp):.3g}", f"{float(point.workload.batch):.3g}"
                head = f"{gpus} GPUs", f"batch {batch}"
                columns.append(Column(*head, lambda row, i=i: row.get(i, "0"), left=False))
            title = known_outputs()[name].short
            yield from ("", f"Elasticities of {title} along the frontier, cheapest first")
            yield table([rows[path] for path in first], columns)

    def _figure(self) -> Figure:
        """A tornado of the first point: what 10 % more of each number does to each output."""
        point, panels = self.points[0].point, {}
        slopes = worth(self.points[0].slopes, point.arch)
        for output in known_outputs().values():
            bars = [
                TornadoBar(name_of(e.path), part, e.slope, 100 * e.tenth)
                for e in slopes
                for part in [PARTS.get(e.path.partition(".")[0], "load and layout")]
                if e.output == output.name and e.weight > SMALL and not e.path.endswith(FIXED)
            ]
            if bars and not output.drawn:
                panels[output.short] = bars
        work, plan = point.workload, deployment(point.plan)
        load = f"{float(work.batch):.6g} requests in flight, {plan.label}. All else is held."
        caption = self.caption(work, load)
        gpus = f"{float(plan.instance):g} {self.setup.system.title}"
        title = f"{self.setup.model.name} on {gpus}: what 10 % more of each number changes"
        return plot_tornado(panels, title=title, caption=caption)


def other_chips(point: Point, setup: inputs.Setup, name: str) -> list[OtherChip]:
    """Every other shipped system, at its profile's rent, in place of the asked one, cheapest first.

    ``point``: what was asked; ``name``: of its estimator. A system for which the estimator lacks
    coefficients is left out.
    """

    def evaluated(point: Point) -> tuple[dict[str, Array], Array]:
        return once(outputs_and_fit, changed(point, {}))

    base, _ = evaluated(point)
    chips = list[OtherChip]()
    for other in list_systems():
        if other == setup.system.name:
            continue
        there = inputs.setup(setup.model, other, None, None, None, None, setup.engine_version)
        try:
            model = inputs.estimator(name, there)
        except InputError:
            continue
        trust = inputs.trust(name, model, there)
        after, fits = evaluated(point._replace(estimator=model, hardware=there.hardware))
        changes = relative_changes(base, after)
        chips.append(OtherChip(other, changes, bool(fits), trust.borrowed_from))
    paid = BLENDED if all(BLENDED in chip.changes for chip in chips) else "cost"
    return sorted(chips, key=lambda chip: chip.changes.get(paid, math.inf))
