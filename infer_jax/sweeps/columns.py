"""The columns of a sweep's result: axes, terms, bands, exceeded limits."""

import itertools
from collections.abc import Mapping

import numpy as np
from jaxtyping import Shaped

from infer_jax.catalog import System
from infer_jax.estimators import Estimate
from infer_jax.specs import outputs
from infer_jax.sweeps.best import Best
from infer_jax.sweeps.group import locate, spread
from infer_jax.sweeps.preparing import Prepared
from infer_jax.sweeps.refine import KEPT, SHORT, RefinedPoints

HEAD = ("feasible", *(output.name for output in outputs(Estimate)))  # the first columns
Column = Shaped[np.ndarray, " rows"]  # numbers, or names and sentences


class Columns:
    """The columns of rows by dotted path, and their units."""

    def __init__(self, ready: Prepared, rows: RefinedPoints, units: Mapping[str, str]):
        self.ready, self.rows, self.units = ready, rows, dict(units)
        self.systems = {n: x for n, x in ready.named.items() if isinstance(x, System)}
        self.all = self._all()

    def _all(self) -> dict[str, Column]:
        """Axes, then the terms of the estimates, in float64."""
        terms, columns = self.rows.terms, self._axes()
        asked = [name for name, _ in self.ready.readings[0].signs]
        head = list(dict.fromkeys([*HEAD, *asked]))
        rest = [k for k in terms if k not in head and k not in (KEPT, SHORT)]
        for name in (*head, *rest):
            if name not in columns and name in terms:
                columns[name] = terms[name]
        columns |= self._bands(columns)
        columns |= self._unknown(columns)
        if isinstance(self.ready.reducer, Best):
            columns["violates"] = np.array([self.violated(i) for i in range(len(self.rows))])
        return columns

    def _axes(self) -> dict[str, Column]:
        """The axes as columns; an axis of some structures only is None for the others."""
        axes: dict[str, Column] = {}
        for number, at, digits in spread(self.ready.groups, self.rows.index):
            for c in self.ready.groups[number].columns:
                full = axes.setdefault(c.path, np.full(len(self.rows), None, object))
                labels = np.empty(len(c.labels), object)
                labels[:] = c.labels
                full[at] = labels[digits[:, c.digit]]
        return {path: np.array(column.tolist()) for path, column in axes.items()}

    def _systems_of(self, columns: Mapping[str, Column]) -> list[str]:
        """The name of each row's system."""
        alone = [*self.systems][:1] * len(self.rows)
        return columns["hardware"].tolist() if "hardware" in columns else alone

    def _bands(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """Ends of 80 % intervals of times, where systems were calibrated to their servers."""
        (table, *others) = {e.table for e in self.ready.estimators}
        if others or not any(x.bands(table) for x in self.systems.values()):
            return {}
        known = {name: system.bands(table) for name, system in self.systems.items()}
        bands = [known.get(name, {}) for name in self._systems_of(columns)]
        ends: dict[str, Column] = {}
        banded = [output.name for output in outputs(Estimate) if output.banded]
        for name, (i, side) in itertools.product(banded, enumerate(("low", "high"))):
            factors = np.array([b[name][i] if name in b else np.nan for b in bands])
            if name in columns and not np.all(np.isnan(factors)):
                ends[f"{name}_{side}80"] = columns[name] * factors
                self.units[f"{name}_{side}80"] = self.units.get(name, "")
        return ends

    def _unknown(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """Powers and energies as NaN in rows of systems whose power is not known."""
        names = self._systems_of(columns)
        dark = np.array(
            [n in self.systems and not float(self.systems[n].hardware.power) for n in names]
        )
        if not dark.any() or "hardware.power" in columns:
            return {}
        drawn = [n for n in columns if any(n in x.drawn for x in self.ready.readings)]
        return {n: np.where(dark, np.nan, columns[n]) for n in drawn}

    def axes(self, i: int) -> dict[str, object]:
        """The axes of row ``i`` as the user gave them: numbers, and names of specs."""
        group, digits = locate(self.ready.groups, self.rows.index[i])
        return {c.path: c.labels[digits[c.digit]] for c in group.columns}

    def violated(self, i: int) -> str:
        """The limits that row ``i`` breaks, or nothing."""
        signs, terms = dict(self.ready.readings[0].signs), self.rows.terms
        reducer = self.ready.reducer
        broken: list[str] = []
        for name, limit in reducer.limits if isinstance(reducer, Best) else ():
            value = terms[name][i]
            if (value < limit) if signs[name] < 0 else (value > limit):
                word = "under" if signs[name] < 0 else "over"
                broken.append(f"{name} {value:.4g} {word} {limit:.4g} {self.units[name]}")
        for name, need in terms.items() if not terms["feasible"][i] else ():
            # numbers of a phase that was not evaluated are not known
            capacity = terms.get(name.removesuffix("need") + "capacity", need)
            if name.endswith(".need") and need[i] > capacity[i]:
                limit = name.removesuffix(".need").replace(".limits.", " ")
                broken.append(f"{limit} {need[i]:.4g} over {capacity[i]:.4g}")
        return "; ".join(broken)
