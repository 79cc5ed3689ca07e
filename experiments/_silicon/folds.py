"""Which rows are predicted by fits on which others?

Random groups, one model or one system at a time, or a file of the user's.
"""

import csv
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments._silicon.rows import Row
from experiments._silicon.split import LeftOut, Split
from infer_jax.calibration import random_groups
from infer_jax.catalog.files import read_text
from infer_jax.catalog.measurements import silicon
from infer_jax.catalog.measurements.silicon import Published
from infer_jax.errors import InputError

ELSEWHERE = "a row of the other --mode"
WAYS = ("groups", "model", "system")
SMALLEST = 10  # rows: a system of fewer is not left out alone (gb200 has 7 clean ones)

Entry = Row | Split
Named = Entry | LeftOut | Published


def folds(rows: Sequence[Entry], way: str) -> dict[str, np.ndarray]:
    """Rows of each fold (true), by name, of one of ``WAYS``.

    Raises:
        InputError: another way.
    """
    if way == "groups":
        clean = sorted({r.group for r in rows if r.clean}, key=str)
        drawn = random_groups(clean)
        picked = {
            n: {g for g, i in zip(clean, inside, strict=True) if i} for n, inside in drawn.items()
        }
        return {n: np.asarray([r.group in gs for r in rows]) for n, gs in picked.items()}
    if way not in WAYS:
        raise InputError("silicon", "cv", way, ", ".join(WAYS))
    labels = [r.family if way == "model" else r.system for r in rows]
    clean = [label for label, r in zip(labels, rows, strict=True) if r.clean]
    kinds = sorted(k for k in set(labels) if clean.count(k) >= SMALLEST)
    return {kind: np.asarray([label == kind for label in labels]) for kind in kinds}


def read(path: Path, rows: Sequence[Named] | None = None) -> dict[str, str]:
    """The fold of each row's id in a CSV file with columns ``id,fold``.

    ``rows``: all there are, by default those of the data, of either mode.

    Raises:
        InputError: no such columns, an empty fold, an id that is no row or stands twice, or
            fewer than two folds.
    """
    lines = list(csv.reader(read_text(path).splitlines()))
    header = [cell.strip() for cell in lines[0]] if lines else []
    missing = [name for name in ("id", "fold") if name not in header]
    if missing:
        raise InputError(str(path), "column", missing[0], "a header with columns id and fold")
    places = header.index("id"), header.index("fold")
    known = {r.id for r in (silicon.published_rows() if rows is None else rows)}
    found: dict[str, str] = {}
    for number, line in enumerate(lines[1:], 2):
        where = f"{path}, line {number}"
        if not line:
            continue
        if len(line) != len(header):
            raise InputError(where, "cells", len(line), f"{len(header)}, as the header has")
        name, fold = (line[i].strip() for i in places)
        if name not in known:
            raise InputError(where, "id", name, "the id of a row of the data")
        if name in found:
            raise InputError(where, "id", name, "each row once")
        if not fold:
            raise InputError(where, "fold", "empty", "the name of a fold")
        found[name] = fold
    if len(set(found.values())) < 2:
        raise InputError(str(path), "fold", sorted(set(found.values())), "two folds or more")
    return found


def given(asked: Mapping[str, str], rows: Sequence[Entry]) -> dict[str, np.ndarray]:
    """Rows of each fold (true) among the first entries of measurements, by name.

    Entries of one measurement take the fold of the first of them that the file names, so that
    none is predicted by a fit that saw it. Folds in which no row can be predicted are left out.

    Raises:
        InputError: fewer than two folds are left.
    """
    of: dict[str, str] = {}
    for row in rows:
        if row.id in asked:
            of.setdefault(row.first, asked[row.id])
    found = {
        name: np.asarray([of.get(r.id) == name for r in rows if r.unique])
        for name in sorted(set(of.values()))
    }
    found = {name: inside for name, inside in found.items() if inside.any()}
    if len(found) < 2:
        allowed = "two or more, with rows that can be predicted in this --mode"
        raise InputError("folds", "those to predict", ", ".join(found) or "none", allowed)
    return found


def elsewhere(asked: Iterable[str], rows: Sequence[Entry | LeftOut]) -> dict[str, str]:
    """Reasons by id of ``asked`` ids that are none of ``rows``, those of a mode."""
    here = {r.id for r in rows}
    return {name: ELSEWHERE for name in asked if name not in here}


def entries(rows: Sequence[Entry], asked: Container[str]) -> dict[str, list[str]]:
    """Ids of the ``asked`` entries of each measurement, by the id of the first entry of all."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.first, []).extend([row.id] if row.id in asked else [])
    return found
