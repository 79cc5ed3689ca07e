"""The columns of a sweep's result: axes, terms, bands, exceeded limits; and one point in full."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

import jax
import numpy as np
from jaxtyping import Shaped

from infer_jax.catalog import System
from infer_jax.errors import InputError
from infer_jax.estimators import Estimate
from infer_jax.results import Result, Section
from infer_jax.specs import outputs
from infer_jax.sweeps import refine
from infer_jax.sweeps.paths import numbers, unit_of
from infer_jax.sweeps.preparing import Prepared
from infer_jax.sweeps.reducers import Best, is_least
from infer_jax.sweeps.refine import RefinedPoints
from infer_jax.sweeps.space import spread

HEAD = ("feasible", *(output.name for output in outputs(Estimate)))  # the first columns
Column = Shaped[np.ndarray, " rows"]  # numbers, or names and sentences
Units = Mapping[str, str]


def columns_of(ready: Prepared, rows: RefinedPoints) -> tuple[dict[str, Column], dict[str, str]]:
    """Axes, then the terms of the estimates in float64, by dotted path; and their units."""
    axes: dict[str, Column] = {}  # one of some structures only is None for the others
    for number, at, digits in spread(ready.groups, rows.index):
        for c in ready.groups[number].columns:
            full = axes.setdefault(c.path, np.full(len(rows), None, object))
            labels = np.empty(len(c.labels), object)
            labels[:] = c.labels
            full[at] = labels[digits[:, c.digit]]
    columns = {path: np.array(column.tolist()) for path, column in axes.items()}
    varied = ((c, group) for group in ready.groups for c in group.columns if not c.is_spec)
    units = {c.path: unit_of(c.path, group.base, None) for c, group in varied}
    units |= {name: field.full_unit for name, field in ready.declared.items()}
    terms = rows.terms
    for name in dict.fromkeys([*HEAD, *ready.signs, *terms]):
        if name not in columns and name in terms:
            columns[name] = terms[name]
    systems = ready.systems
    fixed = [*systems][:1] * len(rows)
    of_row = columns["hardware"].tolist() if "hardware" in columns else fixed
    for name, end, ends in list(_bands(ready, systems, of_row, columns)):
        columns[end], units[end] = ends, units.get(name, "")
    dark = np.array([n in systems and not float(systems[n].hardware.power) for n in of_row])
    if dark.any() and "hardware.power" not in columns:
        powers = {name for name, field in ready.declared.items() if field.drawn}
        columns |= {n: np.where(dark, np.nan, x) for n, x in columns.items() if n in powers}
    if isinstance(ready.reducer, Best):
        exceeded = [exceeded_limits(ready, rows, units, i) for i in range(len(rows))]
        columns["violates"] = np.array(exceeded)
    return columns, units


def _bands(
    ready: Prepared, systems: Mapping[str, System], of_row: list[str], columns: Mapping[str, Column]
) -> Iterator[tuple[str, str, Column]]:
    """Ends of 80 % intervals of times, where systems were calibrated to servers of the models."""
    (table, *others) = {e.table for e in ready.estimators}
    models = {x.name for x in ready.models}
    bands = {
        name: system.bands(table)
        for name, system in systems.items()
        if not others and system.calibration and models <= {system.calibration.model}
    }
    by_row = [bands.get(name, {}) for name in of_row]
    for output in outputs(Estimate) if any(bands.values()) else ():
        for i, side in enumerate(("low", "high")) if output.banded else ():
            name = output.name
            factors = np.array([band[name][i] if name in band else np.nan for band in by_row])
            if name in columns and not np.all(np.isnan(factors)):
                yield name, f"{name}_{side}80", columns[name] * factors


def axes_of(ready: Prepared, index: int) -> dict[str, object]:
    """The axes of a point as the user wrote them: numbers, and names of specs."""
    [(number, _, [digits])] = spread(ready.groups, [index])
    return {c.path: c.labels[digits[c.digit]] for c in ready.groups[number].columns}


def exceeded_limits(ready: Prepared, rows: RefinedPoints, units: Units, i: int) -> str:
    """The limits that row ``i`` breaks, in words, or nothing."""
    signs, terms, reducer = ready.signs, rows.terms, ready.reducer
    broken: list[str] = []
    for name, limit in reducer.limits if isinstance(reducer, Best) else ():
        value = terms[name][i]
        least = is_least(name, signs)
        if (value < limit) if least else (value > limit):
            word = "under" if least else "over"
            broken.append(f"{name} {value:.4g} {word} {limit:.4g} {units[name]}")
    for name, need in terms.items() if not terms["feasible"][i] else ():
        # numbers of a phase that was not evaluated are not known
        capacity = terms.get(name.removesuffix("need") + "capacity", need)
        if name.endswith(".need") and need[i] > capacity[i]:
            limit = name.removesuffix(".need").replace(".limits.", " ")
            broken.append(f"{limit} {need[i]:.4g} over {capacity[i]:.4g}")
    return "; ".join(broken)


@dataclass(frozen=True, repr=False)
class Explanation(Result):
    """One point in full: its axes, every term of its estimate, and the command that computes it."""

    index: int
    axes: dict[str, object]
    terms: dict[str, tuple[float, str]]
    estimate: Estimate
    command: str

    def sections(self) -> Iterator[Section]:
        """A line for each axis and each term with its unit; the index as text (of any size)."""
        terms = {name: {"value": x, "unit": unit} for name, (x, unit) in self.terms.items()}
        yield {"index": str(self.index), "axes": self.axes, "terms": terms}
        lines = [f"point {self.index}", *(f"  {k} = {v}" for k, v in self.axes.items())]
        lines += [f"  {k:40} {v:.6g} {unit}" for k, (v, unit) in self.terms.items()]
        yield "\n".join([*lines, f"again: {self.command}"])


def explain(ready: Prepared, index: int, source: str = "") -> Explanation:
    """One point of a prepared sweep in full, by its global index.

    Raises:
        InputError: an index that the grid does not have.
    """
    if not 0 <= index < ready.size:
        raise InputError("space", "index", index, f"from 0 to {ready.size - 1}")
    [(number, _, digits)] = spread(ready.groups, [index])
    part = ready.parts[number]
    rows = refine.estimates(part, digits, "all")[4]
    estimate, declared = jax.tree.map(itemgetter(0), rows), part.point.declared
    terms = {name: (float(x), declared[name].full_unit) for name, x in numbers(estimate).items()}
    command = f"explain(prepare(estimator, space, keep), {index})"
    if source:
        command = f"infer-jax sweep {source} --at {index}"
    return Explanation(index, axes_of(ready, index), terms, estimate, command)
