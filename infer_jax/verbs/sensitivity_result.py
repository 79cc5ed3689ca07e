"""The answer of ``sensitivity``: elasticities at one point or along a frontier, and what-ifs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infer_jax.design.sensitivity import Elasticity, known_outputs
from infer_jax.errors import InputError
from infer_jax.estimators import Trust
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import name_of
from infer_jax.results import Column, Notes, Section, option, table
from infer_jax.specs import Architecture, Experts, layout_label
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import inputs, pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRONTIER_AXES = ("tpot", "cost")
BARS = 12  # of each output in the picture
SMALL = 1e-3  # elasticities that are not drawn
# numbers that a kind of block sets, of which nobody buys 10 % more
FIXED = ("feedforward.inward", "shared.inward", "attention.kv_matrices")
PARTS = {"arch": "model", "hardware": "hardware", "estimator": "estimator"}
NUMBER = Column("number", "", "path", name_of, left=True)
ELASTICITIES = (
    NUMBER,
    Column("value", "", "value", "{:.4g}".format),
    Column("slope", "", "slope", "{:+.3f}".format),
    Column("below, above", "", lambda e: f"{e.below:+.2f}, {e.above:+.2f}" if e.kinked else None),
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
        plan = self.point.plan
        return {"gpus": plan.tp * plan.pp * plan.ep, "batch": self.point.workload.batch}

    def rows(self) -> list[dict[str, object]]:
        """The elasticities for JSON."""
        return [{**vars(e), "kinked": e.kinked} for e in self.slopes]


@dataclass(frozen=True, repr=False)
class SensitivityResult(FigureResult):
    """Elasticities of the outputs at one point, or ``along`` points of a frontier.

    ``what_if``: relative changes of the outputs, by change; ``top``: printed rows of a table;
    ``coefficients``: whether those of the estimator are printed.
    """

    asked: inputs.Given
    estimator: str
    trust: Trust
    points: Sequence[PointSlopes]
    what_if: Mapping[str, Mapping[str, float]]
    along: bool
    top: int
    coefficients: bool

    def elasticity(self, path: str, output: str) -> Elasticity:
        """The elasticity of an output with respect to a number, at the first point.

        Raises:
            InputError: no number of that path moves it.
        """
        of_output = {e.path: e for e in self.points[0].slopes if e.output == output}
        if path not in of_output:
            raise InputError("elasticity", path, "no number of this", ", ".join(of_output))
        return of_output[path]

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row an elasticity."""
        return [{**at.load, **row} for at in self.points for row in at.rows()]

    def sections(self) -> Iterator[Section]:
        """A table of each output, the largest first; or of each number along the frontier."""
        yield f"{self.asked.model.name} on {self.asked.system.name}"
        yield self.trust.says
        yield {
            **self.asked.names,
            "estimator": self.estimator,
            "trust": self.trust.fields(),
            "points": [{**at.load, "elasticities": at.rows()} for at in self.points],
            "what_if": self.what_if,
        }
        yield from self._along() if self.along else self._outputs()
        yield Notes(self.notes())

    def notes(self) -> list[str]:
        """Notes on the meaning of slopes and changes."""
        own = f", as are the estimator's coefficients ({option('coefficients')})"
        notes = [
            "Everything else is held, the layout found by a search included.",
            "Slope: the elasticity e; 1 % more of the number gives e % more of the output. +10 % "
            "and x2 are evaluated, so they tell how far it carries; '-' where a bound is passed.",
            "Below and above: slopes at the two sides, shown where a maximum or a whole number "
            "makes them differ; a step is a jump of the output at the point itself.",
            "J/Mtok is the estimator's own where it tells energy, else board power x chips x time, "
            "an upper bound.",
            f"The paths that {option('set')} takes are in {option('json')}"
            f"{'' if self.coefficients else own}.",
        ]
        if not float(self.points[0].point.hardware.power):
            name = self.asked.system.name
            notes.append(f"J/Mtok is unknown: the profile of {name} has no power.")
        return [*notes, *self.asked.notes]

    def _outputs(self) -> Iterator[Section]:
        """A table of each output at the point, and the what-ifs: changes of all outputs."""
        at, outputs = self.points[0], known_outputs()
        slopes = worth(at.slopes, at.point.arch, self.coefficients)
        for name, output in outputs.items():
            rows = [e for e in slopes if e.output == name][: self.top]
            if rows:
                unit = "" if output.per or output.unit == "1" else f" ({output.unit})"
                yield ""
                yield f"{output.short}{unit}"
                yield table(rows, ELASTICITIES)
        if self.what_if:
            yield ""
            yield "What if"
            rows = [{"change": name, **changes} for name, changes in self.what_if.items()]
            columns = [
                Column(outputs[name].short, "%", name, lambda x: f"{100 * x:+.1f}")
                for name in next(iter(self.what_if.values()))
            ]
            yield table(rows, (Column("change", "", "change"), *columns))

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
            columns = [
                Column(
                    f"{float(x.point.plan.tp):.3g} GPUs",
                    f"batch {float(x.point.workload.batch):.3g}",
                    lambda row, i=i: row.get(i, "0"),
                    left=False,
                )
                for i, x in enumerate(self.points)
            ]
            title = known_outputs()[name].short
            yield ""
            yield f"Elasticities of {title} along the frontier, cheapest first"
            yield table([rows[path] for path in first], (NUMBER, *columns))

    def _figure(self) -> "Figure":
        """A tornado of the first point: what 10 % more of each number does to each output."""
        from infer_jax.plots.tornado import TornadoBar, plot_tornado

        point, panels = self.points[0].point, {}
        slopes = worth(self.points[0].slopes, point.arch)
        for output in known_outputs().values():
            bars = [
                TornadoBar(name_of(e.path), _part(e.path), e.slope, 100 * e.tenth)
                for e in slopes
                if e.output == output.name and e.weight > SMALL and not e.path.endswith(FIXED)
            ]
            if bars and not output.drawn:
                panels[output.short] = sorted(bars, key=lambda bar: -abs(bar.length))[:BARS]
        work, plan = point.workload, point.plan
        degrees = {name: float(getattr(plan, name)) for name in ("tp", "pp", "ep")}
        caption = pictures.caption(
            self.asked,
            work,
            self.estimator,
            f"{float(work.batch):.6g} requests in flight, {layout_label(degrees)}. "
            "A bar is evaluated, all other numbers held; whole numbers may be fractions in "
            "between. The estimator's own coefficients are left out.",
        )
        gpus = f"{float(plan.tp * plan.pp * plan.ep):g} {self.asked.system.title}"
        title = f"{self.asked.model.name} on {gpus}: what 10 % more of each number changes"
        return plot_tornado(panels, title=title, caption=caption)


def worth(
    slopes: Sequence[Elasticity], arch: Architecture, coefficients: bool = False
) -> list[Elasticity]:
    """The numbers that this model, its hardware or its plan has, and an estimator's if asked."""
    mixed = any(isinstance(block.feedforward, Experts) for block in arch.blocks)
    left_out = () if mixed else ("plan.ep", "plan.attention_dp")
    return [
        e
        for e in slopes
        if e.path not in left_out and (coefficients or not e.path.startswith("estimator."))
    ]


def _part(path: str) -> str:
    """What a number is of, in the words of the picture."""
    return PARTS.get(path.partition(".")[0], "load and layout")
