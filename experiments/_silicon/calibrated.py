"""What do other runs of the same server add to the fitted physics?

Offsets of a deployment, of its software, layout and load, each shrunk as the rows bear it, and
offsets from a few rows of one server.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from experiments._silicon.predictions import Fold
from experiments._silicon.rows import Row
from infer_jax.calibration import FitProblem, Offsets, Score, offsets, score

FEW, HALF_BELIEVED = 5, 0.5


def levels(rows: Sequence[Row]) -> list[list[Hashable]]:
    """Labels of rows from wide to narrow: server, format and version, layout, requests in flight.

    Rows of the narrowest level differ in their lengths.
    """
    server = [(r.family, r.system, r.engine) for r in rows]
    run = [(*s, r.precision, r.version or r.date[:7]) for s, r in zip(server, rows, strict=True)]
    grid = [(*n, r.layout) for n, r in zip(run, rows, strict=True)]
    loaded = [(*g, r.concurrency) for g, r in zip(grid, rows, strict=True)]
    return [server, run, grid, loaded]  # pyright: ignore[reportReturnType]


def hierarchical(fold: Fold, rows: Sequence[Row]) -> Fold:
    """A fold's times with offsets from the rows it saw."""
    labels = [np.asarray([repr(x) for x in level]) for level in levels(rows)]
    seen = np.flatnonzero(fold.counted)
    times = fold.times.copy()
    for k, left in enumerate(-fold.fit.residuals.reshape(2, -1)):
        found: Offsets = offsets(left[seen], [x[seen].tolist() for x in labels])
        times[k] *= np.exp(found.at([x[fold.index].tolist() for x in labels]))
    return replace(fold, times=times)


def one_offset(folds: Sequence[Fold], rows: Sequence[Row], seed: int = 0) -> dict[str, Score]:
    """Scores of the other half of each server's held-out rows, after an offset from one half."""
    random, made = np.random.default_rng(seed), {0: [], 1: []}
    for fold in folds:
        servers: dict[tuple, list[int]] = {}
        for j, i in enumerate(fold.index):
            if rows[i].clean:
                servers.setdefault((rows[i].family, rows[i].system, rows[i].engine), []).append(j)
        for members in servers.values():
            picked = random.permutation(members)
            half, rest = picked[: len(picked) // 2], picked[len(picked) // 2 :]
            for k, name in enumerate(("tpot", "ttft")):
                measured = np.asarray([getattr(rows[i], name) for i in fold.index])
                factor = 1.0
                if len(half):
                    factor = np.median(measured[half] / fold.times[k, half])
                made[k].append(np.stack([fold.times[k, rest] * factor, measured[rest]]))
    return {
        name: score(*np.concatenate(made[k], axis=1)) for k, name in enumerate(("tpot", "ttft"))
    }


class Few(NamedTuple):
    """Servers on whose other rows a few measured ones beat the data sheet, of all servers.

    Median errors in per cent, of the server in the middle, by output.
    """

    servers: int
    better: dict[str, float]
    sheet: dict[str, float]
    measured: dict[str, float]


def five_rows(
    problem: FitProblem, rows: Sequence[Row], used: np.ndarray, seed: int = 0
) -> Few | None:
    """Five rows of a server, drawn at random, against the data sheet on its other rows.

    Of the rows ``used``; None where no server has enough.

    The data sheet stands for the model at what is believed before any row was seen: rates in
    good part reached, launches of tens of microseconds. Five rows give it one offset each for
    TPOT and TTFT.
    """
    logs = np.asarray(problem.derivatives(problem.starts(1, 0.0, 0)[0])[0]).reshape(2, -1)
    left = np.log(problem.data).reshape(2, -1) - logs
    servers: dict[tuple, list[int]] = {}
    for i in np.flatnonzero(used):
        row = rows[int(i)]
        servers.setdefault((row.family, row.system, row.engine), []).append(int(i))
    random, before, after = np.random.default_rng(seed), [], []
    for members in servers.values():
        if len(members) < 2 * FEW:
            continue
        drawn = random.permutation(members)
        few, rest = drawn[:FEW], drawn[FEW:]
        shift = [
            offsets(x[few], [["server"] * FEW], [HALF_BELIEVED]).values[0]["server"] for x in left
        ]
        wrong = [100.0 * np.abs(np.expm1(-x)) for x in (left, left - np.asarray(shift)[:, None])]
        before.append(np.median(wrong[0][:, rest], axis=1))
        after.append(np.median(wrong[1][:, rest], axis=1))
    if not before:
        return None
    one, other = np.asarray(before), np.asarray(after)

    def by_output(values: np.ndarray) -> dict[str, float]:
        return dict(zip(("tpot", "ttft"), map(float, values), strict=True))

    return Few(
        servers=len(one),
        better=by_output(100.0 * np.mean(other < one, axis=0)),
        sheet=by_output(np.median(one, axis=0)),
        measured=by_output(np.median(other, axis=0)),
    )
