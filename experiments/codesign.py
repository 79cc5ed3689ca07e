"""Gradients that design: elasticities, lifetimes and case studies."""

import sys
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import typer

from experiments import _report
from experiments._codesign import elasticity, lifetimes as over_a_lifetime, studies

app = _report.program(__doc__, no_args_is_help=True)


@app.command()
def elasticities(as_json: _report.Json = False) -> None:
    """The closed form's elasticities, level 4's beside them, and three changes of hardware."""
    figures = elasticity.tables()
    _report.finish(figures["agrees"], figures, as_json)


@app.command()
def lifetimes(as_json: _report.Json = False) -> None:
    """Training and serving: how large a model and how long trained, by the tokens it serves."""
    jax.config.update("jax_enable_x64", True)
    with _report.door():
        figures = over_a_lifetime.tables()
    _report.finish(figures["agrees"], figures, as_json)


@app.command()
def cases(
    only: Annotated[list[str] | None, typer.Option(help="a, b or c; all if none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = _report.OUT / "codesign",
    as_json: _report.Json = False,
) -> None:
    """Three case studies, with pictures, a second estimator and caveats."""
    jax.config.update("jax_enable_x64", True)
    with _report.door():
        names = _report.chosen_keys("case", only or list(studies.CASES), studies.CASES)
        reports = {name: studies.CASES[name](out) for name in names}
    _report.finish(True, {"cases": reports}, as_json)


if __name__ == "__main__":
    app()
