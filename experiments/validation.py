"""Measured rows of others and the predictions of estimators, scored and left out of the fit.

Without files it reads those beside the checkout (``../shared/data/measured``), and
aiconfigurator-core's rows where that is installed; docs/validation.md tells what it prints. A file
is recognised by its columns; damaged rows are left out and counted by reason. ``--json``:
``{dataset: {metric: {"rows", "median", "mean", "bias", "cover80", ...}}}`` of the shipped fit, and
the same of the other estimators under ``"dataset: estimator"``.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _report
from infer_jax.errors import InputError

app = _report.program(__doc__)


@_report.command(app, x64=True)
def validation(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files or folders of measured rows.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="make, engine, model, system, source, time or groups: predict each by a fit to "
            "the others."
        ),
    ] = None,
    folds: Annotated[
        Path | None,
        typer.Option(help="CSV with columns id,fold: predict each fold by a fit to the others."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="CSV of the left-out rows' predictions to write.")
    ] = None,
    decisions: Annotated[
        bool,
        typer.Option("--decisions", help="Only what choices lose; with a split, that as well."),
    ] = False,
    peer: Annotated[
        int, typer.Option(min=0, help="Rows that aisimulate is asked, drawn at random; 0: none.")
    ] = 300,
    confidence: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            max=0.99,
            help="Only how often limits are kept by plans that `plan --confidence` would choose; "
            "or that also, of a split.",
        ),
    ] = None,
    after_runs: Annotated[
        int, typer.Option(min=0, help="Only errors after five runs of a server, of so many draws.")
    ] = 0,
    terms: Annotated[
        bool, typer.Option("--terms", help="Only what the fit loses without each of its terms.")
    ] = False,
) -> dict[str, Any]:
    """Score estimators on measured rows, by data set and metric; or rows left out of the fit."""
    if split is not None and folds is not None:
        raise InputError("command line", "--folds", str(folds), "without --split")
    if out is not None and (out.is_dir() or not out.resolve().parent.is_dir()):
        raise InputError("command line", "--out", str(out), "a file in a folder that exists")
    if folds is not None and not folds.is_file():
        raise InputError("command line", "--folds", str(folds), "a CSV file")
    if out and not (split or folds):
        raise InputError("command line", "--out", "alone", "with --split or --folds")
    from experiments._validation import board, estimates, kept_limits, splits

    if split is not None or folds is not None:
        rows = board.read(files or [], once=folds is None).rows  # which name rows
        return splits.run(split, rows, folds, out, decisions, confidence)
    if confidence is not None:
        return kept_limits.table(*kept_limits.shipped(board.read(files or []).rows), confidence)
    if after_runs:
        return estimates.after_runs(board.read(files or []).rows, after_runs)
    if terms:
        return splits.losses_without(board.read(files or []).rows)
    return board.run(files or [], peer, decisions)


if __name__ == "__main__":
    app()
