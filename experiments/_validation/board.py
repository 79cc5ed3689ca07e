"""The scoreboard: measured rows, the predictions of every estimator, their scores."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments import _report
from experiments._validation import estimates, kinds
from experiments._validation.calibrated import five_runs
from experiments._validation.scores import Scores, bands, by_dataset
from infer_jax.calibration.pooled import answers
from infer_jax.calibration.pooled.answers import Columns
from infer_jax.calibration.pooled.readers import silicon
from infer_jax.calibration.pooled.rows import PooledRow, RowsRead
from infer_jax.errors import InputError

SHIPPED = "shipped fit"
OTHERS: dict[str, Callable[[Sequence[PooledRow]], Columns]] = {
    "after five runs": five_runs,
    "data sheet": estimates.data_sheet,
    "roofline": estimates.roofline,
    "aiconfigurator": estimates.aiconfigurator,
}


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
    _print(scores)
    if found.skipped:
        _report.show("Rows left out", ("reason", "rows"), found.skipped.most_common())
    if not silicon.is_installed():
        print("Not compared: the rows of aiconfigurator-core: it is not installed.")
    if not estimates.GOLDEN.exists():
        print(f"Not compared: aiconfigurator: {estimates.GOLDEN.name} is missing.")
    return figures(scores)


def read(files: list[Path]) -> RowsRead:
    """The rows of files, or of all that is there; says how many of each."""
    readers = {str(p): partial(kinds.read, p) for p in files} or kinds.sources()
    found, begin = RowsRead(), time.perf_counter()
    for name, reader in readers.items():
        one = reader()
        found.add(one)
        left = sum(one.skipped.values())
        _report.say(f"{name}: {len(one.rows)} rows{f', {left} left out' if left else ''}", begin)
    return found


def scored(rows: list[PooledRow]) -> dict[str, Scores]:
    """The scores of every estimator, by its name; the shipped fit's first."""
    begin = time.perf_counter()
    found = estimates.answers(rows, answers.shipped())
    every = {SHIPPED: by_dataset(rows, found, bands(rows, found))}
    _report.say(f"{SHIPPED}: {len(rows)} rows", begin)
    for name, estimator in OTHERS.items():
        every[name] = by_dataset(rows, estimator(rows))
        _report.say(name, begin)
    _report.say(f"{len(answers.TRACES)} programs: {dict(Counter(answers.TRACES))}", begin)
    return every


def figures(scores: dict[str, Scores]) -> dict[str, Any]:
    """The scores of the shipped fit by data set, and of the others under ``data set: name``."""
    return {
        dataset if name == SHIPPED else f"{dataset}: {name}": {
            metric: {k: x and round(x, 2) for k, x in one._asdict().items()}
            for metric, one in metrics.items()
        }
        for name, by in scores.items()
        for dataset, metrics in by.items()
    }


def _print(scores: dict[str, Scores]) -> None:
    lines, compared = [], []
    for dataset, metrics in scores[SHIPPED].items():
        for metric, one in metrics.items():
            errors = f"{one.median:.1f}", f"{one.mean:.1f}", f"{one.bias:+.1f}"
            band = "no band", ""
            if one.cover80 is not None and one.width80 is not None:
                band = f"{one.cover80:.0f}", f"{one.width80:.2f}"
            lines.append((dataset, metric, one.rows, *errors, *band))
            every = (by.get(dataset, {}).get(metric) for by in scores.values())
            medians = ("" if x is None else f"{x.median:.1f}" for x in every)
            compared.append((dataset, metric, *medians))
    columns = ("rows of", "metric", "rows", "median %", "mean %", "bias %", "in 80 %", "width")
    note = (
        "Bias: geometric mean of predicted over measured, less one. In 80 %: rows inside of their "
        "80 % band.\nWidth: the middle ratio of a band's ends."
    )
    _report.show("Measured rows of others, by the shipped fit", columns, lines, note)
    note = "After five runs: rows that were not among the five."
    columns = ("rows of", "metric", *scores)
    _report.show("Median errors of all estimators, per cent", columns, compared, note)
