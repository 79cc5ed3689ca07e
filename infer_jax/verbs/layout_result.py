"""The answer of ``layout``: every layout's time, and where the fastest changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infer_jax.estimators import make
from infer_jax.estimators.known_errors import memory_note
from infer_jax.estimators.partitioning import LAYOUTS, TRIED
from infer_jax.plots.bars import Panel, overlapping, plot_bars
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Column, Notes, Row, Rows, Section, percent
from infer_jax.results.numbers import digits, quantity, size
from infer_jax.results.problems import refuse
from infer_jax.specs import Architecture, Dense, Torus
from infer_jax.verbs import inputs, pictures
from infer_jax.verbs.layout import WEIGHTS

ESTIMATOR = "partitioning.planned"
LAYOUT = (
    Column("layout", "", "layout"),
    Column("attn.", "", "attention"),
    Column("x y z", "", lambda row: " ".join(digits(row[k]) for k in "xyz"), left=False),
    Column("time", "ms", "time_ms"),
)
FITTING = (
    Column("MFU", "%", "mfu", percent),
    Column("memory", "a chip", "memory_bytes", size),
    Column("fits", "", lambda row: "yes" if row["feasible"] else f"no: {', '.join(row['breaks'])}"),
)
STATIONARY = LAYOUTS[:2]  # layouts of decode: the paper gathers weights in prefill alone


@dataclass(frozen=True, repr=False)
class LayoutResult(FigureResult):
    """Every layout at its best axes, the fastest first, and where the fastest changes.

    Times are in ms, memory in bytes of one chip. ``by_batch``, ``by_gpus``: the fastest layout from
    one batch or number of chips to another.
    """

    rows_key = "layouts"
    setup: inputs.Setup
    phase: str
    gpus: float
    batch: float
    new_tokens: float
    cached_tokens: float
    layouts: Sequence[Row]
    by_batch: Sequence[Row]
    by_gpus: Sequence[Row]

    @property
    def fastest(self) -> Row | None:
        """The fastest layout that fits; None where none does."""
        return next((row for row in self.layouts if row["feasible"]), None)

    def sections(self) -> Iterator[Section]:
        """The layouts, the fastest first, and the fastest by batch and by GPUs."""
        tokens = f"{self.new_tokens:g} new tokens over {self.cached_tokens:g} cached"
        yield (
            f"{self.setup.model.name} on {self.gpus:g} of {self.setup.system.name}: {self.phase} "
            f"of {quantity(self.batch, 'sequence')}, {tokens}"
        )
        yield {
            **self.setup.names,
            "phase": self.phase,
            "gpus": self.gpus,
            "batch": self.batch,
            "new_tokens": self.new_tokens,
            "cached_tokens": self.cached_tokens,
            "fastest": self.fastest,
        }
        terms = [
            Column(name.removesuffix("_ms"), "ms", f"terms.{name}", spare=True)
            for name in self.layouts[0]["terms"]
        ]
        mark = 0 if self.fastest else -1
        yield Rows("layouts", self.layouts, (*LAYOUT, *terms, *FITTING), mark)
        for kind, runs in (("batch", self.by_batch), ("GPUs", self.by_gpus)):
            yield Rows(f"by_{kind.lower()}", runs)
            yield from ("", f"Fastest by {kind}:")
            for run in runs:
                to = f" to {run['to']:g}" if run["to"] > run["from"] else ""
                yield f"  {run['from']:g}{to}: {run['fastest']}"
        yield Notes(self.notes)

    @property
    def notes(self) -> list[str]:
        """Where coefficients are from, what the names mean, what was assumed."""
        source = self.setup.system.sources.get("partitioning.memory_cap", "")
        basis = f"Coefficients: {source.split(' (')[0]}."
        if not self.setup.system.coefficients.get("partitioning"):
            basis = "No coefficients of this system: data-sheet rates, perfect overlap, no latency."
        torus = isinstance(self.setup.hardware.network, Torus)
        return [
            basis,
            "x cuts the model width, y and z the hidden width; ws: weights stay, wg: gathered.",
            memory_note(make(ESTIMATOR)),
            *([] if torus else ["GPUs have no torus: x is any divisor of their number."]),
            *self.setup.notes,
        ]

    def _figure(self) -> Figure:
        """Every layout as a bar of the terms of its time."""
        rows = {_label(row): row for row in self.layouts}
        bars = {
            label: {name.removesuffix("_ms"): x for name, x in row["terms"].items()}
            for label, row in rows.items()
        }
        times = {label: row["time_ms"] for label, row in rows.items()}
        tokens = f"{self.new_tokens:,.12g} new tokens over {self.cached_tokens:,.12g} cached"
        load = f"A pass of {quantity(self.batch, 'sequence')}, {tokens}."
        axes = "Of a slice of x by y by z, x cuts the model width, y and z the hidden one."
        caption = pictures.caption(self.setup, None, ESTIMATOR, load, axes)
        where = f"{self.gpus:g} of {self.setup.system.title}"
        title = f"{self.setup.model.name} on {where}: {self.phase} time by layout"
        panels = [Panel("", "ms", bars, ends=overlapping(bars, times))]
        return plot_bars(panels, title=title, caption=caption)


def _label(row: Row) -> str:
    """A layout in two lines: weights, slice, attention, and whether it fits."""
    axes = " x ".join(digits(row[name]) for name in ("x", "y", "z"))
    broken = "" if row["feasible"] else ", does not fit"
    weights = WEIGHTS[row["layout"]]
    return f"{row['layout']}: {weights}\n{axes}, attention by {row['attention']}{broken}"


def layout_codes(name: str | None, phase: str) -> list[float]:
    """The codes of the layouts to try, the first of equals first.

    Raises:
        InputError: no such layout, or one that the phase cannot use.
    """
    usable = LAYOUTS if phase == "prefill" else STATIONARY
    if name is not None and name not in usable:
        allowed = f"in {phase} {', '.join(usable)}"
        raise refuse("layout", name, allowed if name in LAYOUTS else ", ".join(LAYOUTS))
    wanted = usable if name is None else (name,)
    return [code for code in TRIED if LAYOUTS[int(code)] in wanted]


def check_dense(arch: Architecture) -> None:
    """Raise InputError unless every layer is attention and a dense feedforward."""
    if not all(isinstance(b.feedforward, Dense) and b.attention for b in arch.blocks):
        allowed = "a dense model: every layer attention and a feedforward without experts"
        raise refuse("CONFIG", "a model with experts or without attention", allowed)
