"""The result of ``frontier``, of one system or several: points, tables, pictures and pages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from infer_jax.errors import InputError
from infer_jax.estimators import Economics, Limit
from infer_jax.estimators.economics import Grid, GridInputs
from infer_jax.estimators.economics.grid import LARGEST, searched_grid
from infer_jax.estimators.estimate import decode_context
from infer_jax.pages.charts import chart_page
from infer_jax.planning.layout import ideal_layouts
from infer_jax.plots import Curve, plot_frontier
from infer_jax.plots.plan_chart import PlanChart, PlanPoint, chart_numbers
from infer_jax.plots.rendering import FigureResult, facts_caption
from infer_jax.plots.style import Figure, words
from infer_jax.results import Column, Notes, Section, number, option, percent, table
from infer_jax.results.numbers import digits
from infer_jax.results.problems import refuse
from infer_jax.specs import Workload, layout_label
from infer_jax.verbs import inputs, limits
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.option import either
from infer_jax.verbs.pictures import EstimatorResult, brief, lengths, rents
from infer_jax.verbs.progress import busy

ROWS = 25  # of the printed table
DEGREES = ("tp", "pp", "ep")
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
class FrontierResult(EstimatorResult):
    """The points that no other beats in both speed and cost, fastest first.

    ``points`` has their columns (speed, cost, chips, batch, ...), ``preferred`` the row with the
    largest speed^preference / cost; None where ``why`` says why there is no point.
    """

    rows_key = "rows"
    work: Workload
    evaluated: int
    points: Grid
    preference: float
    why: str
    all: bool
    notes: Sequence[str]

    @cached_property
    def preferred(self) -> int | None:
        """The row of the preferred point."""
        return self.points.preferred_row(self.preference) if len(self.points) else None

    @property
    def drawable(self) -> bool:
        """Whether there is a point to draw."""
        return self.preferred is not None

    def words(self) -> str:
        """The preferred point in two lines: its layout, and what it answers."""
        front, i = self.points, self.preferred
        assert i is not None
        return (
            f"{front.chips[i]:g} GPUs ({layout_words(front, i)}), batch {front.batch[i]:g}\n"
            f"{digits(front.speed[i])} tokens/s, ${digits(front.cost[i])}/Mtok"
        )

    def row(self, i: int) -> dict[str, object]:
        """One point with its layout and the terms of its time, by its names in JSON."""
        return {**self.points.row(i), "preferred": i == self.preferred}

    def sections(self) -> Iterator[Section]:
        """The points, the preferred one marked; at most 25 are printed unless all are asked for."""
        work, preferred = self.work, self.preferred
        yield f"{self.setup.model.name} on {self.setup.system.name}"
        yield self.trust.says
        yield {
            **self.names,
            "isl_tokens": work.isl,
            "osl_tokens": work.osl,
            "prefix_tokens": work.prefix,
            "context_tokens": float(decode_context(work)),
            "points": self.evaluated,
        }
        if preferred is None:
            yield {"rows": [], "preferred": None, "why": self.why}
            yield from ("", self.why)
        else:
            rows = [self.row(i) for i in range(len(self.points))]
            yield {"frontier_points": len(rows), "rows": rows, "preferred": rows[preferred]}
            printed = self._printed_rows(preferred)
            mark = [*printed].index(preferred)
            yield table([rows[i] for i in printed], (PREFERRED, *COLUMNS), mark)
            some = f"{len(printed)} of {len(rows)} points of the frontier"
            yield from ("", f"* the preferred point; {some}.")
        yield Notes(self.notes)

    def _printed_rows(self, preferred: int) -> Int[np.ndarray, " rows"]:
        """At most ``ROWS``, even in log speed, with both ends and the preferred one."""
        time = self.points.time
        if self.all:
            return np.arange(len(time))
        steps = np.geomspace(time[0], time[-1], ROWS - 1)
        nearest = [int(np.abs(np.log(time / t)).argmin()) for t in steps]
        return np.unique([0, *nearest, len(time) - 1, preferred])[:ROWS]

    def _figure(self) -> Figure:
        """Speed against cost of the points, the preferred one marked.

        Raises:
            InputError: there is no point; matplotlib is not installed; a file that cannot be
                written.
        """
        return _Picture({self.setup.system.name: self}).figure()

    def _page(self, figure: Callable[[], Figure]) -> str:
        """The page of the frontier: its chart to point into, and its points."""
        return _Picture({self.setup.system.name: self}).page(self.notes)


@dataclass(frozen=True, repr=False)
class FrontiersResult(FigureResult):
    """Frontiers by the system, and by the format where there are several: ``fronts``."""

    fronts: Mapping[str, FrontierResult]
    notes: Sequence[str]

    @property
    def drawable(self) -> bool:
        """Whether there is a point to draw."""
        return any(x.drawable for x in self.fronts.values())

    def rows(self) -> Sequence[Mapping[str, object]]:
        """Every point of every frontier, with its series, system and formats."""
        rows = list[Mapping[str, object]]()
        for label, x in self.fronts.items():
            own = {"hardware": x.setup.system.name, "formats": x.setup.model.quantisation}
            rows += [{"series": label, **own, **row} for row in x.rows()]
        return rows

    def sections(self) -> Iterator[Section]:
        """Ends and preferred point of each frontier, or every point where all are asked for."""
        first = next(iter(self.fronts.values()))
        yield f"{first.setup.model.name}: frontiers of {'; '.join(self.fronts)}"
        yield from dict.fromkeys(x.trust.says for x in self.fronts.values())
        answers = {label: dict(x.fields()) for label, x in self.fronts.items()}
        for answer in answers.values():
            del answer["notes"]  # which stand once below all
        yield {"frontiers": [{"series": label, **answer} for label, answer in answers.items()]}
        rows = [row for label, x in self.fronts.items() for row in _ends(label, x)]
        if rows:
            heads = Column("frontier", "", "frontier"), Column("point", "", "point")
            yield table(rows, (*heads, *COLUMNS))
        for label, x in self.fronts.items():
            if x.why:
                yield from ("", f"{label}: {x.why}")
        yield Notes(self.notes)

    def _figure(self) -> Figure:
        """Speed against cost of every frontier, the preferred points marked."""
        return _Picture(self.fronts).figure()

    def _page(self, figure: Callable[[], Figure]) -> str:
        """The page of the frontiers, whose chart is to point into."""
        return _Picture(self.fronts).page(self.notes)


def _ends(label: str, front: FrontierResult) -> Iterator[Mapping[str, object]]:
    """Rows of the table: three points, or all of them."""
    last, preferred = len(front.points) - 1, front.preferred
    if preferred is None:
        return
    points = [(last, "cheapest"), (preferred, "preferred"), (0, "fastest")]
    if front.all:
        points = [(i, "preferred" if i == preferred else "") for i in range(last + 1)]
    for i, name in points:
        yield {"frontier": label, "point": name, **front.row(i)}


class _Picture:
    """The frontiers that have points, by label, with the title and the caption of their picture.

    ``answer``: of the page, in a sentence.

    Raises:
        InputError: there is no point.
    """

    def __init__(self, fronts: Mapping[str, FrontierResult]) -> None:
        self.fronts = {label: x for label, x in fronts.items() if x.preferred is not None}
        if not self.fronts:
            raise InputError("plot", "points", "none", "a frontier that has points")
        results, self.several = [*fronts.values()], len(fronts) > 1
        first, work, model = results[0], results[0].work, results[0].setup.model.name
        power = f"speed^{first.preference:g} / cost"
        utilities = {
            label: x.points.speed[x.preferred] ** x.preference / x.points.cost[x.preferred]
            for label, x in self.fronts.items()
        }
        best = max(utilities, key=lambda label: utilities[label])
        self.title = f"{model} on {first.setup.system.title}: an ideal server"
        server, dot, answer = "an ideal server", "The dot has", "The preferred point"
        if self.several:
            systems = ", ".join(dict.fromkeys(x.setup.system.name for x in results))
            self.title = f"{model} on {systems}: ideal servers"
            server, dot = "ideal servers", "Dots have"
            answer = f"Of all points {best} has the largest {power}"
        words = self.fronts[best].words().replace("\n", ", ")
        reasons = [f"{label}: {x.why}" for label, x in fronts.items() if x.why]
        self.answer = " ".join([f"{answer}: {words} of output.", *reasons])
        chips = np.concatenate([x.points.chips for x in self.fronts.values()])
        low, high = f"{chips.min():g}", f"{chips.max():g}"
        gpus = f"number of GPUs ({low} to {high})" if low != high else f"layout of {low} GPUs"
        formats = dict.fromkeys(brief(x.setup.model.quantisation) for x in results)
        facts = f"weights in {', '.join(formats)}", rents([x.setup for x in results])
        self.caption = facts_caption(
            (lengths(work), *facts, f"{server}, by {first.estimator}"),
            f"Every point has the batch and the {gpus} that are cheapest at its speed.",
            f"{dot} the largest {power}.",
        )

    def figure(self) -> Figure:
        """The picture; of a single frontier with the words of its preferred point."""

        curves: dict[str, Curve] = {}
        for label, x in self.fronts.items():
            text = "" if self.several else words(x.words())
            curves[words(label)] = Curve(x.points.speed, x.points.cost, x.preferred, text)
        return plot_frontier(curves, title=self.title, caption=self.caption)

    def page(self, notes: Sequence[str]) -> str:
        """The page, a series for each frontier."""
        plans = [plan for label, x in self.fronts.items() for plan in ideal_points(label, x.points)]
        systems = {label: x.setup.system.name for label, x in self.fronts.items()}
        chart = PlanChart.of(plans, systems, None, label=self.title)
        notes = [self.caption, *dict.fromkeys(notes)]
        return chart_page(chart, title=self.title, lead=self.answer, notes=notes)


def layout_words(front: Grid, i: int, written: Callable[[float], str] = digits) -> str:
    """The degrees of a point that are more than 1."""
    degrees = {name: float(front.layout[name][i]) for name in DEGREES if name in front.layout}
    return layout_label(degrees, written)


def ideal_points(label: str, front: Grid, command: str = "") -> list[PlanPoint]:
    """The points of a frontier of ideal servers as the chart shows them: decode alone."""
    return [
        PlanPoint(
            series=label,
            layout=layout_words(front, i, "{:g}".format),
            gpus=float(front.chips[i]),
            batch=float(front.batch[i]),
            numbers=chart_numbers(None, time, 0.0, None, rate, float(front.cost[i])),
            command=command,
        )
        for i, time in enumerate(front.time.tolist())
        for rate in [float(front.batch[i] / time / front.chips[i])]
    ]


PAPERS = "economics.level4"  # the estimator of the economics paper
PREFIX = "The cached prefix shortens prefill alone; this frontier is of decode."
PLANNED = "economics.planned"  # of ideal servers at layouts that are given


class FrontierSearch(NamedTuple):
    """The estimator, the drafts and the grid whose points are evaluated, and their limits.

    ``engine_degrees``: degrees are those that engines run, and not real numbers; ``total``: GPUs;
    ``demand``: tokens/s over all requests; ``tpot``: seconds per token; ``preference``: the
    exponent of the preferred point; ``all``: every row is printed.
    """

    estimator: str = PLANNED
    engine_degrees: bool = True
    paper: bool = False
    draft: str | None = None
    acceptance: float | None = None
    total: float | None = None
    demand: float | None = None
    tpot: float | None = None
    preference: float = 3.0
    all: bool = False


def why_nothing(grid: Grid, demand: float | None = None, tpot: float | None = None) -> str:
    """Why no point of the grid is within the limits, in one sentence."""
    if not grid.feasible.any():
        over = [v.need / np.maximum(v.capacity, 1e-300) for v in grid.limits.values()]
        # the largest number of GPUs, the smallest batch, and its layout that is short by the least
        i = int(np.lexsort((np.max(over, axis=0), grid.batch, -grid.chips))[0])
        nearest = {k: Limit(need=v.need[i], capacity=v.capacity[i]) for k, v in grid.limits.items()}
        short = "; ".join(limits.broken(k, v) for k, v in nearest.items() if v.need > v.capacity)
        size = f"{grid.chips[i]:.12g} GPUs and a batch of {grid.batch[i]:.12g}"
        return f"Nothing fits: even with {size}, {short}."
    within = grid.under(demand)
    if not len(within):
        able = grid.under()
        rate = float((able.batch / able.time).min())
        return f"Nothing serves so little as {demand:g} tokens/s: the least is {rate:.4g} tokens/s."
    fastest = 1e3 * float(within.time.min())
    return f"Nothing is within {1e3 * (tpot or 0):g} ms: the fastest takes {fastest:.4g} ms."


def ideal_frontier(setup: Setup, work: Workload, search: FrontierSearch) -> FrontierResult:
    """The frontier of ideal servers of one system and format."""
    name, paper, arch = search.estimator, search.paper, setup.model.architecture
    ideal = inputs.estimator(name, setup)
    if not (search.engine_degrees or ideal.searches):
        raise refuse("estimator", name, "one that searches the split, such as economics")
    trust, drafts = inputs.trust(name, ideal, setup), (search.draft, search.acceptance)
    ideal, drafting = inputs.speculative(ideal, *drafts, paper=paper)
    economics = ideal.innermost
    if paper and not isinstance(economics, Economics):
        allowed = f"economics or a variant of it, with {option('paper')}"
        raise refuse("estimator", economics.table, allowed)
    kind, degrees = "numbers of GPUs", "real numbers that its search finds"
    given, total, legal = GridInputs(ideal, arch, setup.hardware, work), search.total, None
    with busy("compiling and evaluating"):
        if search.engine_degrees:
            legal = ideal_layouts(arch, either(total, LARGEST))
            kind, degrees = "layouts", "degrees that engines run"
        grid, tried, batches = searched_grid(given, legal, total, paper=paper)
    front = grid.under(search.demand)
    if len(front):
        front = front.thresholds() if paper else front.frontier()
        front = front.take(front.time <= either(search.tpot, np.inf))
    return FrontierResult(
        setup=setup,
        estimator=name,
        trust=trust,
        work=work,
        evaluated=len(grid),
        points=front,
        preference=search.preference,
        why="" if len(front) else why_nothing(grid, search.demand, search.tpot),
        all=search.all,
        notes=[
            *limits.unlikely_times({"tpot": search.tpot}),
            f"Decode at {float(decode_context(work)):.12g} tokens of context, isl + (osl - 1) / 2.",
            f"Over {tried} {kind} of up to {grid.chips.max():.12g} GPUs, each at "
            f"{batches} batches; TP, PP and EP are {degrees}.",
            *drafting,
            *setup.notes,
            *([PREFIX] if float(work.prefix) else []),
        ],
    )
