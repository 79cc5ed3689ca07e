"""Honest splits: every row predicted by a fit and offsets that have not seen what it is of."""

import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments import _report
from experiments._validation import decisions, kept_limits, nested, split_scores
from experiments._validation.folds import (
    WAYS,
    Fold,
    applied,
    folds_of,
    split,
    split_by_file,
    without,
)
from experiments._validation.split_scores import SHARES, Predicted
from experiments._validation.twins import has_twin
from infer_jax.calibration.pooled import likelihood
from infer_jax.calibration.pooled.likelihood import PooledProblem, PooledTimes
from infer_jax.calibration.pooled.publishers import UnseenErrors, without_publishers
from infer_jax.calibration.pooled.rows import AMD, PooledRow, system_named
from infer_jax.engines.engine import months_before
from infer_jax.errors import InputError
from infer_jax.estimators.serving import GENERATIONS

LIKENESS = 8.0  # times more that the error of a row counts whose question was the same


def run(
    way: str | None,
    rows: list[PooledRow],
    file: Path | None = None,
    out: Path | None = None,
    choose: bool = False,
    confidence: float | None = None,
) -> dict[str, Any]:
    """Print the table of a split, and return its figures: data set, metric, errors and bands.

    Args:
        file: folds in place of ``way``.
        out: CSV of predictions to write.
        choose: whether choices of layout and load under limits are scored, too.
        confidence: at which plans are chosen and scored by whether their limits are kept.

    Raises:
        InputError: no such split, or rows of one kind alone.
    """
    if way is not None and way not in WAYS:
        raise InputError("validation", "--split", way, ", ".join(WAYS))
    named = {} if file is None else folds_of(file, rows)
    times = PooledTimes.of(applied(rows) if way == "make" else rows)
    folds = list(split_by_file(named, times) if way is None else split(way, times))
    if not folds or not all(fold.seen.any() for fold in folds):
        raise InputError("validation", "--split", way, "rows of two kinds of it or more")
    made, begin = likelihood.problem(times), time.perf_counter()
    start, _ = made.solve(made.starts(1, 0.0, 0), likelihood.weights(times), likelihood.STEPS)
    _report.say(f"fit of {len(times.seconds)} times of {len(rows)} rows", begin)
    count = len(times.seconds)
    found, twin = Predicted.empty(count), np.zeros(count, bool)
    for fold in folds:
        seen = np.isin(np.arange(len(times.rows)), times.row[fold.seen])
        twin[~fold.seen] = has_twin(times.rows, seen)[times.row[~fold.seen]]
        for column, values in zip(found, predicted(way, fold, times, made, start[0]), strict=True):
            column[..., ~fold.seen] = values[..., ~fold.seen]
        _report.say(f"{fold.name} left out: {int(np.sum(~fold.seen))} times", begin)
    figures = split_scores.table(way or "folds", times, found, twin)
    if out is not None:
        split_scores.write(out, times, found, folds, named)
    if choose:
        figures["decisions"] = decisions.of_split(times, found)
    if confidence is not None:
        kept = kept_limits.table(times, found.banded, found.bands, confidence)
        figures["kept limits"] = kept
    return figures


def predicted(
    way: str | None, fold: Fold, times: PooledTimes, made: PooledProblem, start: np.ndarray
) -> Predicted:
    """All times by a fit and offsets of the seen ones."""
    shared = way in ("make", "engine")
    begin = without(start, made, fold.name) if shared else start
    ends, _ = made.solve(begin[None], likelihood.weights(times, fold.seen), likelihood.STEPS)
    free = without(ends[0], made, fold.name) if shared else ends[0]
    plain = np.log(times.seconds) - np.asarray(made.logs(jnp.asarray(free)))
    offset, bands = np.full(len(plain), np.nan), np.full((len(SHARES), 2, len(plain)), np.nan)
    servers, questions = times.labels(server), times.labels(question)
    age = np.asarray([_months(row.date) for row in times.rows])[times.row]
    levels = [times.labels(label) for label in LEVELS.values()]
    for kind in np.unique(times.kind):
        own = times.kind == kind
        if not (own & fold.seen).any():  # of this kind there are rows of what was left out alone
            offset[own] = plain[own]
            continue
        found = nested.nested(plain[own], [x[own] for x in levels], age[own], fold.seen[own])
        offset[own] = plain[own] - found.slope * age[own] - found.offsets.sum(axis=0)
        if way != "source":
            labels = servers[own], questions[own]
            bands[:, :, own] = _bands(found, offset[own], labels, fold.seen[own])
    if way != "source":
        return Predicted(plain, offset, offset, bands)
    errors = unseen_errors(times, made, free, fold.seen)
    return Predicted(plain, offset, plain, unseen_ends(errors, times, fold.seen))


