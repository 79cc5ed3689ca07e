"""The result of ``frontier``, of one system or several: points, tables, pictures and pages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, SupportsFloat, cast

import numpy as np
from jaxtyping import Int

from infer_jax.errors import InputError
from infer_jax.estimators import Trust
from infer_jax.estimators.economics import Grid
from infer_jax.estimators.estimate import decode_context
from infer_jax.plots.pictured import Pictured, dated
from infer_jax.plots.plan_chart import PlanChart, PlanPoint
from infer_jax.results import Column, Notes, Part, number, percent, table
from infer_jax.results.numbers import digits
from infer_jax.specs import Workload
from infer_jax.verbs import inputs
from infer_jax.verbs.frontier_points import row
from infer_jax.verbs.pictures import brief, rents

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 25  # of the printed table
ENDS = "cheapest", "preferred", "fastest"
COLUMNS = (
    Column("speed", "tok/s", "speed_tokens_per_s", number),
    Column("cost", "$/Mtok", "output_cost_per_mtok_usd"),
    Column("GPUs", "", "gpus", number),
    Column("batch", "requests", "batch", number),
    Column("TP", "", lambda row: row.get("tp", 1.0)),
    Column("PP", "", lambda row: row.get("pp", 1.0)),
    Column("EP", "", lambda row: row.get("ep", 1.0)),
    Column("MFU", "%", "mfu", percent),
    Column("binds", "", "binds"),
)
PREFERRED = Column("", "", lambda row: "*" if row["preferred"] else "", left=False)


@dataclass(frozen=True, repr=False)
class FrontierResult(Pictured):
    """The points that no other beats in both speed and cost, fastest first.

    ``points`` has their columns (speed, cost, chips, batch, ...), ``preferred`` the row with the
    largest speed^preference / cost; None where ``why`` says why there is no point.
    """

    asked: inputs.Given
    estimator: str
    trust: Trust
    work: Workload
    evaluated: int
    points: Grid
    preference: float
    why: str
    all: bool
    notes: Sequence[str]
    pictured: bool = False  # whether a picture was asked for
    picture: str | None = None  # the file it was written to

    @cached_property
    def preferred(self) -> int | None:
        """The row of the preferred point."""
        return self.points.preferred(self.preference) if len(self.points) else None

    @property
    def drawable(self) -> "Mapping[str, FrontierResult]":
        """Itself by its system, if it has a point."""
        return {} if self.preferred is None else {self.asked.system.name: self}

    def words(self) -> str:
        """The preferred point in two lines: its layout, and what it answers."""
        assert self.preferred is not None
        return point(self._row(self.preferred))

    @property
    def utility(self) -> float:
        """speed^preference / cost of the preferred point."""
        front, i = self.points, self.preferred
        return 0.0 if i is None else float(front.speed[i] ** self.preference / front.cost[i])

    def rows(self) -> list[Mapping[str, object]]:
        """Every point with its layout and the terms of its time."""
        return [self._row(i) for i in range(len(self.points))]

    def _row(self, i: int) -> dict[str, object]:
        return row(self.points, i, preferred=i == self.preferred)

    def fields(self) -> Mapping[str, object]:
        """What was asked, then every point; names end in their units."""
        work = self.work
        asked = {
            **self.asked.names,
            "estimator": self.estimator,
            "trust": self.trust.fields(),
            "isl_tokens": work.isl,
            "osl_tokens": work.osl,
            "prefix_tokens": work.prefix,
            "context_tokens": float(decode_context(work)),
            "points": self.evaluated,
        }
        notes = {"notes": list(self.notes)}
        if self.preferred is None:
            return {**asked, "rows": [], "preferred": None, "why": self.why, **notes}
        return {
            **asked,
            "frontier_points": len(self.points),
            "rows": self.rows(),
            "preferred": self._row(self.preferred),
            **({"picture": self.picture} if self.pictured else {}),
            **notes,
        }

    def parts(self) -> Iterator[Part]:
        """The points, the preferred one marked; at most 25 unless all are asked for."""
        yield f"{self.asked.model.name} on {self.asked.system.name}"
        yield self.trust.says
        if self.preferred is None:
            yield ""
            yield self.why
        else:
            shown = self._visible_rows(self.preferred)
            rows = [self._row(int(i)) for i in shown]
            yield table(rows, (PREFERRED, *COLUMNS), [*shown].index(self.preferred))
            yield ""
            some = f"{len(shown)} of {len(self.points)} points of the frontier"
            yield f"* the preferred point; {some}."
        yield Notes(self.notes)

    def _visible_rows(self, preferred: int) -> Int[np.ndarray, " rows"]:
        """At most ``ROWS``, even in log speed, with both ends and the preferred one."""
        time = self.points.time
        if self.all:
            return np.arange(len(time))
        steps = np.geomspace(time[0], time[-1], ROWS - 1)
        nearest = [int(np.abs(np.log(time / t)).argmin()) for t in steps]
        return np.unique([0, *nearest, len(time) - 1, preferred])[:ROWS]

    def _title(self) -> str:
        return f"{self.asked.model.name} on {self.asked.system.title}: an ideal server"

    def _figure(self) -> "Figure":
        """Speed against cost of the points, the preferred one marked.

        Raises:
            InputError: there is no point; matplotlib is not installed; a file that cannot be
                written.
        """
        return draw(self.drawable, self._title(), named=True)

    def _page(self, figure: "Callable[[], Figure]") -> str:
        """The page of the frontier: its chart to point into, and its points."""
        fronts = with_points(self.drawable)
        lead = f"The preferred point: {self.words().replace(chr(10), ', ')} of output."
        return page(fronts, self._title(), lead, self.notes)


@dataclass(frozen=True, repr=False)
class FrontiersResult(Pictured):
    """Frontiers by the system, and by the format where there are several: ``fronts``."""

    fronts: Mapping[str, FrontierResult]
    notes: Sequence[str]
    pictured: bool = False  # whether a picture was asked for
    picture: str | None = None  # the file it was written to

    @classmethod
    def of(cls, fronts: Mapping[str, FrontierResult]) -> "FrontiersResult":
        """What the frontiers have in common stands once."""
        notes = dict.fromkeys(note for x in fronts.values() for note in x.notes)
        return cls(fronts, [*notes], any(x.pictured for x in fronts.values()))

    @property
    def drawable(self) -> Mapping[str, FrontierResult]:
        """Those that have points."""
        return {label: x for label, x in self.fronts.items() if x.preferred is not None}

    def fields(self) -> Mapping[str, object]:
        """Every frontier as ``frontier`` answers it by itself, with its label."""
        shared = ("notes", "picture")
        frontiers = [
            {"series": label, **{k: v for k, v in x.fields().items() if k not in shared}}
            for label, x in self.fronts.items()
        ]
        picture = {"picture": self.picture} if self.pictured and self.drawable else {}
        return {"frontiers": frontiers, **picture, "notes": list(self.notes)}

    def rows(self) -> Sequence[Mapping[str, object]]:
        """Every point of every frontier, with its series, system and formats."""
        return [
            {
                "series": label,
                "hardware": x.asked.system.name,
                "formats": x.asked.model.quantisation,
                **row,
            }
            for label, x in self.fronts.items()
            for row in x.rows()
        ]

    def parts(self) -> Iterator[Part]:
        """Ends and preferred point of each frontier, or every point where all are asked for."""
        first = next(iter(self.fronts.values()))
        yield f"{first.asked.model.name}: frontiers of {'; '.join(self.fronts)}"
        yield from dict.fromkeys(x.trust.says for x in self.fronts.values())
        rows = [row for label, x in self.drawable.items() for row in _ends(label, x)]
        if rows:
            heads = Column("frontier", "", "frontier"), Column("point", "", "point")
            yield table(rows, (*heads, *COLUMNS))
        for label, x in self.fronts.items():
            if x.why:
                yield ""
                yield f"{label}: {x.why}"
        yield Notes(self.notes)

    def _title(self) -> str:
        first = next(iter(self.fronts.values()))
        systems = dict.fromkeys(x.asked.system.name for x in self.fronts.values())
        return f"{first.asked.model.name} on {', '.join(systems)}: ideal servers"

    def _figure(self) -> "Figure":
        """Speed against cost of every frontier, the preferred points marked."""
        return draw(self.drawable, self._title(), named=False, every=self.fronts)

    def _page(self, figure: "Callable[[], Figure]") -> str:
        """The page of the frontiers, whose chart is to point into."""
        drawable = with_points(self.drawable)
        best = max(drawable, key=lambda label: drawable[label].utility)
        power = f"speed^{drawable[best].preference:g} / cost"
        words = drawable[best].words().replace("\n", ", ")
        lead = f"Of all points {best} has the largest {power}: {words} of output."
        more = [f"{label}: {x.why}" for label, x in self.fronts.items() if x.why]
        notes = dict.fromkeys(note for x in drawable.values() for note in x.notes)
        return page(drawable, self._title(), " ".join([lead, *more]), [*notes], self.fronts)


def _ends(label: str, front: FrontierResult) -> list[Mapping[str, object]]:
    """Rows of the table: three points, or all of them."""
    rows, preferred = front.rows(), front.preferred
    shown = list(zip((len(rows) - 1, preferred, 0), ENDS, strict=True))
    if front.all:
        shown = [(i, "preferred" if i == preferred else "") for i in range(len(rows))]
    return [{"frontier": label, "point": name, **rows[i]} for i, name in shown if i is not None]


def with_points(fronts: Mapping[str, FrontierResult]) -> Mapping[str, FrontierResult]:
    """The frontiers, of which there is one at least.

    Raises:
        InputError: there is no point.
    """
    if not fronts:
        raise InputError("plot", "points", "none", "a frontier that has points")
    return fronts


def draw(
    fronts: Mapping[str, FrontierResult],
    title: str,
    *,
    named: bool,
    every: Mapping[str, FrontierResult] | None = None,
) -> "Figure":
    """The picture of frontiers; ``named``: with the words of their preferred points.

    ``every``: also those without points, which the caption counts.
    """
    with_points(fronts)
    from infer_jax.plots import Curve, plot_frontier
    from infer_jax.plots.style import words

    curves = {
        words(label): Curve(x.points, x.preferred, words(x.words()) if named else "")
        for label, x in fronts.items()
    }
    return plot_frontier(curves, title=words(title), caption=words(caption(fronts, every)))


def page(
    fronts: Mapping[str, FrontierResult],
    title: str,
    lead: str,
    notes: Sequence[str],
    every: Mapping[str, FrontierResult] | None = None,
) -> str:
    """The page of frontiers that have points, a series for each; ``lead`` is the answer."""
    from infer_jax.pages.decision import chart_page  # which loads the library of charts

    plans = [point for label, x in fronts.items() for point in ideal_points(label, x.points)]
    systems = {label: x.asked.system.name for label, x in fronts.items()}
    chart = PlanChart.of(plans, systems, None, label=title)
    return chart_page(chart, title=title, lead=lead, notes=[caption(fronts, every), *notes])


def caption(
    fronts: Mapping[str, FrontierResult], every: Mapping[str, FrontierResult] | None
) -> str:
    """What stands below the picture: lengths, formats, prices, and which dot is which."""
    results = [*(every or fronts).values()]
    first, work, several = results[0], results[0].work, every is not None
    formats = dict.fromkeys(brief(x.asked.model.quantisation) for x in results)
    server, dot = ("ideal servers", "Dots have") if several else ("an ideal server", "The dot has")
    return dated(
        f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out; "
        f"weights in {', '.join(formats)}; {rents([x.asked for x in results])}; {server}, by "
        f"{first.estimator}. {varied([x.points for x in fronts.values()])} {dot} the largest "
        f"speed^{first.preference:g} / cost."
    )


def ideal_points(label: str, front: Grid, command: str = "") -> list[PlanPoint]:
    """The points of a frontier of ideal servers as the chart shows them: decode alone."""
    degrees = {name: front.layout[name] for name in ("tp", "pp", "ep") if name in front.layout}
    return [
        PlanPoint(
            series=label,
            layout=" ".join(f"{k.upper()}{float(x[i]):g}" for k, x in degrees.items() if x[i] > 1)
            or "TP1",
            gpus=float(front.chips[i]),
            batch=float(front.batch[i]),
            numbers={
                "speed": float(front.speed[i]),
                "latency": None,
                "ttft": None,
                "tpot": 1e3 * float(front.time[i]),
                "usd": None,
                "usd_out": float(front.cost[i]),
                "rate": float(front.batch[i] / front.time[i] / front.chips[i]),
            },
            command=command,
        )
        for i in range(len(front))
    ]


def varied(every: Sequence[Grid]) -> str:
    """What differs along the curves of a picture, in a sentence."""
    chips = np.concatenate([np.asarray(points.chips) for points in every])
    low, high = f"{chips.min():g}", f"{chips.max():g}"
    gpus = f"number of GPUs ({low} to {high})" if low != high else f"layout of {low} GPUs"
    return f"Every point has the batch and the {gpus} that are cheapest at its speed."


def _number(row: Mapping[str, object], name: str) -> float:
    return float(cast(SupportsFloat, row.get(name, 1.0)))


def point(row: Mapping[str, object]) -> str:
    """A point in two lines: its layout, and what it answers."""
    degrees = {name.upper(): _number(row, name) for name in ("tp", "pp", "ep")}
    split = " ".join(f"{name}{digits(x)}" for name, x in degrees.items() if x > 1) or "TP1"
    return (
        f"{_number(row, 'gpus'):g} GPUs ({split}), batch {_number(row, 'batch'):g}\n"
        f"{digits(_number(row, 'speed_tokens_per_s'))} tokens/s, "
        f"${digits(_number(row, 'output_cost_per_mtok_usd'))}/Mtok"
    )
