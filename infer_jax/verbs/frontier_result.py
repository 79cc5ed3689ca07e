"""The result of ``frontier``: its points, the preferred one, a table and a picture."""

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
from infer_jax.results import Column, Notes, Part, Table
from infer_jax.results.numbers import digits
from infer_jax.specs import Workload
from infer_jax.verbs import inputs
from infer_jax.verbs.frontier_page import FrontOf, page
from infer_jax.verbs.frontier_points import row
from infer_jax.verbs.pictures import brief, rents

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 25  # rows of the printed table
COLUMNS = (
    Column(""),
    Column("speed", "tok/s"),
    Column("cost", "$/Mtok"),
    Column("GPUs"),
    Column("batch", "requests"),
    Column("TP"),
    Column("PP"),
    Column("EP"),
    Column("MFU", "%"),
    Column("binds", left=True),
)


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
    def drawn(self) -> bool:
        """Whether there is a point to draw."""
        return self.preferred is not None

    @property
    def said(self) -> str:
        """The preferred point in a sentence, or why there is none."""
        if self.preferred is None:
            return self.why
        answer = point(self._row(self.preferred)).replace("\n", ", ")
        return f"{answer} of output."

    @property
    def liked(self) -> float:
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
            shown = self._shown(self.preferred)
            rows = [cells(self._row(int(i))) for i in shown]
            yield Table(COLUMNS, rows, int(np.flatnonzero(shown == self.preferred)[0]))
            yield ""
            some = f"{len(shown)} of {len(self.points)} points of the frontier"
            yield f"* the preferred point; {some}."
        yield Notes(self.notes)

    def _shown(self, preferred: int) -> Int[np.ndarray, " rows"]:
        """At most ``SHOWN`` rows, even in log speed, with both ends and the preferred one."""
        time = self.points.time
        if self.all:
            return np.arange(len(time))
        wanted = np.geomspace(time[0], time[-1], SHOWN - 1)
        near = [int(np.abs(np.log(time / t)).argmin()) for t in wanted]
        return np.unique([0, *near, len(time) - 1, preferred])[:SHOWN]

    def _figure(self) -> "Figure":
        """Speed against cost of the points, the preferred one marked.

        Raises:
            InputError: there is no point; matplotlib is not installed; a file that cannot be
                written.
        """
        if self.preferred is None:
            raise InputError("plot", "points", "none", "a frontier that has points")
        from infer_jax.plots import Curve, plot_frontier
        from infer_jax.plots.style import words

        asked = self.asked
        curve = Curve(self.points, self.preferred, words(point(self._row(self.preferred))))
        title = words(f"{asked.model.name} on {asked.system.title}: an ideal server")
        caption = words(dated(self._caption()))
        return plot_frontier({words(asked.system.name): curve}, title=title, caption=caption)

    def _page(self, figure: "Callable[[], Figure]") -> str:
        """The page of the frontier: its chart to point into, and its points."""
        if self.preferred is None:
            raise InputError("plot", "points", "none", "a frontier that has points")
        name = self.asked.system.name
        front = FrontOf(self.asked, self.points, self.notes)
        title = f"{self.asked.model.name} on {self.asked.system.title}: an ideal server"
        lead = f"The preferred point: {self.said}"
        return page({name: front}, title, lead, dated(self._caption()))

    def _caption(self) -> str:
        """What stands below the picture: lengths, format, price, and which dot is which."""
        work = self.work
        return (
            f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out; "
            f"weights in {brief(self.asked.model.quantisation)}; {rents([self.asked])}; an ideal "
            f"server, by {self.estimator}. {varied([self.points])} The dot has the largest "
            f"speed^{self.preference:g} / cost."
        )


def varied(every: Sequence[Grid]) -> str:
    """What differs along the curves of a picture, in a sentence."""
    chips = np.concatenate([np.asarray(points.chips) for points in every])
    low, high = f"{chips.min():g}", f"{chips.max():g}"
    gpus = f"number of GPUs ({low} to {high})" if low != high else f"layout of {low} GPUs"
    return f"Every point has the batch and the {gpus} that are cheapest at its speed."


def _number(row: Mapping[str, object], name: str) -> float:
    return float(cast(SupportsFloat, row.get(name, 1.0)))


def cells(row: Mapping[str, object]) -> list[str]:
    """A row of the printed table."""
    return [
        "*" if row["preferred"] else "",
        digits(_number(row, "speed_tokens_per_s"), 4),
        digits(_number(row, "output_cost_per_mtok_usd")),
        digits(_number(row, "gpus"), 4),
        digits(_number(row, "batch"), 4),
        *(digits(_number(row, name)) for name in ("tp", "pp", "ep")),
        digits(100 * _number(row, "mfu")),
        str(row["binds"]),
    ]


def point(row: Mapping[str, object]) -> str:
    """A point in two lines: its layout, and what it answers."""
    degrees = {name.upper(): _number(row, name) for name in ("tp", "pp", "ep")}
    split = " ".join(f"{name}{digits(x)}" for name, x in degrees.items() if x > 1) or "TP1"
    return (
        f"{_number(row, 'gpus'):g} GPUs ({split}), batch {_number(row, 'batch'):g}\n"
        f"{digits(_number(row, 'speed_tokens_per_s'))} tokens/s, "
        f"${digits(_number(row, 'output_cost_per_mtok_usd'))}/Mtok"
    )