def unseen_errors(
    times: PooledTimes, made: PooledProblem, free: np.ndarray, seen: np.ndarray
) -> UnseenErrors:
    """The errors of all times: of ``seen`` ones without their publisher, of others by the fit.

    Args:
        free: coordinates of the fit to the ``seen`` times.
    """
    own = np.log(times.seconds) - np.asarray(made.logs(free))
    errors = without_publishers(times, made, free[None], seen)
    return UnseenErrors.of(times, np.where(seen, errors, own))


def unseen_ends(unseen: UnseenErrors, times: PooledTimes, seen: np.ndarray) -> np.ndarray:
    """Ends of bands of each time not ``seen``, by the law of the seen ones: logs.

    ``SHARES`` x (low, high) x times. A median of TTFT, which one publisher alone may have, errs by
    the law of means where no other has any.
    """
    bands = np.full((len(SHARES), 2, len(seen)), np.nan)
    known = seen & np.isfinite(unseen.errors)
    for name in np.unique(unseen.laws[~seen]).tolist():
        own = ~seen & (unseen.laws == name)
        some = [unseen.sample(times, x, known) for x in dict.fromkeys((name, "ttft"))]
        sample = next((x for x in some if x.any()), None)
        if sample is not None:
            law = unseen.law(times, sample)
            edges = np.asarray([law.ends[share] for share in SHARES])
            bands[:, :, own] = edges[:, :, None] * unseen.scales(law, own)
    return bands


def _bands(
    found: nested.Nested, rest: np.ndarray, labels: tuple[np.ndarray, np.ndarray], seen: np.ndarray
) -> np.ndarray:
    """Ends of bands about the predicted log, from seen rows without the same levels.

    What a row is new in (source, engine, server, build, lengths) is taken away from the seen rows,
    too; what they then are off by, in deviations, has the quantiles. A server counts by the root
    of its rows, and rows of the same question more than others.
    """
    bands = np.full((len(SHARES), 2, len(rest)), np.nan)
    tails = np.asarray([(0.5 - s / 200.0, 0.5 + s / 200.0) for s in SHARES])
    servers, questions = labels
    _, which, sizes = np.unique(servers[seen], return_inverse=True, return_counts=True)
    new = np.stack([*(~found.known[:, ~seen]).astype(str), questions[~seen]])
    kinds, kind = np.unique(new, axis=1, return_inverse=True)
    indices = np.flatnonzero(~seen)
    for k, (*levels, own_question) in enumerate(kinds.T):
        left = (np.asarray(levels) == "True")[:, None]
        off = rest + np.where(left, found.offsets, 0.0).sum(axis=0)
        variance = np.where(left, found.spreads[:, None] ** 2, found.variances).sum(axis=0)
        score = (off / np.sqrt(variance + found.scale**2))[seen]
        weight = np.where(questions[seen] == own_question, LIKENESS, 1.0) * sizes[which] ** -0.5
        order = np.argsort(score)
        reach = np.cumsum(weight[order]) - 0.5 * weight[order]
        ends = np.interp(tails, reach / weight.sum(), score[order])
        own = indices[kind.ravel() == k]
        bands[:, :, own] = ends[:, :, None] * found.deviation[own]
    return bands


def _months(date: str) -> float:
    """Months from a row's build to the newest; 0 where the date is not known."""
    parts = [int(x) for x in date.split("-")] if date else []
    if len(parts) < 2:
        return 0.0
    day = (parts[2] - 1) / 30.0 if len(parts) > 2 else 0.5
    return months_before(f"{parts[0]}-{parts[1]}") - day


def server(row: PooledRow) -> tuple:
    """What rows of one server share."""
    return row.dataset, row.group, row.served and row.served.formats


def question(row: PooledRow) -> str:
    """The kind of load of a server: its mode, whether all requests come at once, drafts."""
    once = not row.dataset.startswith(("inferencex", "gpt-oss", "silicon"))
    return f"{row.mode} {'at once' if once else ''} {_drafting(row)}"


def _drafting(row: PooledRow) -> str:
    return "drafts" if "drafts" in row.dataset else ""


def _framework(row: PooledRow) -> str:
    return row.framework if row.dataset.startswith("inferencex") else row.engine


def _generation(row: PooledRow) -> str:
    own = system_named(row.system).coefficients.get("serving", {})
    return GENERATIONS[int(own.get("generation", 0.0))]


# of offsets, from wide to narrow
LEVELS: dict[str, Any] = {
    "source": lambda row: row.publisher,
    "question": lambda row: (row.publisher, row.mode, _drafting(row)),
    "engine": lambda row: _framework(row).rpartition("-")[2].replace("trtllm", "trt"),
    "make": lambda row: "amd" if row.system in AMD else "nvidia",
    "generation": _generation,
    "system": lambda row: row.system,
    "model": lambda row: row.served and row.served.model,
    "server": server,
    "build": lambda row: (row.system, _framework(row), row.date),
    "lengths": lambda row: (
        *server(row),
        *row.lengths,
        *(float(getattr(row.plan, name, 0.0)) for name in ("tp", "attention_dp", "ep", "pp")),
    ),
}
