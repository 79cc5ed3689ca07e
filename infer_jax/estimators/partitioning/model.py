"""Efficiently scaling Transformer inference (Pope et al. 2022, arXiv 2211.05102).

One pass on a slice of a torus costs arithmetic, memory, collectives and their latency, at one
of five weight layouts and two attention layouts. The paper gives the volumes; what it measured
calibrates the coefficients, which stand in a hardware profile.
"""

from contextlib import suppress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.compiling import once
from infer_jax.errors import InputError
from infer_jax.estimators.estimate import Phase, stop_gradients
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.partitioning.forward_pass import one_pass
from infer_jax.estimators.partitioning.slices import (
    ATTENTION,
    LAYOUTS,
    TRIED,
    Coefficients,
    Sharding,
    Slice,
    arrangements,
    axes_tried,
    factorisations,
    sharding_of,
)
from infer_jax.estimators.search import Numbered, blend, fastest
from infer_jax.results import Row
from infer_jax.specs import (
    Architecture,
    ForwardPass,
    Hardware,
    Plan,
    Torus,
    checked,
    spec,
)

BATCHES = tuple(2.0**i for i in range(11))


@spec
class Partitioning(Coefficients, Estimator):
    """The partitioning model: one pass at the layout that the plan gives, or at the fastest."""

    table = "partitioning"
    checked_against = (
        "a forward pass without scheduler or waits, fitted to PaLM on TPU v4: no measured rows of "
        "servers"
    )

    @classmethod
    def searched(cls) -> "Partitioning":
        """The fastest layout on the plan's slice, in every phase anew."""
        return cls.of()

    @classmethod
    def as_planned(cls) -> "Partitioning":
        """The layout that the plan gives."""
        return cls.of(search=False)

    @property
    def memory_account(self) -> str:
        """Pope et al.'s own: ``memory`` has no layouts of a torus slice."""
        return "by Pope et al., weights and cache on a chip of the slice, without reserves"

    @property
    def searches(self) -> bool:
        """Whether it searches axes and layouts of the slice."""
        return self.search

    @property
    def smooths(self) -> bool:
        """True: ``smoothing`` is the temperature of maxima and the search."""
        return True

    @checked
    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
    ) -> Phase:
        """One pass over ``forward.sequences`` sequences on the plan's slice.

        The search tries the five weight layouts, both attention layouts, and every way to make
        x, y and z of the slice's axes (``ORDERS``); a plan without axes has tp * ep chips, x on
        ticks from 1 to all of them, y and z alike. The gradient is the winner's.
        Source: Pope et al. 2022 (arXiv 2211.05102), Sections 2 and 3.
        """
        if not self.search:
            return one_pass(self, arch, hardware, forward, plan, sharding_of(plan, arch))

        def numbered(
            model: Partitioning, a: Architecture, h: Hardware, f: ForwardPass, q: Plan
        ) -> Numbered:
            return lambda *index: one_pass(model, a, h, f, q, _candidate(q, a, *index))

        counts = (len(LAYOUTS), axes_tried(plan)[0], len(ATTENTION))
        given = (self, arch, hardware, forward, plan)
        if self.smoothing is not None:
            return blend(numbered(*given), counts, self.smoothing)
        return numbered(*given)(*fastest(numbered(*stop_gradients(given)), counts))


def _candidate(plan: Plan, arch: Architecture, layout: Array, order: Array, by: Array) -> Sharding:
    """The sharding at these indices: which axes are x, y and z, and the two layouts."""
    own = sharding_of(plan, arch)
    kind = jnp.result_type(own.chips)
    # of equal candidates the first wins, named as the paper names it: 2-D at x = 1 is 1-D,
    # gathering over x y at z = 1 is over all, and there attention by batch is attention by heads
    codes = {"layout": jnp.asarray(TRIED, kind)[layout], "attention": 1.0 - by.astype(kind)}
    return Sharding(*axes_tried(plan)[1](own, order), **codes)


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
    sizes = list[int]()
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
