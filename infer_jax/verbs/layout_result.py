"""The answer of ``layout``: every layout's time, and where the fastest changes."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from infer_jax.compiling import once
from infer_jax.errors import InputError
from infer_jax.estimators import Phase, Slice, make
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.known_errors import memory_note
from infer_jax.estimators.partitioning import (
    ATTENTION,
    LAYOUTS,
    TRIED,
    arrangements,
    factorisations,
)
from infer_jax.plots.bars import OVERLAP, Panel, overlapping, plot_bars
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Column, Notes, Row, Rows, Section, percent
from infer_jax.results.numbers import digits, quantity, size
from infer_jax.specs import Architecture, Dense, ForwardPass, Hardware, Torus
from infer_jax.verbs import inputs, pictures
from infer_jax.verbs.layout import WEIGHTS
from infer_jax.verbs.problems import refuse

ESTIMATOR = "partitioning.planned"
BATCHES = tuple(2.0**i for i in range(11))
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
        fitted = self.setup.system.coefficients.get("partitioning")
        source = self.setup.system.sources.get("partitioning.memory_cap", "")
        torus = isinstance(self.setup.hardware.network, Torus)
        return [
            f"Coefficients: {source.split(' (')[0]}."
            if fitted
            else "No coefficients of this system: data-sheet rates, perfect overlap, no latency.",
            "x cuts the model width, y and z the hidden width; ws: weights stay, wg: gathered.",
            memory_note(make(ESTIMATOR)),
            *([] if torus else ["GPUs have no torus: x is any divisor of their number."]),
            *[note for note in self.setup.notes if not note.startswith("Price")],
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
        caption = pictures.caption(
            self.setup,
            None,
            ESTIMATOR,
            f"A pass of {quantity(self.batch, 'sequence')}, {tokens}.",
            "Weights stay on their chips or are gathered over axes of the slice of x by y by z; x "
            "cuts the model width, y and z the hidden one.",
        )
        where = f"{self.gpus:g} of {self.setup.system.title}"
        title = f"{self.setup.model.name} on {where}: {self.phase} time by layout"
        panels = [Panel("", "ms", bars, ends=overlapping(bars, times))]
        return plot_bars(panels, end=OVERLAP, title=title, caption=caption)


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


class LayoutTable(NamedTuple):
    """Rows of (chips, batch, x, y, z, layout, attention), and the pass of each.

    ``shortfall``: its excess over limits.
    """

    table: np.ndarray
    phase: Phase
    feasible: Array
    shortfall: Array

    def best(self, chosen: np.ndarray) -> list[Row]:
        """The best axes of every layout among rows ``chosen``, the fastest feasible first."""
        order = chosen[np.lexsort((self.phase.time[chosen], self.shortfall[chosen]))]
        rows: dict[tuple[float, float], Row] = {}
        for i in map(int, order):
            code, by = self.table[i, 5:]
            if (code, by) not in rows:
                rows[code, by] = self._row(i)
        return list(rows.values())

    def at(self, chips: float, batch: float) -> list[Row]:
        """The best axes of every layout at one batch on ``chips`` chips."""
        here = (self.table[:, 0] == chips) & (self.table[:, 1] == batch)
        return self.best(np.flatnonzero(here))

    def changes(self, column: int, chips: float, batch: float) -> list[dict[str, Any]]:
        """The fastest layout at every batch (column 1) or chip count (column 0), runs merged."""
        along = self.table[:, 1 - column] == (chips, batch)[1 - column]
        runs: list[dict[str, Any]] = []
        for value in np.unique(self.table[along, column]):
            first = self.best(np.flatnonzero(along & (self.table[:, column] == value)))[0]
            name = f"{first['layout']}, attention by {first['attention']}"
            name = name if first["feasible"] else "nothing fits"
            if runs and runs[-1]["fastest"] == name:
                runs[-1]["to"], runs[-1]["time_ms"] = value, first["time_ms"]
            else:
                time = first["time_ms"]
                runs.append({"from": value, "to": value, "fastest": name, "time_ms": time})
        return runs

    def _row(self, i: int) -> Row:
        _, _, x, y, z, code, by = self.table[i]
        phase, memory = self.phase, self.phase.limits["memory"]
        return {
            "layout": LAYOUTS[int(code)],
            "attention": ATTENTION[int(by)],
            "x": x,
            "y": y,
            "z": z,
            "time_ms": float(1e3 * phase.time[i]),
            "mfu": float(phase.mfu[i]),
            "terms": {f"{name}_ms": float(1e3 * t[i]) for name, t in phase.terms.items()},
            "memory_bytes": float(memory.need[i]),
            "memory_capacity_bytes": float(memory.capacity[i]),
            "feasible": bool(self.feasible[i]),
            "breaks": [n for n, one in phase.limits.items() if one.need[i] > one.capacity[i]],
        }


def evaluate_layouts(
    estimator: Estimator,
    arch: Architecture,
    hardware: Hardware,
    tokens: tuple[float, float],
    codes: list[float],
    chips: float,
    batch: float,
) -> LayoutTable:
    """Every layout of ``codes`` at ``chips`` and ``batch``, at other batches and on other slices.

    ``tokens``: new and cached ones of a sequence. On GPUs, which have no torus, x is any divisor.

    Raises:
        InputError: no slice has that number of chips.
    """
    network = hardware.network
    axes = int(network.axes) if isinstance(network, Torus) else None
    wanted = [(chips, b) for b in sorted({*BATCHES, batch})]
    wanted += [(float(n), batch) for n in _sizes(int(chips), axes) if n != chips]
    table = np.asarray(
        [
            (count, sequences, *shape, code, by)
            for count, sequences in wanted
            for code in codes
            for shape in _axes(int(count), axes)
            for by in (1.0, 0.0)
        ]
    )
    passes = once(_passes, estimator, arch, hardware, table, *tokens, points=len(table))
    return LayoutTable(table, *passes)


def _sizes(chips: int, axes: int | None) -> list[int]:
    """Numbers of chips to compare: doublings around ``chips``, where there are such slices."""
    sizes = []
    for n in (chips * 2**i // 8 for i in range(6) if chips * 2**i % 8 == 0):
        with suppress(InputError):
            if n == chips or axes is None or factorisations(n, axes):
                sizes.append(n)
    return sizes


def _axes(chips: int, axes: int | None) -> tuple[tuple[float, float, float], ...]:
    """All x, y, z that the slices of ``chips`` chips give; of GPUs, every divisor as x."""
    if axes is not None:
        shapes = factorisations(chips, axes)
        return tuple(dict.fromkeys(a for shape in shapes for a in arrangements(shape)))
    return tuple((float(d), 1.0, chips / d) for d in range(1, chips + 1) if chips % d == 0)


def _passes(
    estimator: Estimator,
    arch: Architecture,
    hardware: Hardware,
    table: Array,
    new: Array,
    cached: Array,
) -> tuple[Phase, Array, Array]:
    def at_row(row: Array) -> tuple[Phase, Array, Array]:
        _, batch, x, y, z, code, by = row
        plan = Slice.of().replace(x=x, y=y, z=z, layout=code, attention=by)
        forward = ForwardPass(
            sequences=batch, new_tokens=new + 0.0 * batch, cached_tokens=cached + 0.0 * batch
        )
        phase = estimator.step(arch, hardware, forward, plan)
        return phase, phase.feasible, phase.shortfall

    return jax.vmap(at_row)(table)
