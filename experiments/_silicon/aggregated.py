"""Aggregated rows: fitted, held out, scored and printed."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from experiments import _report
from experiments._silicon import (
    believed,
    calibrated,
    decisions,
    fit as fitting,
    folds as folding,
    rows as reading,
    score,
)
from experiments._silicon.learned import corrected
from experiments._silicon.predictions import Fold, predicted
from infer_jax.calibration import Score

UNDRAWN = "in no fold"
SLACK = 0.02  # of the limit that a choice may be predicted beyond


def run(
    cv: str | None,
    file: Path | None,
    out: Path | None,
    more: bool,
    learned: bool,
    confidence: bool = False,
) -> dict[str, Any]:
    """Score the serving theory by folds; print tables, and return the headline."""
    every = reading.aggregated()
    rows = [r for r in every if r.unique]
    used = np.asarray([r.clean for r in rows])
    if file is not None:
        asked = folding.read(file)
        inside = folding.given(asked, every)
        used &= np.any(list(inside.values()), axis=0)
        title = f"folds of {file}"
    else:
        asked = {r.id: "" for r in every}
        inside = folding.folds(rows, str(cv))
        title = f"held out by {cv}"
    entries = folding.entries(every, asked)
    problem = fitting.problem(rows)
    found = predicted(problem, rows, inside, used)
    headline = _scores(found, rows, entries, title)
    headline["parameters"] = len(problem.chosen.names)
    if more:
        headline |= _more(found, rows)
        headline["five_rows"] = _few(calibrated.five_rows(problem, rows, used))
    if confidence:
        headline["belief"] = believed.decided(found, rows)
    if learned:
        headline["learned_residual"] = _learned(found, rows)
    if out is not None:
        there = {rows[i].id for fold in found for i in fold.index}
        left = {
            r.id: r.anomaly if r.layout is None else UNDRAWN
            for r in every
            if r.id in asked and r.first not in there
        } | folding.elsewhere(asked, every)
        score.write(out, found, rows, entries, left)
        headline["left_out"] = dict(Counter(left.values()))
    return headline


def _scores(
    found: list[Fold], rows: list[reading.Row], entries: dict[str, list[str]], title: str
) -> dict[str, Any]:
    clean = score.pooled(found, rows, lambda r: r.clean)
    whole = score.pooled(found, rows, lambda r: True, entries)
    theirs = score.aiconfigurator(found, rows)
    lines = [
        *((f"clean rows, {name}", s) for name, s in clean.items()),
        *((f"all rows, {name}", s) for name, s in whole.items()),
        *((f"aiconfigurator 0.12, {name}", s) for name, s in (theirs or {}).items()),
    ]
    if len(found) > 1:
        for fold in found:
            if not any(rows[i].clean for i in fold.index):
                continue
            one = score.pooled([fold], rows, lambda r: r.clean)
            lines += [(f"fold {fold.name}, {name}", s) for name, s in one.items()]
    table(title, lines)
    headline: dict[str, Any] = {
        name: {"clean": figures(clean[name]), "all": figures(whole[name])} for name in clean
    }
    if theirs:
        headline["aiconfigurator"] = {name: figures(s) for name, s in theirs.items()}
    return headline


def table(title: str, lines: list[tuple[str, Score]], note: str = "") -> None:
    """Print scores."""
    shown = [
        (
            what,
            s.rows,
            *(f"{x:.1f}" for x in (s.median, s.mean, s.p90)),
            f"{s.spearman:.3f}",
            "-" if s.cover80 is None else f"{s.cover80:.1f}",
        )
        for what, s in lines
    ]
    columns = ("", "rows", "median %", "mean %", "p90 %", "Spearman", "in 80 % band")
    _report.show(title, columns, shown, note)


def figures(one: Score) -> dict[str, float | int | None]:
    """A score for the headline."""
    return one._asdict()


def _more(found: list[Fold], rows: list[reading.Row]) -> dict[str, Any]:
    half = calibrated.one_offset(found, rows)
    table("One offset per (model, system, engine) from half of its rows", list(half.items()))
    wider = [calibrated.hierarchical(fold, rows) for fold in found]
    pooled = score.pooled(wider, rows, lambda r: r.clean, banded=False)
    table("Offsets of server, software, layout and load from the rows fitted", list(pooled.items()))
    covered, widths = score.coverage(found, rows), score.intervals(found, rows)
    for name in covered:
        shown = [
            (f"{kind} {label}", part["rows"], f"{part['cover80']:.1f}")
            for kind, parts in covered[name].items()
            for label, part in parts.items()
        ]
        note = "interval score in log: {ours:.3f}, constant width {constant:.3f}".format(
            **widths[name]
        )
        _report.show(f"80 % bands, {name}", ("slice", "rows", "covered %"), shown, note)
    return {
        "one_offset": {name: figures(s) for name, s in half.items()},
        "offsets": {name: figures(s) for name, s in pooled.items()},
        "coverage": covered,
        "interval_score": widths,
        "decisions": _decisions(found, wider, rows),
    }


def _few(few: calibrated.Few | None) -> dict[str, Any] | None:
    if few is None:
        return None
    shown = [
        (name, *(f"{x[name]:.1f}" for x in (few.better, few.sheet, few.measured)))
        for name in few.better
    ]
    columns = ("", "better on % of servers", "data sheet, median %", "after five rows")
    note = f"{few.servers} servers of ten rows or more; the one in the middle"
    _report.show("Five rows of a server against the data sheet", columns, shown, note)
    return few._asdict()


def _decisions(
    found: list[Fold], wider: list[Fold], rows: list[reading.Row]
) -> dict[str, dict[str, Any]]:
    among = np.asarray([r.clean for r in rows])
    among &= np.any([np.isin(np.arange(len(rows)), f.index) for f in found], axis=0)
    made: dict[str, decisions.Choices] = {}
    for name, folds, slack in (
        ("physics", found, 0.0),
        ("with offsets of other runs", wider, 0.0),
        (f"the same, {SLACK:.0%} over the limit allowed", wider, SLACK),
    ):
        times = np.full((2, len(rows)), np.nan)
        for fold in reversed(folds):  # of several draws, a row's first stands
            times[:, fold.index] = fold.times
        chooser = decisions.by_model(rows, times[0], times[1], slack)
        made[name] = decisions.judge(rows, chooser, among)
    theirs = score.predicted_by_aiconfigurator(rows)
    if theirs is not None:
        there = among & np.isfinite(theirs).all(axis=0)
        made["aiconfigurator 0.12"] = decisions.judge(
            rows, decisions.by_model(rows, theirs[0], theirs[1]), there
        )
    made["always the whole node"] = decisions.judge(rows, decisions.whole_node(rows), among)
    made["most load per GPU"] = decisions.judge(rows, decisions.most_load(rows), among)
    decisions.show("Choice of layout and load under a limit on TPOT", made)
    return {name: c._asdict() for name, c in made.items()}


def _learned(found: list[Fold], rows: list[reading.Row]) -> dict[str, Any]:
    made = [corrected(fold, rows) for fold in found]
    pooled = score.pooled(made, rows, lambda r: r.clean, banded=False)
    table("With the learned residual", list(pooled.items()))
    return {name: figures(s) for name, s in pooled.items()}
