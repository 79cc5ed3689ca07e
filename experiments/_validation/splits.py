"""Honest splits: every row predicted by a fit and offsets that have not seen what it is of.

``make``: AMD's chips by fits to NVIDIA's rows; ``engine``, ``model``, ``source`` (a publisher of
rows): one at a time; ``time``: rows from May 2026 on by those before; ``groups``: five draws of a
server's lengths. A left-out make or engine has the coefficients that the others share.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments import _report
from experiments._validation import (
    everything,
    goals,
    left_out,
    makes,
    microbenchmarks,
    nested,
    ship,
    unseen,
)
from experiments._validation.everything import ByDifferences, Measured
from experiments._validation.row import Row, system
from infer_jax.calibration import at, covariance, identifiability, interval
from infer_jax.errors import InputError
from infer_jax.estimators.serving import ENGINES, GENERATIONS

WAYS = ("make", "engine", "model", "source", "time", "groups")
FROM, FOLDS = "2026-05", 5
LEAST, SHOWN = 150, 20  # times of a model that is left out alone; of a data set in a fold's table
LAST = 2026 * 12 + 6  # the month from which the age of a build is counted back
LIKE = 8.0  # times more that the error of a row says where it was asked the same question
TAIL = 0.1  # of measured times beyond either end of a band
LINES = ("pace", "TTFT", "throughput", "E2E", "TTFT, median")  # kinds of times


class Fold(NamedTuple):
    """One fold: what was left out, and which times were seen."""

    left: str
    seen: np.ndarray


class Predicted(NamedTuple):
    """Logs of measured over predicted, by coefficients alone and with offsets; ends of bands.

    ``banded``: the log that a band is of: with offsets, or alone where a publisher is new.
    """

    plain: np.ndarray
    offset: np.ndarray
    banded: np.ndarray
    low: np.ndarray
    high: np.ndarray


def run(way: str, rows: list[Row], file: Path | None = None) -> dict[str, Any]:
    """Print the table of a split, and return its figures: data set, metric, errors and bands.

    ``file``: to which the laws of errors of new publishers are written (of ``source``).

    Raises:
        InputError: no such split, or rows of one kind alone.
    """
    if way not in WAYS:
        raise InputError("validation", "--split", way, ", ".join(WAYS))
    times = Measured.of(microbenchmarks.applied(rows) if way == "make" else rows)
    folds = list(split(way, times))
    if not folds or not all(fold.seen.any() for fold in folds):
        raise InputError("validation", "--split", way, "rows of two kinds of it or more")
    made = everything.problem(times)
    begun = time.perf_counter()
    start, _ = made.solve(
        made.starts(1, 0.0, 0), everything.weights(times, times.kind >= 0), everything.STEPS
    )
    _say(f"fit of {len(times.seconds)} times of {len(rows)} rows", begun)
    every = np.full((len(Predicted._fields), len(times.seconds)), np.nan)
    every_fact = {name: np.zeros(len(times.seconds)) for name in unseen.FACTS}
    for fold in folds:
        found, known = predicted(way, fold, times, made, start[0])
        every[:, ~fold.seen] = np.stack(found)[:, ~fold.seen]
        for name, x in known.items():
            every_fact[name][~fold.seen] = x[~fold.seen]
        _say(f"{fold.left} left out: {int(np.sum(~fold.seen))} times", begun)
    whole = Predicted(*every)
    if file is not None:
        unseen.ship(file, times, unseen.Unseen(whole.plain, every_fact))
    return _shown(way, times, whole)


def everything_fitted(rows: list[Row], file: Path | None = None) -> dict[str, Any]:
    """One fit of all rows: coefficients with jackknife intervals, spreads by level, weak ones.

    With ``file`` it is written there as the package reads it.
    """
    times = Measured.of(rows)
    made, begun = everything.problem(times, everything.FINE), time.perf_counter()
    counted = everything.weights(times, times.kind >= 0)
    ends, _ = made.solve(made.starts(1, 0.0, 0), counted, everything.STEPS)
    found = at(made, ends[0], counted)
    groups = times.labels(lambda row: row.group).tolist()
    bounds = interval(found, covariance(found, groups), 0.8)
    known = identifiability(found)
    _say(f"fit of {len(groups)} times in {len(set(groups))} servers", begun)
    lines = [
        (
            p.name,
            f"{found.values[p.name]:.4g}",
            *(f"{x:.4g}" for x in bounds[p.name]),
            f"{p.learnt:.2f}",
        )
        for p in known.parameters
    ]
    columns = ("coefficient", "value", "low", "high", "learnt")
    note = "80 % intervals by the jackknife over servers. Learnt: near 1 the rows say nothing."
    _report.show("One fit of all rows", columns, lines, note)
    spreads = _spreads(times, np.log(times.seconds / found.predicted))
    weak = [p.name for p in known.parameters if (p.learnt or 0.0) > 0.6]
    _report.console().print(f"Weakly known: {', '.join(weak) or 'none'}.")
    if file is not None:
        ship.ship(file, found, times, counted)
        left_out.run(rows, file, found)
    return {"values": found.values, "intervals": bounds, "weak": weak, "spreads": spreads}


def split(way: str, times: Measured) -> Iterator[Fold]:
    """The folds of a split."""
    if way == "time":
        yield Fold(f"from {FROM}", times.labels(lambda row: row.date) < FROM)
        return
    if way == "groups":
        labels = times.labels(lambda r: (r.dataset, r.group, r.work and _lengths(r)))
        kinds, places = np.unique(labels, return_inverse=True)
        draw = np.random.default_rng(0).permutation(len(kinds)) % FOLDS
        for k in range(FOLDS):
            yield Fold(f"draw {k + 1}", draw[places] != k)
        return
    labels = times.labels(_LEFT[way])
    kinds = ["amd"] if way == "make" else list(ENGINES) if way == "engine" else np.unique(labels)
    for kind in kinds:
        out = labels == kind
        if out.sum() >= (LEAST if way == "model" else 1) and not out.all():
            yield Fold(str(kind), ~out)


def predicted(
    way: str, fold: Fold, times: Measured, made: ByDifferences, start: np.ndarray
) -> tuple[Predicted, dict[str, np.ndarray]]:
    """All times by a fit and offsets of the seen ones; of a new publisher also its facts."""
    shared = way in ("make", "engine")
    begin = everything.without(start, made, fold.left) if shared else start
    counted = everything.weights(times, fold.seen)
    ends, _ = made.solve(begin[None], counted, everything.STEPS)
    free = everything.without(ends[0], made, fold.left) if shared else ends[0]
    plain = np.log(times.seconds) - np.asarray(made.logs(jnp.asarray(free)))
    offset, low, high = (np.full(len(plain), np.nan) for _ in range(3))
    for kind in np.unique(times.kind):
        own = times.kind == kind
        if not (own & fold.seen).any():  # of this kind there are rows of what was left out alone
            offset[own] = plain[own]
            continue
        found = _nested(times, own, plain, fold.seen)
        age = _age(times)[own]
        rest = plain[own] - found.slope * age - found.offsets.sum(axis=0)
        offset[own] = rest
        alike = (times.labels(_server)[own], times.labels(_question)[own])
        if way != "source":
            low[own], high[own] = _band(found, rest, alike, fold.seen[own])
    if way != "source":
        return Predicted(plain, offset, offset, low, high), {}
    known = unseen.unseen(times, made, free, fold.seen, times.labels(source))
    low, high = known.ends(times, fold.seen)
    return Predicted(plain, offset, plain, low, high), known.facts


def _band(
    found: nested.Nested, rest: np.ndarray, alike: tuple[np.ndarray, np.ndarray], seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the 80 % band about the predicted log, from seen rows without the same levels.

    What a row is new in (source, engine, server, build, lengths) is taken away from the seen rows,
    too; what they then are off by, in deviations, has the quantiles. A server counts by the root
    of its rows, and rows of the same question more than others.
    """
    low, high = np.full(len(rest), np.nan), np.full(len(rest), np.nan)
    servers, questions = alike
    _, which, many = np.unique(servers[seen], return_inverse=True, return_counts=True)
    new = np.stack([*(~found.known[:, ~seen]).astype(str), questions[~seen]])
    kinds, kind = np.unique(new, axis=1, return_inverse=True)
    places = np.flatnonzero(~seen)
    for k, (*levels, question) in enumerate(kinds.T):
        left = (np.asarray(levels) == "True")[:, None]
        off = rest + np.where(left, found.offsets, 0.0).sum(axis=0)
        doubt = np.where(left, found.spreads[:, None] ** 2, found.variances).sum(axis=0)
        score = (off / np.sqrt(doubt + found.scale**2))[seen]
        weight = np.where(questions[seen] == question, LIKE, 1.0) * many[which] ** -0.5
        order = np.argsort(score)
        reach = np.cumsum(weight[order]) - 0.5 * weight[order]
        ends = np.interp((TAIL, 1.0 - TAIL), reach / weight.sum(), score[order])
        own = places[kind.ravel() == k]
        low[own], high[own] = ends[0] * found.deviation[own], ends[1] * found.deviation[own]
    return low, high


