"""The page of frontiers: a chart to point into, a series for each system and format."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from infer_jax.estimators.economics import Grid
from infer_jax.pages.tradeoff import PlanSeries, Plotted, Tradeoff

if TYPE_CHECKING:
    from infer_jax.verbs.inputs import Given


class FrontOf(NamedTuple):
    """The points of one system and format, and what was assumed."""

    given: "Given"
    points: Grid
    notes: Sequence[str]


def plotted(label: str, front: Grid, command: str = "") -> list[Plotted]:
    """The points of a frontier of ideal servers as the chart shows them: decode alone."""
    degrees = {name: front.layout[name] for name in ("tp", "pp", "ep") if name in front.layout}
    return [
        Plotted(
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


def page(fronts: Mapping[str, FrontOf], title: str, lead: str, caption: str) -> str:
    """The page of frontiers that have points, by their labels; ``lead`` is the answer."""
    from infer_jax.pages.decision import alone  # which loads the library of charts

    systems = [*dict.fromkeys(one.given.system.name for one in fronts.values())]
    tones = {label: systems.index(one.given.system.name) for label, one in fronts.items()}
    plans = [plan for label, one in fronts.items() for plan in plotted(label, one.points)]
    series = [PlanSeries(label, tone) for label, tone in tones.items()]
    shown = Tradeoff(series, plans, None, label=title)
    notes = dict.fromkeys(note for one in fronts.values() for note in one.notes)
    return alone(shown, title=title, lead=lead, notes=[caption, *notes])
