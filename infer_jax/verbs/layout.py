"""``ij.layout``: the fastest layout of a dense model by chips, batch and phase."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from infer_jax.errors import InputError
from infer_jax.estimators import make
from infer_jax.estimators.known_errors import memory_note
from infer_jax.estimators.partitioning import LAYOUTS, TRIED
from infer_jax.plots.rendering import FigureResult
from infer_jax.results import Column, Notes, Rows, Section, option, percent
from infer_jax.results.numbers import digits, quantity, size
from infer_jax.specs import Architecture, Dense, Torus
from infer_jax.verbs import inputs, options as opt, pictures
from infer_jax.verbs.asking import verb
from infer_jax.verbs.layout_rows import Change, LayoutRow, evaluate_layouts
from infer_jax.verbs.option import Option
from infer_jax.verbs.problems import ask, refuse
from infer_jax.verbs.progress import busy

ESTIMATOR = "partitioning.planned"
if TYPE_CHECKING:
    from matplotlib.figure import Figure

PHASES = ("prefill", "decode")
WEIGHTS = {  # what the names of layouts say
    "ws_1d": "weights stay, cut once",
    "ws_2d": "weights stay, cut twice",
    "wg_x": "weights gathered over x",
    "wg_xy": "weights gathered over x, y",
    "wg_xyz": "weights gathered over x, y, z",
}
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

    Times are in ms, memory in bytes of one chip.
    """

    rows_key = "layouts"
    asked: inputs.Given
    phase: str
    gpus: float
    batch: float
    new_tokens: float
    cached_tokens: float
    layouts: Sequence[LayoutRow]
    by_batch: Sequence[Change]
    by_gpus: Sequence[Change]

    @property
    def fastest(self) -> LayoutRow | None:
        """The fastest layout that fits; None where none does."""
        return next((row for row in self.layouts if row["feasible"]), None)

    def sections(self) -> Iterator[Section]:
        """The layouts, the fastest first, and the fastest by batch and by GPUs."""
        tokens = f"{self.new_tokens:g} new tokens over {self.cached_tokens:g} cached"
        yield (
            f"{self.asked.model.name} on {self.gpus:g} of {self.asked.system.name}: {self.phase} "
            f"of {quantity(self.batch, 'sequence')}, {tokens}"
        )
        yield {
            **self.asked.names,
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
        for key, kind, runs in (
            ("by_batch", "batch", self.by_batch),
            ("by_gpus", "GPUs", self.by_gpus),
        ):
            yield Rows(key, runs)
            yield ""
            yield f"Fastest by {kind}:"
            for run in runs:
                to = f" to {run['to']:g}" if run["to"] > run["from"] else ""
                yield f"  {run['from']:g}{to}: {run['fastest']}"
        yield Notes(self.notes)

    @property
    def notes(self) -> list[str]:
        """Where coefficients are from, what the names mean, what was assumed."""
        fitted = self.asked.system.coefficients.get("partitioning")
        source = self.asked.system.sources.get("partitioning.memory_cap", "")
        torus = isinstance(self.asked.hardware.network, Torus)
        return [
            f"Coefficients: {source.split(' (')[0]}."
            if fitted
            else "No coefficients of this system: data-sheet rates, perfect overlap, no latency.",
            "x cuts the model width, y and z the hidden width; ws: weights stay, wg: gathered.",
            memory_note(make(ESTIMATOR)),
            *([] if torus else ["GPUs have no torus: x is any divisor of their number."]),
            *[note for note in self.asked.notes if not note.startswith("Price")],
        ]

    def _figure(self) -> "Figure":
        """Every layout as a bar of the terms of its time."""
        from infer_jax.plots.bars import OVERLAP, Panel, overlapping, plot_bars

        rows = {_label(row): row for row in self.layouts}
        bars = {
            label: {name.removesuffix("_ms"): x for name, x in row["terms"].items()}
            for label, row in rows.items()
        }
        times = {label: row["time_ms"] for label, row in rows.items()}
        tokens = f"{self.new_tokens:,.12g} new tokens over {self.cached_tokens:,.12g} cached"
        caption = pictures.caption(
            self.asked,
            None,
            ESTIMATOR,
            f"A pass of {quantity(self.batch, 'sequence')}, {tokens}.",
            "Weights stay on their chips or are gathered over axes of the slice of x by y by z; x "
            "cuts the model width, y and z the hidden one.",
        )
        where = f"{self.gpus:g} of {self.asked.system.title}"
        title = f"{self.asked.model.name} on {where}: {self.phase} time by layout"
        panels = [Panel("", "ms", bars, ends=overlapping(bars, times))]
        return plot_bars(panels, end=OVERLAP, title=title, caption=caption)


@verb
def layout(
    config: opt.Config,
    hardware: opt.System,
    *,
    total_gpus: opt.TotalGpus = None,
    batch: opt.Batch = 1.0,
    phase: Annotated[str, Option("prefill: the prompt; decode: one token.", "PHASE")] = "prefill",
    isl: opt.Isl = 2048,
    prefix: opt.Prefix = 0,
    layout: Annotated[  # the option's name
        str | None, Option(f"One of {', '.join(LAYOUTS)}; all where not given.", "NAME")
    ] = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    set: opt.Changes = None,
) -> LayoutResult:
    """Which weight and attention layout is fastest on a slice, and where that changes.

    Args:
        total_gpus: chips of one instance.
        phase: prefill, of ``isl`` tokens of which ``prefix`` are cached, or decode after them.
        layout: one of ws_1d, ws_2d, wg_x, wg_xy, wg_xyz; all where not given.

    Raises:
        InputError: a model that is not dense, no such slice, layout or phase.

    >>> import infer_jax as ij
    >>> best = ij.layout("palm-540b-padded", "tpu_v4", total_gpus=64, batch=512)
    >>> best.fastest["layout"], best.fastest["attention"]
    ('wg_xyz', 'batch')
    """
    if phase not in PHASES:
        raise refuse("phase", phase, " or ".join(PHASES))
    if total_gpus is None:
        raise ask("total_gpus", "How many chips has one instance?", option("total_gpus"))
    if batch is None:
        raise refuse("batch", "missing", "sequences of one pass")
    codes = _codes(layout, phase)
    asked = inputs.given(config, hardware, quant, kv_dtype, None, set)
    arch = asked.model.architecture
    _dense(arch)
    if phase == "prefill" and prefix >= isl:
        raise refuse("prefix", prefix, f"below {option('isl')}, {isl:.12g} tokens")
    new, cached = (isl - prefix, prefix) if phase == "prefill" else (1.0, isl)
    estimator = inputs.estimator(ESTIMATOR, asked)
    network = asked.hardware.network
    axes = int(network.axes) if isinstance(network, Torus) else None
    with busy("compiling and evaluating"):
        passes = evaluate_layouts(
            estimator, arch, asked.hardware, (new, cached), codes, total_gpus, batch, axes
        )
    return LayoutResult(
        asked,
        phase,
        total_gpus,
        batch,
        new,
        cached,
        layouts=passes.at(total_gpus, batch),
        by_batch=passes.changes(1, total_gpus, batch),
        by_gpus=passes.changes(0, total_gpus, batch),
    )


def _label(row: LayoutRow) -> str:
    """A layout in two lines: weights, slice, attention, and whether it fits."""
    axes = " x ".join(digits(row[name]) for name in ("x", "y", "z"))
    broken = "" if row["feasible"] else ", does not fit"
    weights = WEIGHTS[row["layout"]]
    return f"{row['layout']}: {weights}\n{axes}, attention by {row['attention']}{broken}"


def _codes(name: str | None, phase: str) -> list[float]:
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


def _dense(arch: Architecture) -> None:
    if not all(isinstance(b.feedforward, Dense) and b.attention for b in arch.blocks):
        allowed = "a dense model: every layer attention and a feedforward without experts"
        raise InputError("infer-jax layout", "CONFIG", "not dense", allowed)
