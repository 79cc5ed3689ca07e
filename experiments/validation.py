"""Measured rows of others beside what estimators say of them, without and with a fit.

``python experiments/validation.py [FILE ...]`` and ``python -m experiments.validation`` are the
same program. Without files it reads those beside the checkout (``../shared/data/measured``), and
the rows that were fitted where aiconfigurator-core is installed. A file is told by its columns;
rows that are damaged are left out and counted by reason. With ``--json`` it ends with its figures
on one line: ``{dataset: {metric: {"rows", "median", "mean", "bias", "cover80", ...}}}`` of the
shipped fit, and the same of the other estimators under ``"dataset: estimator"``. Exit code 0:
scored; 2: bad input.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _report
from infer_jax.errors import InputError

app = typer.Typer(help=__doc__, add_completion=False)


@app.command()
def validation(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files or folders of measured rows.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="make, engine, model, source, time or groups: predict each by a fit to the others."
        ),
    ] = None,
    fit: Annotated[
        bool, typer.Option("--fit", help="Fit all rows at once; print intervals and spreads.")
    ] = False,
    errors: Annotated[
        bool, typer.Option("--errors", help="Errors of the shipped fit on what is new to it.")
    ] = False,
    ship: Annotated[
        Path | None,
        typer.Option(
            help="TOML to write, as the package has it: of --fit the fit, of --split source the "
            "laws of errors; of --errors the end of the fit's file."
        ),
    ] = None,
    as_json: _report.Json = False,
) -> None:
    """Score estimators on measured rows, by data set and metric."""
    headline = {}
    with _report.door():
        if ship is not None and not (fit or errors) and split != "source":
            allowed = "with --fit, --errors or --split source"
            raise InputError("command line", "--ship", str(ship), allowed)
        import jax

        with jax.enable_x64(True):
            from experiments._validation import board, left_out, splits

            if split is None and not (fit or errors):
                headline = board.run(files or [])
            else:
                rows = board.read(files or []).rows
                run = splits.everything_fitted if split is None else partial(splits.run, split)
                headline = left_out.run(rows, ship) if errors else run(rows, ship)
    _report.finish(True, headline, as_json)


if __name__ == "__main__":
    app()
