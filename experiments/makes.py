"""Coefficients of AMD's generations with builds known and not: errors on rows left out.

``python experiments/makes.py [FILE ...]`` and ``python -m experiments.makes`` are the same
program. Exit code 0: scored; 2: bad input.
"""

import sys
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _report
from infer_jax.errors import InputError

app = typer.Typer(help=__doc__, add_completion=False)


@app.command()
def makes(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files of rows, as `validation` reads them.")
    ] = None,
    as_json: _report.Json = False,
) -> None:
    """Fit AMD's generations, and score rows whose group or server each fit has not seen."""
    headline = {}
    with _report.door():
        import jax

        from experiments._validation import kinds, makes as fitting, makes_scores

        paths = files or [kinds.MEASURED / name for name in makes_scores.FILES]
        rows = [row for path in paths for row in kinds.read(path).rows if fitting.fitted(row)]
        if len({row.group for row in rows}) < 2:
            allowed = "rows of two servers of AMD's chips or more"
            raise InputError("makes", "rows", len(rows), allowed)
        with jax.enable_x64(True):
            headline = makes_scores.run(rows)
    _report.finish(True, headline, as_json)


if __name__ == "__main__":
    app()
