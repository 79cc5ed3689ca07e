"""Which times are left out together, and what a left-out make or engine shares with the others.

``make``: AMD's chips by fits to NVIDIA's rows; ``engine``, ``model``, ``system``, ``source`` (a
publisher of rows): one at a time; ``time``: rows from May 2026 on by those before; ``groups``: five
draws of a server's lengths; or folds of single rows that a file names.

A row has twins: the same configuration and load on another day. One of which a twin was fitted says
how machines and builds repeat, not how well a fit carries over to what it has not seen; so the two
are told apart.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.calibration.pooled.likelihood import AMD_NAMES, PooledProblem, PooledTimes
from infer_jax.calibration.pooled.readers import silicon, silicon_cleaning
from infer_jax.calibration.pooled.rows import AMD, PooledRow, system_named
from infer_jax.calibration.uncertainty import rows_by_label
from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import csv_rows
from infer_jax.catalog.published import measured_rates
from infer_jax.errors import InputError
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import ENGINES, Deployment
from infer_jax.specs import Hierarchy

TIMES = ("tpot", "ttft")
PRINTED = 2e-3  # relative difference of two rounded figures of one run
FITTED, TWIN, NEW = "fitted", "with a twin in the fit", "without a twin"


def layout(row: PooledRow) -> Hashable:
    """Model, formats, chip, program and degrees of a server: what does not change with its load."""
    plan = row.plan
    if isinstance(plan, Deployment):
        plan = plan.with_(polling=1.0)  # which scripts set by load
    leaves = tuple(float(x) for x in jax.tree.leaves(plan))
    return row.served, row.system, row.framework, isinstance(plan, Pools), leaves


def configuration(row: PooledRow) -> Hashable:
    """A server and its load; of a replay, which has no other, its name."""
    if row.workload is None:
        return row.group, row.id
    return layout(row), row.mode, row.lengths, float(row.workload.batch)


def has_twin(rows: Sequence[PooledRow], seen: np.ndarray) -> np.ndarray:
    """Whether each row that is not ``seen`` has the configuration of one that is."""
    known = {configuration(row) for row, is_seen in zip(rows, seen, strict=True) if is_seen}
    return np.asarray([configuration(row) in known for row in rows]) & ~seen


def told_apart(rows: Sequence[PooledRow], fitted: Sequence[PooledRow]) -> np.ndarray:
    """Of each row whether it is one of the ``fitted``, has a twin among them, or neither."""
    own = {(row.dataset, row.id, configuration(row)) for row in fitted}
    seen = np.asarray(
        [(r.dataset, r.id, configuration(r)) in own for r in rows] + [True] * len(fitted)
    )
    twin = has_twin([*rows, *fitted], seen)[: len(rows)]
    return np.where(seen[: len(rows)], FITTED, np.where(twin, TWIN, NEW))


def is_repeated(rows: Sequence[PooledRow], others: Sequence[PooledRow]) -> np.ndarray:
    """Whether each row is the run of another file: one load of a server, both times alike."""
    known = rows_by_label(map(_load, others))
    return np.asarray([any(_alike(r, others[i]) for i in known.get(_load(r), ())) for r in rows])


def _load(row: PooledRow) -> Hashable:
    """Model, chip and load of a row; its name where it has none."""
    return (row.model, row.system, float(row.workload.batch)) if row.workload else row.id


def _alike(row: PooledRow, other: PooledRow) -> bool:
    """Lengths and both times equal but for the digits that sources print."""
    mine, theirs = (np.asarray([r.measured.get(k, np.nan) for k in TIMES]) for r in (row, other))
    if row.workload is None or not np.isfinite(mine + theirs).all():
        return False
    lengths = np.asarray(row.lengths) / np.asarray(other.lengths)
    return bool(np.abs(np.concatenate([lengths, mine / theirs]) - 1.0).max() < PRINTED)


FIRST_MONTH, FOLDS = "2026-05", 5
MIN_TIMES = 150  # times of a model or system that is left out
OF_ENGINE = ("layer_gap", "sequence_time", "front", "eager")
LABELS = {
    "make": lambda row: "amd" if row.system in AMD else "nvidia",
    "engine": lambda row: row.engine,
    "model": lambda row: row.model,
    "system": lambda row: row.system,
    "source": lambda row: row.publisher,
}
WAYS = (*LABELS, "time", "groups")


class Fold(NamedTuple):
    """One fold: what was left out, and which times were seen."""

    name: str
    seen: np.ndarray


def split(way: str, times: PooledTimes) -> Iterator[Fold]:
    """The folds of a split."""
    if way == "time":
        yield Fold(f"from {FIRST_MONTH}", times.labels(lambda row: row.date) < FIRST_MONTH)
        return
    if way == "groups":
        labels = times.labels(lambda r: (r.dataset, r.group, r.workload and r.lengths))
        kinds, index = np.unique(labels, return_inverse=True)
        draw = np.random.default_rng(0).permutation(len(kinds)) % FOLDS
        for k in range(FOLDS):
            yield Fold(f"draw {k + 1}", draw[index] != k)
        return
    labels, fewest = times.labels(LABELS[way]), MIN_TIMES if way in ("model", "system") else 1
    for kind in {"make": ["amd"], "engine": ENGINES}.get(way, np.unique(labels)):
        out = labels == kind
        if out.sum() >= fewest and not out.all():
            yield Fold(str(kind), ~out)


def folds_of(path: Path, rows: Sequence[PooledRow]) -> dict[str, tuple[str, str]]:
    """The fold, and the id of the row, of each id in a CSV file with columns ``id,fold``.

    A second entry of a measurement of aiconfigurator-core stands for the first, and has the fold of
    the first of them that the file names; an entry that no fit uses has no row ("").

    Raises:
        InputError: no such columns, an empty fold, an id that is no row or stands twice, or
            fewer than two folds.
    """
    lines = csv_rows(str(path), read_text(path))
    _, header = next(lines)
    for name in ("id", "fold"):
        if name not in header:
            raise InputError(str(path), "column", name, "a header with columns id and fold")
    first = _first_entries()
    usable = {row.id for row in rows}
    found: dict[str, tuple[str, str]] = {}
    of_row: dict[str, str] = {}
    for line, cells in lines:
        where = f"{path}, line {line}"
        if len(cells) != len(header):
            raise InputError(where, "cells", len(cells), f"{len(header)}, as the header has")
        name, fold = (cells[header.index(column)] for column in ("id", "fold"))
        if name in found or (name not in usable and name not in first):
            allowed = "each row once" if name in found else "the id of a row of the data"
            raise InputError(where, "id", name, allowed)
        if not fold:
            raise InputError(where, "fold", "empty", "the name of a fold")
        row = first.get(name, name)
        found[name] = (of_row.setdefault(row, fold), row if row in usable else "")
    if len({fold for fold, row in found.values() if row}) < 2:
        raise InputError(str(path), "fold", "fewer than two", "two folds or more with usable rows")
    return found


def _first_entries() -> dict[str, str]:
    """Of each entry of aiconfigurator-core the first one of the same measurement, by id."""
    if not silicon.is_installed():
        return {}
    pools, unknown = silicon_cleaning.disaggregated()
    entries = {run.published.id: run.first for run in (*silicon_cleaning.aggregated(), *pools)}
    return entries | {row.id: row.id for row in unknown}


def split_by_file(folds: dict[str, tuple[str, str]], times: PooledTimes) -> Iterator[Fold]:
    """The folds of a file; rows that it does not name are seen by every fit."""
    of_row = {row: fold for fold, row in folds.values() if row}
    labels = times.labels(lambda row: of_row.get(row.id, ""))
    for fold in sorted(set(of_row.values())):
        yield Fold(fold, labels != fold)


def without(free: np.ndarray, made: PooledProblem, left: str) -> np.ndarray:
    """Coordinates in which AMD's generations, or an engine, have what the others share.

    AMD's have it times what micro-benchmarks say.
    """
    index = {name: i for i, name in enumerate(made.chosen.names)}
    if left == "amd":
        values = dict(zip(index, np.asarray(made.chosen.values(jnp.asarray(free))), strict=True))
        shared = {f"hopper.{field}": 1.0 for field in ("gap", "grouped", "quantising")}
        shared["blackwell.grouped"] = 1.0
        values = {"hopper.gemm_4": values["hopper.gemm_8"]} | shared | values
        for name in AMD_NAMES:
            generation, _, field = name.partition(".")
            mean = np.sqrt(values[f"hopper.{field}"] * values[f"blackwell.{field}"])
            values[name] = mean * of_coefficient(generation, field)
        ordered = np.asarray([values[name] for name in made.chosen.names])
        moved = np.asarray(made.chosen.unbounded(jnp.asarray(ordered)))
        return np.where(np.isin(made.chosen.names, AMD_NAMES), moved, free)
    moved = free.copy()
    others = [name for name in ENGINES if name != left]
    for field in OF_ENGINE:
        moved[index[f"{left}.{field}"]] = np.mean([free[index[f"{x}.{field}"]] for x in others])
    return moved


CHIP_OF = {"cdna3": "mi300x", "cdna4": "mi355x"}
CHIPS = {"mi300x": "mi300x", "mi325x": "mi300x", "mi355x": "mi355x"}
QUANTITY = {"gemm_16": "gemm_16", "gemm_8": "gemm_8", "gemm_4": "gemm_8"}  # of a coefficient


@cache
def ratio(quantity: str, chip: str) -> float:
    """The share of its data sheet that an AMD chip reaches over that of NVIDIA's chips.

    In the same benchmark; where none has the chip its make's other chips stand in, and without any
    (launches) it is 1.
    """
    found: dict[str, list[float]] = {}
    for one in measured_rates():
        if one.quantity != quantity:
            continue
        shares = {name: x / _sheet(quantity, name) for name, x in one.measured.items()}
        others = [np.log(x) for name, x in shares.items() if name not in CHIPS]
        for name in shares.keys() & set(CHIPS):
            found.setdefault(name, []).append(float(np.log(shares[name]) - np.mean(others)))
    own = found.get(chip) or [x for logs in found.values() for x in logs]
    return float(np.exp(np.mean(own))) if own else 1.0


def of_coefficient(generation: str, field: str) -> float:
    """The factor of a coefficient of an AMD generation over what NVIDIA's share."""
    return ratio(QUANTITY[field], CHIP_OF[generation]) if field in QUANTITY else 1.0


def applied(rows: Sequence[PooledRow]) -> list[PooledRow]:
    """The rows with AMD's memory and links at the rates that micro-benchmarks have."""
    return [
        replace(row, rates=tuple(ratio(x, CHIPS[row.system]) for x in ("memory", "link")))
        if row.system in CHIPS
        else row
        for row in rows
    ]


def _sheet(quantity: str, name: str) -> float:
    """A rate of the data sheet in the units of the benchmarks."""
    hardware = system_named(name).hardware
    assert isinstance(hardware.network, Hierarchy)
    rate, unit = {
        "gemm_16": (hardware.chip.flops_16, 1e12),
        "gemm_8": (hardware.chip.flops_8, 1e12),
        "memory": (hardware.chip.memory_bandwidth, 1e12),
        "link": (hardware.network.domain_bandwidth, 1e9),
    }[quantity]
    return float(rate) / unit
