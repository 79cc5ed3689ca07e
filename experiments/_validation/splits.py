"""Honest splits: every row predicted by a fit and offsets that have not seen what it is of.

Nested offsets with learned spreads: what a source, make, engine, server or build adds.

log(measured / predicted) = age b + the sum over levels of an offset + what is left. Offsets of a
level are normal with a spread of its own, what is left is Student's t with 4 degrees of freedom
(rows that went wrong count little); spreads and scale by expectation and maximisation. Source:
Searle, Casella and McCulloch 1992, chapter 8; Lange, Little and Taylor 1989 for t. The innermost
level is eliminated first, as each row is in one of its labels.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments import _report
from experiments._validation import decisions, kept_limits, split_scores
from experiments._validation.folds import (
    WAYS,
    Fold,
    applied,
    folds_of,
    has_twin,
    split,
    split_by_file,
    without,
)
from experiments._validation.split_scores import SHARES, Predicted
from infer_jax.calibration.pooled import likelihood
from infer_jax.calibration.pooled.likelihood import PooledProblem, PooledTimes
from infer_jax.calibration.pooled.publishers import UnseenErrors, without_publishers
from infer_jax.calibration.pooled.rows import AMD, PooledRow, system_named
from infer_jax.calibration.statistics import left_out_log_errors
from infer_jax.catalog.foreign import read_toml
from infer_jax.engines.engine import months_before
from infer_jax.errors import InputError
from infer_jax.estimators.serving import GENERATIONS

FREEDOM, ROUNDS = 4.0, 12
# a spread is believed to be about 3 %, as much as two labels say; months of age within 5 %
BELIEVED, LABELS, SLOPE = 0.03, 2.0, 0.05
START = 0.05


class Nested(NamedTuple):
    """Offsets of all rows by level (levels x rows), their variances, spreads and the age's slope.

    Of a label that no seen row has the offset is 0 and the variance that of its level. ``scale``:
    of the Student's t of what is left; ``slope`` with its standard error.
    """

    offsets: np.ndarray
    variances: np.ndarray
    spreads: np.ndarray
    scale: float
    slope: float
    error: float
    known: np.ndarray

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of log(measured / predicted with offsets) of each row."""
        return np.sqrt(self.variances.sum(axis=0) + self.scale**2)


def nested(
    left: np.ndarray, levels: Sequence[np.ndarray], age: np.ndarray, seen: np.ndarray
) -> Nested:
    """Offsets from the ``seen`` rows.

    Args:
        left: log(measured / predicted) of all rows.
        levels: labels of all rows, the innermost level last.
        age: months, 0 where not known.
        seen: the rows that may be used.
    """
    codes = [np.unique(labels, return_inverse=True)[1] for labels in levels]
    sizes = [int(code.max()) + 1 for code in codes]
    starts = np.cumsum([0, *sizes])
    every = np.stack([c + s for c, s in zip(codes, starts, strict=False)])
    used = np.unique(every[:, seen])
    place = np.full(starts[-1], -1)
    place[used] = np.arange(len(used))
    rows = (place[every[:, seen]], age[seen], left[seen])
    level = np.searchsorted(starts, used, side="right") - 1
    spreads = np.full(len(levels), START**2)
    values, variances, scale, slope = _learnt(rows, level, spreads)
    offsets, doubt = np.zeros(starts[-1]), np.repeat(spreads, sizes)
    offsets[used], doubt[used] = values, variances
    known = np.isin(every, used)
    return Nested(offsets[every], doubt[every], np.sqrt(spreads), scale, *slope, known)


Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # places of labels (levels x rows), age, left


def _learnt(
    rows: Rows, level: np.ndarray, spreads: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float, tuple[float, float]]:
    """Offsets, variances, scale, and slope with error; ``spreads`` (squares) is filled in."""
    labels, age, left = rows
    square = float(np.median(np.abs(left))) ** 2 + 1e-8
    rest = left - np.median(left)
    values = variances = np.zeros(len(level))
    slope = (0.0, 0.0)
    for _ in range(ROUNDS):
        weight = (FREEDOM + 1.0) / (FREEDOM + rest**2 / square)
        values, variances, slope = _solved(rows, weight / square, 1.0 / spreads[level], level)
        rest = left - slope[0] * age - values[labels].sum(axis=0)
        for k in range(len(spreads)):
            own = level == k
            size = np.sum(values[own] ** 2 + variances[own]) + LABELS * BELIEVED**2
            spreads[k] = size / (own.sum() + LABELS)
        free = max(len(rest) - 0.3 * len(level), 1.0)  # offsets take some of the freedom
        square = float(np.sum(weight * rest**2)) / free + 1e-10
    return values, variances, float(np.sqrt(square)), slope