def _nested(times: Measured, own: np.ndarray, left: np.ndarray, seen: np.ndarray) -> nested.Nested:
    levels = [times.labels(of)[own] for of in LEVELS.values()]
    return nested.nested(left[own], levels, _age(times)[own], seen[own])


def _spreads(times: Measured, left: np.ndarray) -> dict[str, Any]:
    """The learned spreads by level, printed; the slope of the software's age."""
    lines, figures = [], {}
    for kind, name in enumerate(LINES):
        own = times.kind == kind
        found = _nested(times, own, left, np.ones(len(left), bool))
        cells = {n: 100.0 * float(x) for n, x in zip(LEVELS, found.spreads, strict=True)}
        cells |= {"a row": 100.0 * found.scale}
        age = (100.0 * found.slope, 100.0 * found.error)
        lines.append((name, *(f"{x:.1f}" for x in cells.values()), f"{age[0]:.1f} +- {age[1]:.1f}"))
        figures[name] = cells | {"a month": age}
    columns = ("", *LEVELS, "a row", "a month of age")
    _report.show("Spread of offsets by level, per cent", columns, lines)
    return figures


def _shown(way: str, times: Measured, found: Predicted) -> dict[str, Any]:
    datasets = times.labels(lambda row: row.dataset)
    lines, figures = [], {}
    for dataset in dict.fromkeys(datasets.tolist()):
        for kind, name in enumerate(LINES):
            own = (datasets == dataset) & (times.kind == kind) & np.isfinite(found.offset)
            if own.sum() < SHOWN:
                continue
            one = _scored(found, own)
            figures.setdefault(dataset, {})[name] = one
            lines.append(_cells(dataset, name, one))
    for kind, name in enumerate(LINES):
        own = (times.kind == kind) & np.isfinite(found.offset)
        if own.any():
            one = _scored(found, own)
            constant = _constant(found, own)
            figures.setdefault("all", {})[name] = one | {"constant": constant}
            *cells, width = _cells("all", name, one)
            lines.append((*cells, f"{width} (constant {constant:.2f})"))
    columns = ("rows of", "", "rows", "alone %", "bias %", "median %", "mean %", "bias %")
    note = (
        "Alone: by coefficients. Then with offsets of what was seen and the age of the build. "
        "Pace: TPOT, or the\ntime of a batch or a token of all. Constant: the one width that "
        "holds as many of all rows."
    )
    columns = (*columns, "in 80 %", "width")
    _report.show(f"Rows of a {way} left out", columns, lines, note)
    goals.show(way, figures)
    return figures


