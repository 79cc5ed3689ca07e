"""The answer of ``sensitivity``: elasticities at one point or along a frontier, and what-ifs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infer_jax.design.sensitivity import Elasticity, known_outputs
from infer_jax.errors import InputError
from infer_jax.estimators import Trust
from infer_jax.plots.names import named
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Column, Notes, Section, option, table
from infer_jax.specs import Architecture, Experts
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import inputs, pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRONTIER_AXES = ("tpot", "cost")
BARS = 12  # of each output in the picture
# numbers that a kind of block sets, of which nobody buys 10 % more
FIXED = ("feedforward.inward", "shared.inward", "attention.kv_matrices")
PARTS = {"arch": "model", "hardware": "hardware", "estimator": "estimator"}


def _percent(x: float) -> str:
    return "-" if np.isnan(x) else f"{100 * x:+.2f}"


def _step(e: Elasticity) -> str:
    return f"{100 * e.jump:+.1f}" if abs(e.jump) > 1e-4 else ""


ELASTICITIES = (
    Column("number", "", lambda e: named(e.path), left=True),
    Column("value", "", "value", "{:.4g}".format),
    Column("slope", "", "slope", "{:+.3f}".format),
    Column("below, above", "", lambda e: f"{e.below:+.2f}, {e.above:+.2f}" if e.kinked else None),
    Column("step", "%", _step, left=False),
    Column("+10 %", "%", "tenth", _percent),
    Column("x2", "%", "double", _percent),
)


class At(NamedTuple):
    """A point, and the elasticities there."""

    point: Point
    slopes: Sequence[Elasticity]

    @property
    def where(self) -> dict[str, object]:
        """GPUs and batch."""
        plan = self.point.plan
        return {"gpus": plan.tp * plan.pp * plan.ep, "batch": self.point.workload.batch}

    def rows(self) -> list[dict[str, object]]:
        """The elasticities for JSON."""
        return [{**vars(e), "kinked": e.kinked} for e in self.slopes]


class Display(NamedTuple):
    """What to print: points of a frontier or one, rows of a table, coefficients or none."""

    along: bool
    top: int
    coefficients: bool


@dataclass(frozen=True, repr=False)
class SensitivityResult(Pictured):
    """Elasticities of the outputs at one point, or at points of a frontier.

    ``what_if``: relative changes of the outputs, by change.
    """

    asked: inputs.Given
    estimator: str
    trust: Trust
    points: Sequence[At]
    what_if: Mapping[str, Mapping[str, float]]
    display: Display

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
        return [{**at.where, **row} for at in self.points for row in at.rows()]

    def sections(self) -> Iterator[Section]:
        """A table of each output, the largest first; or of each number along the frontier."""
        yield f"{self.asked.model.name} on {self.asked.system.name}"
        yield self.trust.says
        yield {**self.asked.names, "estimator": self.estimator, "trust": self.trust.fields()}
        yield {"points": [{**at.where, "elasticities": at.rows()} for at in self.points]}
        yield {"what_if": self.what_if}
        yield from self._along() if self.display.along else self._outputs()
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
            f"{'' if self.display.coefficients else own}.",
        ]
        if not float(self.points[0].point.hardware.power):
            name = self.asked.system.name
            notes.append(f"J/Mtok is unknown: the profile of {name} has no power.")
        return [*notes, *self.asked.notes]

    def _worth(self, at: At) -> list[Elasticity]:
        return worth(at.slopes, at.point.arch, self.display.coefficients)

    def _outputs(self) -> Iterator[Section]:
        """A table of each output at the point, and the what-ifs: changes of all outputs."""
        slopes, outputs = self._worth(self.points[0]), known_outputs()
        for name, output in outputs.items():
            rows = [e for e in slopes if e.output == name][: self.display.top]
            if rows:
                unit = "" if output.per or output.unit == "1" else f" ({output.unit})"
                yield ""
                yield f"{output.short}{unit}"
                yield table(rows, ELASTICITIES)
        if self.what_if:
            yield ""
            yield "What if"
            names = next(iter(self.what_if.values()))
            change = [
                Column(outputs[n].short, "%", lambda row, n=n: 100 * row[1][n], "{:+.1f}".format)
                for n in names
            ]
            first = Column("change", "", lambda row: row[0])
            yield table(list(self.what_if.items()), (first, *change))

    def _along(self) -> Iterator[Section]:
        """Slopes by number and point of the frontier, for both of its axes."""
        for name in FRONTIER_AXES:
            at = [{e.path: e for e in self._worth(x) if e.output == name} for x in self.points]
            paths = dict.fromkeys(path for slopes in at for path in slopes)
            weights = {p: max(s[p].weight for s in at if p in s) for p in paths}
            first = sorted(weights, key=lambda p: -weights[p])[: self.display.top]
            columns = [
                Column(
                    f"{float(x.point.plan.tp):.3g} GPUs",
                    f"batch {float(x.point.workload.batch):.3g}",
                    lambda path, s=s: f"{s[path].slope:+.3f}" if path in s else "0",
                    left=False,
                )
                for x, s in zip(self.points, at, strict=True)
            ]
            yield ""
            yield (
                f"Elasticities of {known_outputs()[name].short} along the frontier, cheapest first"
            )
            yield table(first, (Column("number", "", named, left=True), *columns))

    def _figure(self) -> "Figure":
        """A tornado of the first point: what 10 % more of each number does to each output."""
        from infer_jax.plots.style import words
        from infer_jax.plots.tornado import TornadoBar, plot_tornado

        point, panels = self.points[0].point, {}
        slopes = worth(self.points[0].slopes, point.arch)
        slopes = [e for e in slopes if not e.path.endswith(FIXED)]
        for output in known_outputs().values():
            of_output = [e for e in slopes if e.output == output.name]
            if of_output and not output.drawn:
                bars = [
                    TornadoBar(named(e.path), _part(e.path), e.slope, 100 * e.tenth)
                    for e in of_output
                    if e.weight > 1e-3
                ]
                bars.sort(key=lambda bar: -abs(bar.length))
                panels[output.short] = bars[:BARS]
        work, plan = point.workload, point.plan
        gpus = float(plan.tp * plan.pp * plan.ep)
        degrees = {name: float(getattr(plan, name)) for name in ("tp", "pp", "ep")}
        layout = " ".join(f"{name.upper()}{x:g}" for name, x in degrees.items() if x > 1) or "TP1"
        caption = pictures.caption(
            self.asked,
            work,
            self.estimator,
            f"{float(work.batch):.6g} requests in flight, {layout}. A bar is evaluated, all other "
            "numbers held; whole numbers may be fractions in between. The estimator's own "
            "coefficients are left out.",
        )
        name = f"{self.asked.model.name} on {gpus:g} {self.asked.system.title}"
        title = words(f"{name}: what 10 % more of each number changes")
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
