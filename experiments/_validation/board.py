"""The scoreboard: rows read, every estimator asked, scores printed."""

import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from experiments import _report
from experiments._validation import estimates, kinds, others
from experiments._validation.scores import Score, Scores, bands, by_dataset
from infer_jax.calibration.pooled import answers
from infer_jax.calibration.pooled.rows import PooledRow, RowsRead
from infer_jax.errors import InputError

SHIPPED = "shipped fit"


def run(files: list[Path]) -> dict[str, Any]:
    """Score all estimators on files, or on all that is there; print tables, return the figures.

    Raises:
        InputError: a file that cannot be read, or no rows in any.
    """
    found = read(files)
    if not found.rows:
        allowed = "a file with a row that can be predicted"
        raise InputError("validation", "rows", "none", allowed)
    scores = scored(found.rows)
    _print(scores, found.skipped)
    return figures(scores)


def scored(rows: list[PooledRow]) -> dict[str, Scores]:
    """The scores of every estimator, by its name; the shipped fit's first."""
    started, every = time.perf_counter(), {}
    found = estimates.answers(rows, answers.shipped())
    every[SHIPPED] = by_dataset(rows, found, bands(rows, found))
    _say(f"{SHIPPED}: {len(rows)} rows", started)
    for name, ask in others.OTHERS.items():
        every[name] = by_dataset(rows, ask(rows))
        _say(name, started)
    _say(f"{len(answers.TRACES)} programs: {dict(Counter(answers.TRACES))}", started)
    return every


def figures(scores: dict[str, Scores]) -> dict[str, Any]:
    """The scores of the shipped fit by data set, and of the others under ``data set: name``."""
    return {
        dataset if name == SHIPPED else f"{dataset}: {name}": {
            metric: {k: _rounded(x) for k, x in one._asdict().items()}
            for metric, one in metrics.items()
        }
        for name, by in scores.items()
        for dataset, metrics in by.items()
    }


def _rounded(x: float | int | None) -> float | int | None:
    return round(x, 2) if isinstance(x, float) else x


def read(files: list[Path]) -> RowsRead:
    """The rows of files, or of all that is there; says how many of each."""
    readers = {str(p): partial(kinds.read, p) for p in files} or kinds.sources()
    found, started = RowsRead(), time.perf_counter()
    for name, read in readers.items():
        one = read()
        found.add(one)
        left = sum(one.skipped.values())
        _say(f"{name}: {len(one.rows)} rows" + (f", {left} left out" if left else ""), started)
    return found


def _say(what: str, started: float) -> None:
    _report.console().print(f"[dim]{time.perf_counter() - started:6.1f} s[/]  {what}")


def _print(scores: dict[str, Scores], skipped: Counter[str]) -> None:
    shipped = scores[SHIPPED]
    lines = [
        (
            dataset,
            metric,
            one.rows,
            *(f"{x:.1f}" for x in (one.median, one.mean)),
            f"{one.bias:+.1f}",
            *_band(one),
        )
        for dataset, metrics in shipped.items()
        for metric, one in metrics.items()
    ]
    columns = ("rows of", "metric", "rows", "median %", "mean %", "bias %", "in 80 %", "width")
    note = (
        "Bias: geometric mean of predicted over measured, less one. In 80 %: rows inside of their "
        "80 % band.\nWidth: the middle ratio of a band's ends."
    )
    _report.show("Measured rows of others, by the shipped fit", columns, lines, note)
    compared = [
        (dataset, metric, *(_median(by, dataset, metric) for by in scores.values()))
        for dataset, metrics in shipped.items()
        for metric in metrics
    ]
    names = ("rows of", "metric", *scores)
    note = "After five runs: rows that were not among the five."
    _report.show("Median errors of all estimators, per cent", names, compared, note)
    if skipped:
        _report.show("Rows left out", ("reason", "rows"), skipped.most_common())
    for name, why in others.missing().items():
        _report.console().print(f"Not compared: {name}: {why}.")


def _median(by: Scores, dataset: str, metric: str) -> str:
    one = by.get(dataset, {}).get(metric)
    return "" if one is None else f"{one.median:.1f}"


def _band(one: Score) -> tuple[str, str]:
    if one.cover80 is None or one.width80 is None:
        return "no band", ""
    return f"{one.cover80:.0f}", f"{one.width80:.2f}"
