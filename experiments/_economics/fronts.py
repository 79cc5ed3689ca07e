"""Which comparisons does the economics paper draw, and what is the frontier of each setting?

The names are those of the authors' program: "comparison | setting". A front is drawn as the
program draws it: a 400 x 400 grid of chips and batches, 1000 log-spaced latency limits, the
cheapest configuration within each, repeated rows removed.

Are the paper's tables ours to the printed digit? 1, 2, 3, 4 and 6; 5 beside. Printed figures:
Erdil 2025 (arXiv 2506.04645), Tables 1 to 6, in ``tests/golden/economics_tables.csv``.
"""

from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments._columns import difference, printed_rows
from experiments._report import show, verdict
from infer_jax.catalog.foreign import read_json
from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.errors import InputError
from infer_jax.estimators import Economics, Speculative
from infer_jax.estimators.economics import Grid, evaluate, paper_axes
from infer_jax.physics import decoder
from infer_jax.physics.feedforward import floored_sparsity
from infer_jax.physics.network.collectives import fastest_instance
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


TITLES = {
    1: "most tokens/s and its instance, weights and all-reduce latency only",
    2: "most tokens/s and its instance, level 4 with a draft of Llama 3 8B",
    3: "preferred points of the same",
    4: "most tokens/s of Llama 3 70B (8-bit) by GPU, level 4",
    5: "preferred points with (S) and without speculation",
    6: "preferred points of Llama 3 70B by weight format",
}
NOT_COMPARED = {
    5: "Not compared: the paper printed figures of an older version of its model. The authors' "
    "released program gives, as level 4 does, the figures on the right."
}
BANDWIDTH = 3.3e12  # bytes/s of one H100 in Table 1, with no cap
REDUCES = 4.0  # all-reduces a layer, of every model of Table 1


class Column(NamedTuple):
    """A printed column: its field and name, its decimals and what stands before the number."""

    field: str
    name: str
    decimals: int = 0
    prefix: str = ""

    def text(self, value: float) -> str:
        """A number as the paper prints it."""
        return f"{self.prefix}{value:.{self.decimals}f}"

    def twice(self, value: float) -> str:
        """The same, rounded to one digit more before: 246.496 is 246.5 and then 247."""
        once = Decimal(f"{value:.{self.decimals + 1}f}")
        return f"{self.prefix}{once.quantize(Decimal(1).scaleb(-self.decimals), ROUND_HALF_UP)}"


SPEED, GPUS = Column("speed", "tokens/s"), Column("chips", "GPUs")
FASTEST = (SPEED, GPUS)
PREFERRED = (SPEED, Column("cost", "$/M tokens", 2, "$"), GPUS, Column("batch", "batch"))


class Row(NamedTuple):
    """One printed row: its label, its columns with each cell as printed, and our numbers."""

    label: str
    columns: tuple[Column, ...]
    theirs: tuple[str, ...]
    ours: tuple[float, ...]

    @property
    def texts(self) -> list[str]:
        """Our numbers as the paper would print them."""
        return [c.text(value) for c, value in zip(self.columns, self.ours, strict=True)]

    @property
    def rounded_twice(self) -> list[str]:
        """The cells that agree only if a number is rounded twice."""
        cells = zip(self.columns, self.theirs, self.ours, strict=True)
        return [f"{c.name} {x:.3f}" for c, a, x in cells if c.text(x) != a and c.twice(x) == a]

    @property
    def agrees(self) -> bool:
        """True where every cell is ours to the printed digit."""
        cells = zip(self.columns, self.theirs, self.ours, strict=True)
        return all(a in (c.text(x), c.twice(x)) for c, a, x in cells)


def hops(model: str) -> float:
    """Seconds that all-reduces of the model take per root of chips: layers x 4 x 2 us."""
    root_hop = float(Economics.level2().root_hop)
    return float(decoder.layers(economics_model(model))) * REDUCES * root_hop


def reads(model: str) -> float:
    """Seconds in which one H100 reads all weights at 16 bits, uncapped."""
    counts = decoder.parameters(economics_model(model), Economics.level2().laws.projections)
    return 2.0 * sum(map(float, counts.values())) / BANDWIDTH


def rows(number: int) -> list[Row]:
    """A table of the paper: the fastest points, or where it prints prices the preferred ones."""
    results = []
    for row in printed_rows("economics_tables.csv"):
        if row["table"] != str(number):
            continue
        columns = PREFERRED if row["cost"] else FASTEST
        if row["comparison"]:
            drawn = front(COMPARISONS[row["comparison"]][row["setting"]])
            ours = drawn.best if row["cost"] else drawn.fastest
        else:
            with jax.enable_x64(True):  # at minimum latency (Eqs. 13 and 14)
                sizes = (jnp.asarray(law(row["setting"])) for law in (hops, reads))
                chips, time = map(float, fastest_instance(*sizes))
            ours = {"speed": 1 / time, "chips": chips}
        theirs = tuple(row[c.field] for c in columns)
        results.append(Row(row["row"], columns, theirs, tuple(ours[c.field] for c in columns)))
    return results


def print_table(number: int) -> dict[str, Any]:
    """Print a table as theirs | ours in every cell; whether it agrees, and ours."""
    every, why = rows(number), NOT_COMPARED.get(number, "")
    columns = ["", *(f"{c.name}, theirs | ours" for c in every[0].columns), "verdict"]
    lines, notes = [], [why] if why else []
    for row in every:
        cells = [f"{a} | {b}" for a, b in zip(row.theirs, row.texts, strict=True)]
        lines.append((row.label, *cells, "not compared" if why else verdict(row.agrees)))
        if row.rounded_twice and not why:
            reports = ", ".join(row.rounded_twice)
            notes.append(f"{row.label}: {reports} prints as theirs only by way of one digit more.")
    show(f"Table {number}: {TITLES[number]}", columns, lines, "\n".join(notes))
    agrees = None if why else all(row.agrees for row in every)
    return {"agrees": agrees, "ours": {row.label: row.texts for row in every}}
