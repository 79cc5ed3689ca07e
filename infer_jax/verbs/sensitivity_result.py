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
from infer_jax.results import Column, Notes, Part, Table
from infer_jax.specs import Architecture, Experts
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import inputs, pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DARK = "J/Mtok is unknown: the profile of {} has no power."
AXES = ("tpot", "cost")  # of the frontier
BARS = 12  # of each output in the picture
# numbers that a kind of block sets, of which nobody buys 10 % more
FIXED = ("feedforward.inward", "shared.inward", "attention.kv_matrices")
HEADS = (
    *(Column("number", left=True), Column("value"), Column("slope"), Column("below, above")),
    *(Column(x, "%") for x in ("step", "+10 %", "x2")),
)


class At(NamedTuple):
    """A point, and the elasticities there."""

    point: Point
    slopes: Sequence[Elasticity]


class Shown(NamedTuple):
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
    shown: Shown

    def elasticity(self, path: str, output: str) -> Elasticity:
        """The elasticity of an output with respect to a number, at the first point.

        Raises:
            InputError: no number of that path moves it.
        """
        for each in self.points[0].slopes:
            if (each.path, each.output) == (path, output):
                return each
        paths = [x.path for x in self.points[0].slopes if x.output == output]
        raise InputError("elasticity", path, "no number of this", ", ".join(paths))

    def fields(self) -> Mapping[str, object]:
        """Every elasticity of every point, and the changes that were asked besides."""
        return {
            **self.asked.names,
            "estimator": self.estimator,
            "trust": self.trust.fields(),
            "points": [
                {**_where(at.point), "elasticities": [_fields(e) for e in at.slopes]}
                for at in self.points
            ],
            "what_if": self.what_if,
            "notes": self.notes(),
        }

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row an elasticity."""
        return [{**_where(at.point), **_fields(e)} for at in self.points for e in at.slopes]

    def notes(self) -> list[str]:
        """Notes on the meaning of slopes and changes."""
        coefficients = ", as are the estimator's coefficients (--coefficients)"
        own = "" if self.shown.coefficients else coefficients
        dark = not float(self.points[0].point.hardware.power)
        return [
            "Everything else is held, the layout found by a search included.",
            "Slope: the elasticity e; 1 % more of the number gives e % more of the output. +10 % "
            "and x2 are evaluated, so they tell how far it carries; '-' where a bound is passed.",
            "Below and above: slopes at the two sides, shown where a maximum or a whole number "
            "makes them differ; a step is a jump of the output at the point itself.",
            "J/Mtok is the estimator's own where it tells energy, else board power x chips x time, "
            "an upper bound.",
            f"The paths that --set takes are in --json{own}.",
            *([DARK.format(self.asked.system.name)] if dark else []),
            *self.asked.notes,
        ]

    def parts(self) -> Iterator[Part]:
        """A table of each output, the largest first; or of each number along the frontier."""
        yield f"{self.asked.model.name} on {self.asked.system.name}"
        yield self.trust.says
        if self.shown.along:
            yield from self._along()
        else:
            yield from self._outputs()
            yield from self._ifs()
        yield Notes(self.notes())

    def _worth(self, at: At) -> list[Elasticity]:
        return worth(at.slopes, at.point.arch, self.shown.coefficients)

    def _outputs(self) -> Iterator[Part]:
        """A table of each output at the point."""
        slopes = self._worth(self.points[0])
        seen = {e.output for e in slopes}
        for output in (x for x in known_outputs().values() if x.name in seen):
            rows = [e for e in slopes if e.output == output.name][: self.shown.top]
            unit = "" if output.per or output.unit == "1" else f" ({output.unit})"
            yield ""
            yield f"{output.short}{unit}"
            yield Table(HEADS, [_row(e) for e in rows])

    def _ifs(self) -> Iterator[Part]:
        """The what-ifs: changes of all outputs, in per cent."""
        if not self.what_if:
            return
        names, known = list(next(iter(self.what_if.values()))), known_outputs()
        yield ""
        yield "What if"
        yield Table(
            (Column("change", left=True), *(Column(known[n].short, "%") for n in names)),
            [
                [label, *(f"{100 * change[n]:+.1f}" for n in names)]
                for label, change in self.what_if.items()
            ],
        )

    def _along(self) -> Iterator[Part]:
        """Slopes by number and point of the frontier, for both of its axes."""
        points = [at.point for at in self.points]
        heads = [
            Column(f"{float(p.plan.tp):.3g} GPUs", f"batch {float(p.workload.batch):.3g}")
            for p in points
        ]
        for name in AXES:
            at = [{e.path: e for e in self._worth(x) if e.output == name} for x in self.points]
            paths = dict.fromkeys(path for slopes in at for path in slopes)
            weights = {p: max(s[p].weight for s in at if p in s) for p in paths}
            first = sorted(weights, key=lambda p: -weights[p])[: self.shown.top]
            short = known_outputs()[name].short
            yield ""
            yield f"Elasticities of {short} along the frontier, cheapest first"
            yield Table(
                (Column("number", left=True), *heads),
                [[named(p), *(f"{s[p].slope:+.3f}" if p in s else "0" for s in at)] for p in first],
            )

    def _figure(self) -> "Figure":
        """A tornado of the first point: what 10 % more of each number does to each output."""
        from infer_jax.plots.style import words
        from infer_jax.plots.tornado import TornadoBar, plot_tornado

        slopes = worth(self.points[0].slopes, self.points[0].point.arch)
        slopes = [e for e in slopes if not e.path.endswith(FIXED)]
        seen, panels = {e.output for e in slopes}, {}
        for output in known_outputs().values():
            if output.name in seen and not output.drawn:
                rows = [e for e in slopes if e.output == output.name and e.weight > 1e-3]
                bars = [
                    TornadoBar(named(e.path), _kind(e.path), e.slope, 100 * e.tenth) for e in rows
                ]
                bars.sort(key=lambda bar: -abs(bar.length))
                panels[output.short] = bars[:BARS]
        point = self.points[0].point
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


def _where(point: Point) -> dict[str, object]:
    """GPUs and batch of a point."""
    plan = point.plan
    return {"gpus": plan.tp * plan.pp * plan.ep, "batch": point.workload.batch}


def _fields(e: Elasticity) -> dict[str, object]:
    return {**vars(e), "kinked": e.kinked}


def _kind(path: str) -> str:
    """What a number is of, in the words of the picture."""
    room = path.partition(".")[0]
    return {"arch": "model", "hardware": "hardware", "estimator": "estimator"}.get(
        room, "load and layout"
    )


def _row(e: Elasticity) -> list[str]:
    return [
        named(e.path),
        f"{e.value:.4g}",
        f"{e.slope:+.3f}",
        f"{e.below:+.2f}, {e.above:+.2f}" if e.kinked else "",
        f"{100 * e.jump:+.1f}" if abs(e.jump) > 1e-4 else "",
        _change(e.tenth),
        _change(e.double),
    ]


def _change(x: float) -> str:
    return "-" if np.isnan(x) else f"{100 * x:+.2f}"