def _cells(dataset: str, name: str, one: dict[str, float]) -> tuple[object, ...]:
    """A line of the table, its width last."""
    errors = (f"{one[k]:.1f}" for k in ("alone", "alone_bias", "median", "mean", "bias"))
    return dataset, name, one["rows"], *errors, f"{one['cover80']:.0f}", f"{one['width80']:.2f}"


def _say(what: str, begun: float) -> None:
    _report.console().print(f"[dim]{time.perf_counter() - begun:6.1f} s[/]  {what}")


def _scored(found: Predicted, own: np.ndarray) -> dict[str, float]:
    plain, offset = (100.0 * np.abs(np.expm1(-x[own])) for x in (found.plain, found.offset))
    inside = (found.low <= found.banded) & (found.banded <= found.high)
    biases = [100.0 * np.expm1(-np.mean(x[own])) for x in (found.plain, found.offset)]
    return {
        "rows": int(own.sum()),
        "alone": float(np.median(plain)),
        "alone_bias": float(biases[0]),
        "median": float(np.median(offset)),
        "mean": float(np.mean(offset)),
        "bias": float(biases[1]),
        "cover80": 100.0 * float(np.mean(inside[own])),
        "width80": float(np.exp(np.mean((found.high - found.low)[own]))),
    }


def _constant(found: Predicted, own: np.ndarray) -> float:
    """The one ratio of ends that holds as many rows, about the same predictions."""
    inside = (found.low <= found.banded) & (found.banded <= found.high)
    return float(np.exp(2.0 * np.quantile(np.abs(found.banded[own]), np.mean(inside[own]))))


