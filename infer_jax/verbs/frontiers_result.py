"""The result of ``frontier`` over several systems or formats: a table, and one picture of all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infer_jax.errors import InputError
from infer_jax.plots.pictured import Pictured, dated
from infer_jax.results import Column, Notes, Part, Table
from infer_jax.verbs.frontier_page import FrontOf, page
from infer_jax.verbs.frontier_result import COLUMNS, FrontierResult, cells, varied
from infer_jax.verbs.pictures import brief, rents

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDS = "cheapest", "preferred", "fastest"


@dataclass(frozen=True, repr=False)
class FrontiersResult(Pictured):
    """Frontiers by the system, and by the format where there are several: ``fronts``."""

    fronts: Mapping[str, FrontierResult]
    notes: Sequence[str]
    pictured: bool = False  # whether a picture was asked for
    picture: str | None = None  # the file it was written to

    @classmethod
    def of(cls, fronts: Mapping[str, FrontierResult]) -> "FrontiersResult":
        """What the frontiers have in common is said once."""
        notes = dict.fromkeys(note for one in fronts.values() for note in one.notes)
        pictured = any(one.pictured for one in fronts.values())
        return cls(fronts, [*notes], pictured)

    @property
    def drawn(self) -> Mapping[str, FrontierResult]:
        """Those that have points."""
        return {label: one for label, one in self.fronts.items() if one.drawn}

    def fields(self) -> Mapping[str, object]:
        """Every frontier as ``frontier`` answers it alone, with its label."""
        shared = ("notes", "picture")
        each = [
            {"series": label, **{k: x for k, x in one.fields().items() if k not in shared}}
            for label, one in self.fronts.items()
        ]
        picture = {"picture": self.picture} if self.pictured and self.drawn else {}
        return {"frontiers": each, **picture, "notes": list(self.notes)}

    def rows(self) -> Sequence[Mapping[str, object]]:
        """Every point of every frontier, with its series, system and formats."""
        return [
            {
                "series": label,
                "hardware": one.asked.system.name,
                "formats": one.asked.model.quantisation,
                **row,
            }
            for label, one in self.fronts.items()
            for row in one.rows()
        ]

    def parts(self) -> Iterator[Part]:
        """Ends and preferred point of each frontier, or every point where all are asked for."""
        first = next(iter(self.fronts.values()))
        yield f"{first.asked.model.name}: frontiers of {'; '.join(self.fronts)}"
        yield from dict.fromkeys(one.trust.says for one in self.fronts.values())
        rows = [row for label, one in self.drawn.items() for row in _rows(label, one)]
        if rows:
            heads = Column("frontier", left=True), Column("point", left=True)
            yield Table((*heads, *COLUMNS[1:]), rows)
        for label, one in self.fronts.items():
            if one.why:
                yield ""
                yield f"{label}: {one.why}"
        yield Notes(self.notes)

    def _title(self) -> str:
        first = next(iter(self.fronts.values()))
        systems = dict.fromkeys(one.asked.system.name for one in self.fronts.values())
        return f"{first.asked.model.name} on {', '.join(systems)}: ideal servers"

    def _caption(self) -> str:
        """Lengths, formats, prices, the estimator, and which dot is which."""
        every = [*self.fronts.values()]
        work, first = every[0].work, every[0]
        formats = dict.fromkeys(brief(one.asked.model.quantisation) for one in every)
        along = varied([one.points for one in self.drawn.values()])
        return dated(
            f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out; "
            f"weights in {', '.join(formats)}; {rents([one.asked for one in every])}; ideal "
            f"servers, by {first.estimator}. {along} Dots have the largest "
            f"speed^{first.preference:g} / cost."
        )

    def _figure(self) -> "Figure":
        """Speed against cost of every frontier, the preferred points marked."""
        if not self.drawn:
            raise InputError("plot", "points", "none", "a frontier that has points")
        from infer_jax.plots import Curve, plot_frontier
        from infer_jax.plots.style import words

        curves = {words(label): Curve(x.points, x.preferred) for label, x in self.drawn.items()}
        return plot_frontier(curves, title=words(self._title()), caption=words(self._caption()))

    def _page(self, figure: "Callable[[], Figure]") -> str:
        """The page of the frontiers, whose chart is to point into."""
        if not self.drawn:
            raise InputError("plot", "points", "none", "a frontier that has points")
        fronts = {
            label: FrontOf(one.asked, one.points, one.notes) for label, one in self.drawn.items()
        }
        liked = {label: one.liked for label, one in self.drawn.items()}
        best = max(liked, key=lambda label: liked[label])
        power = f"speed^{self.drawn[best].preference:g} / cost"
        lead = f"Of all points {best} has the largest {power}: {self.drawn[best].said}"
        more = [f"{label}: {one.why}" for label, one in self.fronts.items() if one.why]
        return page(fronts, self._title(), " ".join([lead, *more]), self._caption())


def _rows(label: str, front: FrontierResult) -> list[list[str]]:
    """Rows of the table: three points, or all of them."""
    rows, liked = front.rows(), front.preferred
    last = len(rows) - 1
    if front.all:
        shown = [(i, "preferred" if i == liked else "") for i in range(len(rows))]
    else:
        shown = [(at, name) for at, name in zip((last, liked, 0), ENDS, strict=True)]
    return [[label, name, *cells(rows[at])[1:]] for at, name in shown if at is not None]
