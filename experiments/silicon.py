"""Measured serving: the fitted theory beside 3,619 rows of aiconfigurator-core, held out.

``python experiments/silicon.py --cv groups`` and ``python -m experiments.silicon --cv groups`` are
the same program. With ``--json`` it ends with its figures on one line. Exit code 0: scored; 2: bad
input. The rows are read where the package ``aiconfigurator-core`` is installed.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _report
from infer_jax.errors import InputError

app = typer.Typer(help=__doc__, add_completion=False)


@app.command()
def silicon(
    cv: Annotated[str | None, typer.Option(help="groups, model or system.")] = None,
    folds: Annotated[Path | None, typer.Option(help="CSV with columns id,fold.")] = None,
    mode: Annotated[str, typer.Option(help="agg or disagg.")] = "agg",
    out: Annotated[Path | None, typer.Option(help="CSV of predictions to write.")] = None,
    more: Annotated[
        bool, typer.Option(help="Also offsets, decisions and coverage by slice.")
    ] = True,
    learned: Annotated[bool, typer.Option(help="Also with the learned residual.")] = False,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Also choices by the probability of limits.")
    ] = False,
    as_json: _report.Json = False,
) -> None:
    """Fit and score the serving theory on rows that each fit has not seen."""
    headline: dict[str, Any] = {}
    with _report.door():
        if (cv is None) == (folds is None):
            raise InputError("command line", "--cv or --folds", "both or none", "one of the two")
        if out is not None and (out.is_dir() or not out.resolve().parent.is_dir()):
            raise InputError("command line", "--out", str(out), "a file in a folder that exists")
        if cv not in (None, "groups", "model", "system"):
            raise InputError("command line", "--cv", cv, "groups, model or system")
        if folds is not None and not folds.is_file():
            raise InputError("command line", "--folds", str(folds), "a CSV file")
        if mode not in ("agg", "disagg"):
            raise InputError("command line", "--mode", mode, "agg or disagg")
        import jax

        with jax.enable_x64(True):
            if mode == "agg":
                from experiments._silicon import aggregated

                headline = aggregated.run(cv, folds, out, more, learned, confidence)
            else:
                from experiments._silicon import disaggregated

                headline = disaggregated.run(cv, folds, out, confidence)
    _report.finish(True, headline, as_json)


if __name__ == "__main__":
    app()