def _age(times: Measured) -> np.ndarray:
    """Months from a row's build to the newest; 0 where the date is not known."""
    return np.asarray([_months(times.rows[i].date) for i in times.row])


def _months(date: str) -> float:
    parts = [int(x) for x in date.split("-")] if date else []
    if len(parts) < 2:
        return 0.0
    day = (parts[2] - 1) / 30.0 if len(parts) > 2 else 0.5
    return LAST - (12 * parts[0] + parts[1]) - day


def _lengths(row: Row) -> tuple[float, float]:
    assert row.work is not None
    return float(row.work.isl), float(row.work.osl)


def _framework(row: Row) -> str:
    words = row.group.split()
    return words[2] if row.dataset.startswith("inferencex") else row.engine


def _question(row: Row) -> str:
    once = not row.dataset.startswith(("inferencex", "gpt-oss", "silicon"))
    return f"{row.asked} {'at once' if once else ''} {_drafting(row)}"


def _drafting(row: Row) -> str:
    return "drafts" if "drafts" in row.dataset else ""


def source(row: Row) -> str:
    """Who published a row."""
    return row.dataset.split()[0]


def make(row: Row) -> str:
    """The make of a row's chip."""
    return "amd" if row.system in makes.CHIPS else "nvidia"


def _generation(row: Row) -> str:
    own = system(row.system).coefficients.get("serving", {})
    return GENERATIONS[int(own.get("generation", 0.0))]


def _layout(row: Row) -> tuple[float, ...]:
    ranks = ("tp", "attention_dp", "ep", "pp")
    return tuple(float(getattr(row.plan, name, 0.0)) for name in ranks)


def _server(row: Row) -> tuple:
    return row.dataset, row.group, row.served and row.served.formats


_LEFT = {
    "make": make,
    "engine": lambda row: row.engine,
    "model": lambda row: row.served and row.served.model,
    "source": source,
}
LEVELS: dict[str, Any] = {
    "source": source,
    "question": lambda row: (source(row), row.asked, _drafting(row)),
    "engine": lambda row: _framework(row).rpartition("-")[2].replace("trtllm", "trt"),
    "make": make,
    "generation": _generation,
    "system": lambda row: row.system,
    "model": lambda row: row.served and row.served.model,
    "server": _server,
    "build": lambda row: (row.system, _framework(row), row.date),
    "lengths": lambda row: (*_server(row), *_lengths(row), *_layout(row)),
}
