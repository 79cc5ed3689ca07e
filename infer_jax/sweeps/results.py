"""What came out? Rows in the user's own terms, with units, where they came from, and why."""

import dataclasses
import itertools
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from infer_jax.catalog import Model, System
from infer_jax.errors import InputError
from infer_jax.estimators import Estimate, Estimator
from infer_jax.specs import outputs
from infer_jax.sweeps import refine, tables
from infer_jax.sweeps.group import locate, spread
from infer_jax.sweeps.refine import KEPT, SHORT, Rows

HEAD = ("feasible", *(output.name for output in outputs(Estimate)))  # the first columns


@dataclasses.dataclass(frozen=True)
class Explanation:
    """One point in full: its axes, every term of its estimate, and how to get it again."""

    index: int
    axes: dict[str, Any]
    terms: dict[str, tuple[Any, str]]
    estimate: Any
    command: str

    def __str__(self) -> str:
        lines = [f"point {self.index}", *(f"  {k} = {v}" for k, v in self.axes.items())]
        lines += [f"  {k:40} {v:.6g} {unit}" for k, (v, unit) in self.terms.items()]
        return "\n".join([*lines, f"again: {self.command}"])


class Result:
    """What a sweep kept: rows, best first, or one answer (a histogram, quantiles)."""

    def __init__(
        self,
        ready: Any,
        rows: Rows | None,
        units: dict[str, str],
        answer: dict[str, Any] | None,
        facts: dict[str, Any],
        notes: Sequence[str],
    ):
        self._ready, self._rows, self.units = ready, rows, units
        self.answer, self.provenance, self.notes = answer, facts, list(notes)
        self.source = ""  # the file the sweep was read from, where there is one

    def __len__(self) -> int:
        return len(self._rows) if self._rows is not None else 0

    def __repr__(self) -> str:
        facts = self.provenance
        kept = f"{len(self):,} rows" if self._rows is not None else "an answer"
        return f"Result({kept} of {int(facts['points']):,} points, {facts['keep']})"

    def to_pandas(self) -> Any:
        """The columns as a ``pandas.DataFrame``; units and provenance are in its ``attrs``.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            import pandas  # pyright: ignore[reportMissingImports]
        except ImportError:
            allowed = "pip install 'infer_jax[pandas]', or Result.columns, which are NumPy arrays"
            raise InputError("to_pandas", "pandas", "not installed", allowed) from None
        frame = pandas.DataFrame(self.columns)
        frame.attrs.update(units=dict(self.units), provenance=self.provenance, notes=self.notes)
        return frame

    @property
    def index(self) -> list[int]:
        """The global indices of the rows: the whole answer in one list of integers."""
        return list(self._rows.index) if self._rows is not None else []

    @property
    def met(self) -> bool:
        """Whether the rows are answers; False where ``Best`` found near misses only."""
        return len(self) > 0 and not any(self.violated(0))

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Axes, then the terms of the estimates, in float64, by dotted path."""
        if self._rows is None:
            return {}
        columns = self._axes()
        asked = [name for name, _ in self._ready.readings[0].signs]
        head = list(dict.fromkeys([*HEAD, *asked]))
        rest = [k for k in self._rows.terms if k not in head and k not in (KEPT, SHORT)]
        for name in (*head, *rest):
            if name not in columns and name in self._rows.terms:
                columns[name] = self._rows.terms[name]
        columns |= self._bands(columns)
        columns |= self._unknown(columns)
        if getattr(self._ready.reducer, "under", None) is not None:
            columns["violates"] = np.array([self.violated(i) for i in range(len(self))])
        return columns

    def _bands(self, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Ends of 80 % intervals of times, where systems were calibrated to their servers."""
        (table, *others) = {e.table for e in _estimators(self._ready)}
        systems = {n: x for n, x in self._ready.named.items() if isinstance(x, System)}
        if others or not any(x.bands(table) for x in systems.values()):
            return {}
        names = columns.get("hardware", [*systems][:1] * len(self))
        bands = [systems[n].bands(table) if n in systems else {} for n in names]
        ends: dict[str, np.ndarray] = {}
        banded = [output.name for output in outputs(Estimate) if output.banded]
        for name, (i, side) in itertools.product(banded, enumerate(("low", "high"))):
            factors = np.array([b[name][i] if name in b else np.nan for b in bands])
            if name in columns and not np.all(np.isnan(factors)):
                ends[f"{name}_{side}80"] = columns[name] * factors
                self.units[f"{name}_{side}80"] = self.units.get(name, "")
        return ends

    def _unknown(self, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Powers and energies as NaN in rows of systems whose power is not known."""
        systems = {n: x for n, x in self._ready.named.items() if isinstance(x, System)}
        names = columns.get("hardware", [*systems][:1] * len(self))
        dark = np.array([n in systems and not float(systems[n].hardware.power) for n in names])
        if not dark.any() or "hardware.power" in columns:
            return {}
        drawn = [n for n in columns if any(n in x.drawn for x in self._ready.readings)]
        return {n: np.where(dark, np.nan, columns[n]) for n in drawn}

    def _axes(self) -> dict[str, np.ndarray]:
        """The axes as columns; one of some structures only is None elsewhere."""
        assert self._rows is not None
        found: dict[str, np.ndarray] = {}
        groups = [p.group for p in self._ready.parts]
        for number, at, digits in spread(groups, self._rows.index):
            for c in groups[number].columns:
                full = found.setdefault(c.path, np.full(len(self), None, object))
                labels = np.empty(len(c.labels), object)
                labels[:] = c.labels
                full[at] = labels[digits[:, c.digit]]
        return {path: np.array(column.tolist()) for path, column in found.items()}

    def axes(self, i: int) -> dict[str, Any]:
        """The axes of row ``i`` as the user gave them: numbers, and names of specs."""
        assert self._rows is not None
        group, digits = locate([p.group for p in self._ready.parts], self._rows.index[i])
        return {c.path: c.labels[digits[c.digit]] for c in group.columns}

    def violated(self, i: int) -> str:
        """The limits that row ``i`` breaks, or nothing."""
        assert self._rows is not None
        signs, terms = dict(self._ready.readings[0].signs), self._rows.terms
        broken = []
        for name, limit in getattr(self._ready.reducer, "under", ()):
            value = terms[name][i]
            if (value < limit) if signs[name] < 0 else (value > limit):
                word = "under" if signs[name] < 0 else "over"
                broken.append(f"{name} {value:.4g} {word} {limit:.4g} {self.units[name]}")
        for name in terms:
            if name.endswith(".need") and not terms["feasible"][i]:
                capacity = terms[name.removesuffix("need") + "capacity"][i]
                if terms[name][i] > capacity:
                    limit = name.removesuffix(".need").replace(".limits.", " ")
                    broken.append(f"{limit} {terms[name][i]:.4g} over {capacity:.4g}")
        return "; ".join(broken)

    def explain(self, i: int) -> Explanation:
        """The full estimate of row ``i``, and the command that computes it again."""
        if not 0 <= i < len(self):
            raise InputError("explain", "row", i, f"0 to {len(self) - 1}")
        return explain(self._ready, self.index[i], self.source)

    def write(self, path: str | Path) -> None:
        """Write rows and provenance as Parquet, CSV or JSON, by the ending of the name.

        Raises:
            InputError: another ending, an unwritable place, a file of another sweep.
        """
        tables.check(path, self._ready.mark)
        columns = self.columns
        units = {name: self.units.get(name, "") for name in columns}
        facts = {**self.provenance, "notes": self.notes}
        tables.write(Path(path), columns, units, facts, self.answer)


def explain(ready: Any, index: int, source: str = "") -> Explanation:
    """One point of a prepared sweep in full, by its global index."""
    groups = [p.group for p in ready.parts]
    if index < 0:
        raise InputError("space", "index", index, f"from 0 to {ready.size - 1}")
    group, digits = locate(groups, index)
    at = next(i for i, g in enumerate(groups) if g is group)
    life = jax.tree.map(lambda x: x[0], refine.lives(ready.parts[at], digits[None], "whole")[4])
    units = ready.readings[at].units
    terms = {name: (float(x), units.get(name, "1")) for name, x in refine.numbers(life).items()}
    axes = {c.path: c.labels[digits[c.digit]] for c in group.columns}
    command = f"explain(prepare(estimator, space, keep), {index})"
    if source:
        command = f"infer-jax sweep {source} --at {index}"
    return Explanation(index, axes, terms, life, command)


def provenance(ready: Any, outcome: Any, devices: list[str], chunk: int) -> dict[str, Any]:
    """Version, estimator, sources, precision, and what was counted."""
    return {
        "program": f"infer_jax {version('infer_jax')}",
        "jax": jax.__version__,
        "fingerprint": ready.mark,
        "estimator": [type(e).__name__ for e in _estimators(ready)],
        "sources": _sources(ready.named),
        "keep": repr(ready.reducer),
        "precision": ready.precision,
        "points": str(ready.size),
        "counts": {k: str(v) for k, v in outcome.counts.items()},
        "seconds": outcome.seconds,
        "devices": devices,
        "chunk": chunk,
    }


def _sources(named: dict[str, System | Model]) -> dict[str, dict[str, str]]:
    """What the catalog cites, by name and field."""
    return {
        name: dict(x.sources) if isinstance(x, System) else {"architecture": x.source}
        for name, x in named.items()
    }


def _estimators(ready: Any) -> list[Estimator]:
    given = ready.estimator
    return list(given) if isinstance(given, list | tuple) else [given]
