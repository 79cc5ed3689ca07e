"""How well are held-out rows predicted, pooled over folds, beside aiconfigurator?"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments._silicon.predictions import OUTPUTS, Fold, Held
from experiments._silicon.rows import Measured, Row
from infer_jax.calibration import Score, interval_score, score
from infer_jax.catalog.files import write_text

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "aiconfigurator_on_silicon.csv"


def pooled(
    folds: Sequence[Held],
    rows: Sequence[Any],
    taken: Callable[[Any], bool],
    entries: Mapping[str, Sequence[str]] | None = None,
    banded: bool = True,
) -> dict[str, Score]:
    """The score of each output over all folds' rows that are ``taken``.

    ``entries``: those of a measurement, each of which counts, by the id of the first; it counts
    once by default.
    """
    parts: dict[str, list[np.ndarray]] = {name: [] for name in OUTPUTS}
    for fold in folds:
        counts = [
            (1 if entries is None else len(entries[rows[i].id])) * taken(rows[i])
            for i in fold.index
        ]
        for k, name in enumerate(OUTPUTS):
            measured = np.asarray([getattr(rows[i], name) for i in fold.index])
            columns = np.stack([fold.times[k], measured, fold.low[k], fold.high[k]])
            parts[name].append(np.repeat(columns, counts, axis=1))
    every = {name: np.concatenate(part, axis=1) for name, part in parts.items()}
    return {name: score(*(x if banded else x[:2])) for name, x in every.items()}


def coverage(
    folds: Sequence[Fold], rows: Sequence[Row], least: int = 50
) -> dict[str, dict[str, dict[str, Any]]]:
    """Share of clean rows in their 80 % bands, per cent, by system, engine and family.

    Slices of ``least`` rows or more.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for k, name in enumerate(OUTPUTS):
        found[name] = {}
        for kind in ("system", "engine", "family"):
            inside: dict[str, list[bool]] = {}
            for fold in folds:
                for j, i in enumerate(fold.index):
                    row = rows[i]
                    if row.clean:
                        hit = fold.low[k, j] <= getattr(row, name) <= fold.high[k, j]
                        inside.setdefault(getattr(row, kind), []).append(bool(hit))
            found[name][kind] = {
                label: {"rows": len(hits), "cover80": 100.0 * float(np.mean(hits))}
                for label, hits in sorted(inside.items())
                if len(hits) >= least
            }
    return found


def intervals(folds: Sequence[Fold], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Interval score in log (smaller is better): our bands, and one band of constant width.

    The constant band has the quantiles of what the fold's own fit leaves on the rows it saw.
    """
    found = {}
    for k, name in enumerate(OUTPUTS):
        measured, times, low, high, wide = [], [], [], [], []
        for fold in folds:
            keep = np.asarray([rows[i].clean for i in fold.index], bool)
            left = -fold.fit.residuals.reshape(2, -1)[k, fold.counted]
            edges = np.exp(np.quantile(left, (0.1, 0.9)))
            measured.append([getattr(rows[i], name) for i in fold.index[keep]])
            for made, one in ((times, fold.times), (low, fold.low), (high, fold.high)):
                made.append(one[k, keep])
            wide.append(fold.times[k, keep] * edges[:, None])
        at, down, up = (np.concatenate(x) for x in (measured, low, high))
        constant = np.concatenate(wide, axis=1)
        found[name] = {
            "ours": interval_score(at, down, up),
            "constant": interval_score(at, *constant),
        }
    return found


def predicted_by_aiconfigurator(rows: Sequence[Row], suffix: str = "_E") -> np.ndarray | None:
    """Seconds by aiconfigurator 0.12 with its best labels, outputs x rows; NaN: no answer.

    None where its figures are not beside the checkout.
    """
    if not GOLDEN.exists():
        return None
    with GOLDEN.open(newline="") as file:
        theirs = {line["id"]: line for line in csv.DictReader(file)}
    columns = [f"pred_{name}_ms{suffix}" for name in OUTPUTS]
    cells = [[theirs.get(row.id, {}).get(c) or "nan" for row in rows] for c in columns]
    return np.asarray(cells, float) / 1e3


def aiconfigurator(folds: Sequence[Fold], rows: Sequence[Row]) -> dict[str, Score] | None:
    """aiconfigurator 0.12 on those of the same clean rows that it answers; None of none."""
    theirs = predicted_by_aiconfigurator(rows)
    if theirs is None:
        return None
    index = np.concatenate([fold.index for fold in folds])
    index = index[[rows[i].clean for i in index]]
    found = {}
    for k, name in enumerate(OUTPUTS):
        there = index[np.isfinite(theirs[k, index])]
        if not len(there):
            return None
        measured = np.asarray([getattr(rows[i], name) for i in there])
        found[name] = score(theirs[k, there], measured)
    return found


def write(
    path: Path,
    folds: Iterable[Held],
    rows: Sequence[Measured],
    entries: Mapping[str, Sequence[str]],
    left: Mapping[str, str],
) -> None:
    """A CSV line for every entry of a row of a fold, then one for each left out, with the reason.

    ``entries``: ids of the entries of a measurement, which share its prediction, by the id of the
    first. ``left``: reasons by id.
    """
    lines = []
    for fold in folds:
        for j, i in enumerate(fold.index):
            cells = [
                f"{1e3 * x[k, j]:.6g}" for k in range(2) for x in (fold.times, fold.low, fold.high)
            ]
            lines += [[name, fold.name, *cells, ""] for name in entries[rows[i].id]]
    lines += [[name, "", *[""] * 6, reason] for name, reason in left.items()]
    columns = [f"{name}_{what}" for name in OUTPUTS for what in ("ms", "lo80", "hi80")]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["id", "fold", *columns, "reason"], *lines])
    write_text(path, text.getvalue())