def _solved(
    rows: Rows, weight: np.ndarray, held: np.ndarray, level: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """Offsets, their variances, and the slope with its error, of weighted least squares."""
    (*outer, inner), age, left = rows
    count = int(np.sum(level < level.max()))  # labels of the outer levels come first
    many = len(level) - count
    own = inner - count
    square, cross, right = (np.zeros((count + 1, *x)) for x in ((count + 1,), (many,), ()))
    for one in outer:
        for other in outer:
            np.add.at(square, (one, other), weight)
        np.add.at(cross, (one, own), weight)
        np.add.at(square[:, -1], one, weight * age)
        np.add.at(right, one, weight * left)
    square[-1, :-1] = square[:-1, -1]
    square[-1, -1] = np.sum(weight * age**2) + SLOPE**-2
    square[np.arange(count), np.arange(count)] += held[:count]
    cross[-1] = np.bincount(own, weight * age, many)
    right[-1] = np.sum(weight * age * left)
    size = np.bincount(own, weight, many) + held[count:]
    right_inner = np.bincount(own, weight * left, many)
    shared = cross / size
    inverse = np.linalg.inv(square - shared @ cross.T)
    found = inverse @ (right - shared @ right_inner)
    inside = (right_inner - cross.T @ found) / size
    spread = 1.0 / size + np.sum(shared * (inverse @ shared), axis=0)
    doubt = np.diag(inverse)
    values = np.concatenate([found[:-1], inside])
    slope = float(found[-1]), float(np.sqrt(doubt[-1]))
    return values, np.concatenate([doubt[:-1], spread]), slope


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
    start, _ = made.solve(made.starts(), likelihood.weights(times), likelihood.STEPS)
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
        found = nested(plain[own], [x[own] for x in levels], age[own], fold.seen[own])
        offset[own] = plain[own] - found.slope * age[own] - found.offsets.sum(axis=0)
        if way != "source":
            labels = servers[own], questions[own]
            bands[:, :, own] = _bands(found, offset[own], labels, fold.seen[own])
    if way != "source":
        return Predicted(plain, offset, offset, bands)
    errors = unseen_errors(times, made, free, fold.seen)
    return Predicted(plain, offset, plain, unseen_ends(errors, fold.seen))


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


def unseen_ends(unseen: UnseenErrors, seen: np.ndarray) -> np.ndarray:
    """Ends of bands of each time not ``seen``, by the law of the seen ones: logs.

    ``SHARES`` x (low, high) x times. A median of TTFT, which one publisher alone may have, errs by
    the law of means where no other has any.
    """
    bands = np.full((len(SHARES), 2, len(seen)), np.nan)
    known = seen & np.isfinite(unseen.errors)
    for name in np.unique(unseen.laws[~seen]).tolist():
        own = ~seen & (unseen.laws == name)
        some = [unseen.sample(x, known) for x in dict.fromkeys((name, "ttft"))]
        sample = next((x for x in some if x.any()), None)
        if sample is not None:
            law = unseen.law(sample)
            edges = np.asarray([law.ends[share] for share in SHARES])
            bands[:, :, own] = edges[:, :, None] * unseen.scales(law, own)
    return bands


def _bands(
    found: Nested, rest: np.ndarray, labels: tuple[np.ndarray, np.ndarray], seen: np.ndarray
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


# coefficients of a term, with values at which it does nothing
WITHOUT: Any = read_toml(Path(__file__).with_name("terms.toml"))


def losses_without(rows: list[PooledRow]) -> dict[str, Any]:
    """Print what each term of the estimator explains: the loss on left-out rows without it.

    The other coefficients are fitted again. Rows of a server and pair of lengths are left out
    together, by the linearised fit.
    """
    times, begin = PooledTimes.of(rows), time.perf_counter()
    groups = times.labels(lambda row: (row.dataset, row.group, row.lengths)).tolist()
    whole = losses(times, {}, groups)
    _report.say(f"fit of {len(times.seconds)} times: {whole[0]:.0f}, {whole[1]:.0f}", begin)
    gains = {}
    for name, values in WITHOUT.items():
        found = losses(times, values, groups)
        count = sum(own in likelihood.NAMES for own in values)
        fitted, left_out = (x - y for x, y in zip(found, whole, strict=True))
        gains[name] = {"coefficients": count, "fitted": fitted, "left_out": left_out}
        _report.say(f"without {name}: {left_out:+.0f}", begin)
    lines = [
        (name, x["coefficients"], f"{x['fitted']:.0f}", f"{x['left_out']:.0f}")
        for name, x in sorted(gains.items(), key=lambda item: -item[1]["left_out"])
    ]
    note = "Loss: half the sum of squares of all times, each counted as in the fit."
    columns = ("without", "coefficients", "loss of the fit", "of left-out rows")
    _report.show("By how much losses rise without a term", columns, lines, note)
    return gains


def losses(
    times: PooledTimes, values: Mapping[str, float], groups: list[str]
) -> tuple[float, float]:
    """Half the sums of squares of a fit with fixed ``values``: of all, and of left-out ones."""
    fit = likelihood.solve_starts(likelihood.problem(times, fixed=values), times, 1)
    used = fit.weights > 0

    def loss(errors: np.ndarray) -> float:
        roots = np.asarray(fit.loss.root(jnp.asarray(errors / fit.scale)))
        return 0.5 * float(np.sum(fit.weights[used] * roots[used] ** 2))

    return loss(fit.residuals), loss(left_out_log_errors(fit, groups, used))
