"""Which comparisons does the economics paper draw, and what is the frontier of each setting?

The names are those of the authors' program: "comparison | setting". A front is drawn as the
program draws it: a 400 x 400 grid of chips and batches, 1000 log-spaced latency limits, the
cheapest configuration within each, repeated rows removed.
"""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments._columns import difference, printed_rows
from infer_jax.catalog.foreign import read_json
from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.errors import InputError
from infer_jax.estimators import Economics, Speculative
from infer_jax.estimators.economics import Grid, evaluate, paper_axes
from infer_jax.physics import decoder
from infer_jax.physics.feedforward import floored_sparsity
from infer_jax.specs import Architecture, Experts, Hardware, Workload

TOLERANCE = 1e-3  # of a stored point, relative
STRIDE = 40  # the program's output stores every 40th point
ACCEPTANCE = 0.8


class Setting(NamedTuple):
    """One curve: a model on a chip at a context length, with or without a draft model."""

    model: str
    gpu: str
    context: float
    draft: str
    multi_query: bool  # of the draft


COMPARISONS: dict[str, dict[str, Setting]] = {}
# drafts that are never accepted are never made: the settings without speculation need none
for _row in printed_rows("economics_comparisons.csv"):
    _texts = (_row["model"], _row["gpu"], float(_row["context"]), _row["draft"])
    _setting = Setting(*_texts, _row["multi_query"] == "1")
    COMPARISONS.setdefault(_row["comparison"], {})[_row["setting"]] = _setting


class Front(NamedTuple):
    """The cheapest configuration within each latency limit, fastest first."""

    points: Grid
    preferred: int

    @property
    def best(self) -> dict[str, float]:
        """Speed, cost, chips, batch and MFU of the preferred point."""
        return _point(self.points, self.preferred)

    @property
    def fastest(self) -> dict[str, float]:
        """Speed, cost, chips, batch and MFU of the fastest point."""
        return _point(self.points, 0)

    def at_cost(self, usd: float, column: str = "speed") -> float:
        """Tokens/s (or chips) at a cost, between the points of the front in logarithm."""
        costs, values = self.points.cost[::-1], getattr(self.points, column)[::-1]
        return float(np.exp(np.interp(np.log(usd), np.log(costs), np.log(values))))


def _point(grid: Grid, i: int) -> dict[str, float]:
    names = ("speed", "cost", "chips", "batch", "mfu")
    return {name: float(getattr(grid, name)[i]) for name in names}


def draw(
    arch: Architecture, hardware: Hardware, model: Economics, context: float, draft: Any = None
):
    """The evaluated grid of one setting in float64, with or without a draft model.

    The program's grid: chips from those that hold the weights, batches up to 2^18 S.
    """
    estimator = model if draft is None else Speculative.economics(model, draft, ACCEPTANCE)
    with jax.enable_x64(True):
        held = sum(map(float, decoder.weight_bytes(arch, model.laws.projections).values()))
        routed = arch.blocks[0].feedforward
        share = float(floored_sparsity(routed, None)) if isinstance(routed, Experts) else 1.0
        axes = paper_axes(held / float(hardware.chip.memory), share)
        return evaluate(estimator, arch, hardware, Workload.of(isl=context), *axes)


def front_of(grid: Grid) -> Front:
    """The front of a grid as the program draws it, repeated rows removed."""
    points = grid.under().thresholds()
    return Front(points, points.preferred_row())


@cache
def front(setting: Setting) -> Front:
    """The front of a setting at level 4."""
    hardware, coefficients = economics_hardware(setting.gpu)
    model = Economics.level4().fitted(coefficients)
    many = setting.multi_query
    draft = economics_model(setting.draft, multi_query=many) if setting.draft else None
    arch = economics_model(setting.model)
    return front_of(draw(arch, hardware, model, setting.context, draft))


def fronts_of(comparison: str) -> dict[str, Front]:
    """The fronts of a comparison by the labels of its settings."""
    return {label: front(setting) for label, setting in COMPARISONS[comparison].items()}


class Agreement(NamedTuple):
    """How well a front agrees with stored points: how many, and the worst relative error."""

    name: str
    points: int
    worst: float

    @property
    def agrees(self) -> bool:
        """True where every figure is within the tolerance."""
        return self.worst <= TOLERANCE


FIGURES = {
    "max_tok_s": ("fastest", "speed"),
    "max_gpus": ("fastest", "chips"),
    "max_batch": ("fastest", "batch"),
    "pref_tok_s": ("best", "speed"),
    "pref_usd": ("best", "cost"),
    "pref_gpus": ("best", "chips"),
    "pref_batch": ("best", "batch"),
    "pref_util": ("best", "mfu"),
}


def stored(path: str | Path) -> dict[str, Any]:
    """A file of stored fronts, its names and fields checked.

    Raises:
        InputError: unreadable, a comparison the paper has not, or a field that is no number.
    """
    table = read_json(path)
    names = [f"{c} | {label}" for c, settings in COMPARISONS.items() for label in settings]
    for name, row in table.items():
        if name not in names:
            raise InputError(str(path), "comparison", name, "; ".join(names))
        try:
            _theirs(row)
        except (AttributeError, KeyError, TypeError, ValueError):
            allowed = f"numbers {', '.join(FIGURES)}, and front: a list of rows of five numbers"
            raise InputError(str(path), name, "something else", allowed) from None
    return table


def _theirs(row: Any) -> tuple[list[float], list[list[float]]]:
    """The figures of a stored front, and its points."""
    points = [[float(x) for x in point] for point in row.get("front", [])]
    if any(len(point) != 5 for point in points):
        raise ValueError("not five numbers")
    return [float(row[key]) for key in FIGURES], points


def compare(name: str, row: dict[str, Any]) -> Agreement:
    """A stored front beside ours, figure by figure."""
    comparison, label = name.split(" | ")
    ours, (figures, points) = front(COMPARISONS[comparison][label]), _theirs(row)
    own = [getattr(ours, which)[column] for which, column in FIGURES.values()]
    thinned = range(0, len(ours.points.time), STRIDE)
    if points and len(points) != len(thinned):
        return Agreement(name, len(points), float("inf"))
    for i in thinned[: len(points)]:
        own += _point(ours.points, i).values()
    theirs = [*figures, *(x for point in points for x in point)]
    return Agreement(name, len(points) + 2, max(map(difference, theirs, own)))
