"""Gradients that design: elasticities, lifetimes and case studies."""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _report
from experiments._codesign import studies

app = _report.program(__doc__, no_args_is_help=True)


@_report.command(app)
def elasticities() -> dict[str, Any]:
    """The closed form's elasticities, level 4's beside them, and three changes of hardware."""
    return studies.elasticity_tables()


@_report.command(app, x64=True)
def lifetimes() -> dict[str, Any]:
    """Training and serving: how large a model and how long trained, by the tokens it serves."""
    return studies.lifetimes()


@_report.command(app, x64=True)
def cases(
    only: Annotated[list[str] | None, typer.Option(help="a, b or c; all if none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = _report.OUT / "codesign",
) -> dict[str, Any]:
    """Three case studies, with pictures, a second estimator and caveats."""
    names = _report.chosen_keys("case", only or list(studies.CASES), studies.CASES)
    return {"cases": {name: studies.CASES[name](out) for name in names}}


if __name__ == "__main__":
    app()
