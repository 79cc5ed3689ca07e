"""The layouts of a slice, their times, and the batches at which the fastest changes."""

from typing import NamedTuple, TypedDict

import jax
import numpy as np
from jax import Array

from infer_jax.compiling import once
from infer_jax.errors import InputError
from infer_jax.estimators import Phase, Slice
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.partitioning import (
    ATTENTION,
    LAYOUTS,
    arrangements,
    factorisations,
)
from infer_jax.specs import Architecture, ForwardPass, Hardware

BATCHES = tuple(2.0**i for i in range(11))


class LayoutRow(TypedDict):
    """The best axes of one layout; times in ms, memory of one chip."""

    layout: str
    attention: str
    x: float
    y: float
    z: float
    time_ms: float
    mfu: float
    terms: dict[str, float]
    memory_bytes: float
    memory_capacity_bytes: float
    feasible: bool
    breaks: list[str]


# the fastest layout from one batch or number of chips to another
Change = TypedDict("Change", {"from": float, "to": float, "fastest": str, "time_ms": float})


class LayoutPasses(NamedTuple):
    """The pass of every row, whether it fits, and its excess over limits."""

    phase: Phase
    feasible: Array
    shortfall: Array


class LayoutTable(NamedTuple):
    """Rows of (chips, batch, x, y, z, layout, attention), and the pass of each."""

    table: np.ndarray
    passes: LayoutPasses

    def best(self, chosen: np.ndarray) -> list[LayoutRow]:
        """The best axes of every layout among rows ``chosen``, the fastest feasible first."""
        phase, _, shortfall = self.passes
        order = chosen[np.lexsort((phase.time[chosen], shortfall[chosen]))]
        rows: dict[tuple[float, float], LayoutRow] = {}
        for i in map(int, order):
            code, by = self.table[i, 5:]
            if (code, by) not in rows:
                rows[code, by] = self._row(i)
        return list(rows.values())

    def at(self, chips: float, batch: float) -> list[LayoutRow]:
        """The best axes of every layout at one batch on ``chips`` chips."""
        here = (self.table[:, 0] == chips) & (self.table[:, 1] == batch)
        return self.best(np.flatnonzero(here))

    def changes(self, column: int, chips: float, batch: float) -> list[Change]:
        """The fastest layout at every batch (column 1) or chip count (column 0), runs merged."""
        along = self.table[:, 1 - column] == (chips, batch)[1 - column]
        runs: list[Change] = []
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

    def _row(self, i: int) -> LayoutRow:
        phase = self.passes.phase
        _, _, x, y, z, code, by = self.table[i]
        memory = phase.limits["memory"]
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
            "feasible": bool(self.passes.feasible[i]),
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
    axes: int | None,
) -> LayoutTable:
    """Every layout of ``codes`` at ``chips`` and ``batch``, at other batches and on other slices.

    ``tokens``: new and cached ones of a sequence. ``axes``: of the torus; None: any divisor is x.

    Raises:
        InputError: no slice has that number of chips.
    """
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
    return LayoutTable(table, passes)


def _sizes(chips: int, axes: int | None) -> list[int]:
    """Numbers of chips to compare: doublings around ``chips``, where there are such slices."""
    near = [chips * 2**i // 8 for i in range(6) if chips * 2**i % 8 == 0]
    return [n for n in near if n == chips or axes is None or _exists(n, axes)]


def _exists(chips: int, axes: int) -> bool:
    try:
        return bool(factorisations(chips, axes))
    except InputError:
        return False


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
) -> LayoutPasses:
    def at_row(row: Array) -> LayoutPasses:
        _, batch, x, y, z, code, by = row
        plan = Slice.of().replace(x=x, y=y, z=z, layout=code, attention=by)
        forward = ForwardPass(
            sequences=batch, new_tokens=new + 0.0 * batch, cached_tokens=cached + 0.0 * batch
        )
        phase = estimator.step(arch, hardware, forward, plan)
        return LayoutPasses(phase, phase.feasible, phase.shortfall)

    return jax.vmap(at_row)(table)
